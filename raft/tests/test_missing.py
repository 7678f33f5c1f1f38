"""If the engine is missing, the summary of the tests has one line about it, or they fail if it is required."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from raft.tests.conftest import REASON, STALE, is_here, is_stale, required

ROOT = Path(__file__).resolve().parents[2]


def test_the_engine_is_here() -> None:
    if not is_here() and not required():
        pytest.skip(REASON)
    assert is_here(), REASON


def test_the_engine_was_compiled_from_these_sources() -> None:
    if is_stale() and not required():
        pytest.skip(STALE)
    assert not is_stale(), STALE


def test_a_package_without_its_compiled_part_is_not_here(tmp_path: Path) -> None:
    package = tmp_path / "pyjs_raft"
    package.mkdir()
    (package / "__init__.py").write_text("from pyjs_raft._engine import Groups\n")

    done = subprocess.run(
        [sys.executable, "-c", "from raft.tests.conftest import is_here; print(is_here())"],
        env={"PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "False\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a tree with the script and a source; its bin/ has only what the script uses before it refuses."""
    script = tmp_path / ".ci" / "raft"
    script.parent.mkdir()
    shutil.copy(ROOT / ".ci" / "raft", script)
    (tmp_path / "raft" / "src").mkdir(parents=True)
    shutil.copy(ROOT / "raft" / "Cargo.toml", tmp_path / "raft")
    (tmp_path / "bin").mkdir()
    for name in ("dirname", "ls", "head", "find", "sed"):
        found = shutil.which(name)
        assert found
        (tmp_path / "bin" / name).symlink_to(found)
    return tmp_path


def refusal(checkout: Path) -> str:
    """Return the output of `make cluster` in the tree `checkout`."""
    done = subprocess.run(
        ["/bin/sh", checkout / ".ci" / "raft"],
        env={"PATH": str(checkout / "bin"), "HOME": str(checkout)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "make cluster WHEEL=" in done.stderr
    return done.stderr


def put_cargo(checkout: Path, version: str, *, status: int) -> None:
    """Add a fake cargo that reports a version and fails in all other calls."""
    cargo = checkout / "bin" / "cargo"
    text = f'[ "$1" = --version ] && echo "cargo {version} (abc 2024-01-01)" && exit\necho no network >&2\n'
    cargo.write_text(f"#!/bin/sh\n{text}exit {status}\n")
    cargo.chmod(0o755)


def test_without_wheel_and_cargo_make_cluster_says_what_to_do(checkout: Path) -> None:
    said = refusal(checkout)

    assert "no wheel in dist/, and no cargo to build it" in said
    assert "apt install cargo" in said


def test_a_wheel_from_before_the_sources_is_not_taken_silently(checkout: Path) -> None:
    wheel = checkout / "dist" / "pyjs_raft-0.1.0-cp311-abi3-linux_x86_64.whl"
    wheel.parent.mkdir()
    wheel.touch()
    os.utime(wheel, (1, 1))

    said = refusal(checkout)

    assert f"{wheel.relative_to(checkout)} is older than the sources in raft/, and no cargo" in said


def test_an_old_cargo_is_named_with_the_version_that_is_needed(checkout: Path) -> None:
    put_cargo(checkout, "1.82.0", status=101)

    assert "cargo 1.82.0 (abc 2024-01-01) is here, Rust 1.83 or newer is needed" in refusal(checkout)


def test_a_cargo_that_gets_no_crates_says_why(checkout: Path) -> None:
    put_cargo(checkout, "1.83.0", status=101)

    said = refusal(checkout)

    assert "no network" in said
    assert "it does not get the crates that raft/Cargo.lock names" in said
