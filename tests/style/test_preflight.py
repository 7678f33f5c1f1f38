"""The messages of `make` on a machine without some required tool."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.style.tree import ROOT


def preflight(**environment: str) -> tuple[int, str]:
    """Return status and stderr of the check."""
    settings = {"PYTHON": sys.executable, **environment}
    done = subprocess.run(
        [ROOT / ".ci" / "preflight"],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


def fake_python(tmp_path: Path, script: str) -> str:
    program = tmp_path / "python3"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


def test_a_complete_machine_is_passed_in_silence() -> None:
    assert preflight() == (0, "")


def test_a_missing_interpreter_is_named_with_the_way_to_get_it() -> None:
    status, text = preflight(PYTHON="/nonexistent/python3")

    assert status == 1
    assert "'/nonexistent/python3' does not run" in text
    assert "apt install python3 python3-venv python3-dev" in text


def test_an_old_interpreter_is_named_with_its_version(tmp_path: Path) -> None:
    python = fake_python(tmp_path, 'case "$2" in *exit*) exit 1;; esac; echo 3.9')

    status, text = preflight(PYTHON=python)

    assert status == 1
    assert f"Python 3.11 or newer: '{python}' is 3.9" in text


def test_missing_headers_and_compiler_are_named_together(tmp_path: Path) -> None:
    python = fake_python(
        tmp_path,
        'case "$2" in *version*exit*) exit 0;; *path*include*) echo /nonexistent;; *version*) echo 3.11;; esac',
    )

    status, text = preflight(PYTHON=python, CC="/nonexistent/cc")

    assert status == 1
    assert "there is no /nonexistent/Python.h" in text
    assert "apt install python3.11-dev" in text
    assert "'/nonexistent/cc' does not compile" in text


def test_a_missing_venv_module_is_named(tmp_path: Path) -> None:
    python = fake_python(tmp_path, f'case "$2" in *ensurepip*) exit 1;; esac; exec {sys.executable} "$@"')

    assert "the venv module of Python" in preflight(PYTHON=python)[1]
