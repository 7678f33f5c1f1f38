"""The search for processes that have a file open."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pyjs.server.system.open_by import holders

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="/proc is not here")


def test_a_process_with_a_file_below_the_directory_is_found(tmp_path: Path) -> None:
    # given
    path = tmp_path / "store" / "file"
    path.parent.mkdir()
    path.write_text("x")
    program = "import sys; held = open(sys.argv[1]); print(1, flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        # when, then
        assert holders(str(tmp_path / "store")) == [process.pid]
        assert holders(str(tmp_path / "sto")) == []
        process.communicate()


def test_this_process_does_not_count(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w"):
        assert holders(str(tmp_path)) == []
