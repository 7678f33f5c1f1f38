"""One line in the summary where the engine is missing; a failure where it is required."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from raft.tests.conftest import REASON, is_here, required

ROOT = Path(__file__).resolve().parents[2]


def test_the_engine_is_here() -> None:
    if not is_here() and not required():
        pytest.skip(REASON)
    assert is_here(), REASON


def test_without_wheel_and_cargo_make_cluster_says_what_to_do(tmp_path: Path) -> None:
    script = tmp_path / ".ci" / "raft"
    script.parent.mkdir()
    shutil.copy(ROOT / ".ci" / "raft", script)
    bare = tmp_path / "bin"
    bare.mkdir()
    for name in ("dirname", "ls", "head"):
        found = shutil.which(name)
        assert found
        (bare / name).symlink_to(found)

    done = subprocess.run(
        ["/bin/sh", script],
        env={"PATH": str(bare), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert "no wheel in dist/, and no cargo to build it" in done.stderr
    assert "make cluster WHEEL=" in done.stderr
    assert "apt install cargo" in done.stderr
