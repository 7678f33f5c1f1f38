"""The alias: made on request, and never over another program."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from pyjs.operating.alias import USAGE, run


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    path = tmp_path / "pyjs-server"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    (tmp_path / "bin").mkdir()
    return path


def told(program: Path, *words: str | Path) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    return run([str(word) for word in words], str(program), out, err), out.getvalue(), err.getvalue()


def test_a_link_is_made_once(program: Path, tmp_path: Path) -> None:
    link = tmp_path / "bin" / "nats-server"

    for _ in range(2):
        assert told(program, tmp_path / "bin") == (0, f"{link} is now {program}\n", "")
    assert link.resolve() == program


def test_another_program_is_not_replaced(program: Path, tmp_path: Path) -> None:
    link = tmp_path / "bin" / "nats-server"
    link.write_text("the real one")

    text = f"pyjs-server alias: {link} exists and is another program; choose another directory, or move it\n"
    assert told(program, tmp_path / "bin") == (1, "", text)
    assert link.read_text() == "the real one"


def test_a_link_to_nothing_is_not_replaced(program: Path, tmp_path: Path) -> None:
    (tmp_path / "bin" / "nats-server").symlink_to(tmp_path / "gone")

    assert told(program, tmp_path / "bin")[0] == 1


def test_a_real_one_that_the_path_finds_first_is_told(program: Path, tmp_path: Path) -> None:
    real = tmp_path / "bin" / "nats-server"
    real.write_text("#!/bin/sh\n")
    real.chmod(0o755)
    (tmp_path / "other").mkdir()

    code, _, err = told(program, tmp_path / "other")

    assert code == 0
    assert err == f"pyjs-server alias: the PATH finds {real} first, which is another program\n"


@pytest.mark.parametrize("words", [(), ("a", "b"), ("--force",)])
def test_a_wrong_command_line_is_told(program: Path, words: tuple[str, ...]) -> None:
    assert told(program, *words) == (2, "", f"pyjs-server alias: give one directory\n\n{USAGE}\n")


def test_help_is_printed(program: Path) -> None:
    assert told(program, "--help") == (0, f"{USAGE}\n", "")


def test_a_directory_that_does_not_exist_is_told(program: Path, tmp_path: Path) -> None:
    text = f"pyjs-server alias: {tmp_path}/none/nats-server: no such file or directory\n"
    assert told(program, tmp_path / "none") == (1, "", text)


def test_a_module_is_no_program(tmp_path: Path) -> None:
    code, _, err = told(tmp_path / "__main__.py", tmp_path)

    assert code == 1
    assert "install the wheel" in err
