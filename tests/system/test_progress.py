"""Long commands on a real terminal and into a pipe."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest
from tests.conformance.harness.process import our_command
from tests.support.nats_stores import make_source


def on_terminal(command: list[str]) -> tuple[int, str]:
    """Run a command whose errors go to a terminal; return its exit code and what the terminal got."""
    keeper, terminal = pty.openpty()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=terminal) as process:
        os.close(terminal)
        shown = b""
        while part := read_or_end(keeper):
            shown += part
    os.close(keeper)
    return process.returncode, shown.decode()


def read_or_end(keeper: int) -> bytes:
    try:
        return os.read(keeper, 65536)
    except OSError:  # the last process with the terminal has ended
        return b""


@pytest.mark.parametrize("what", ["fsck", "import"])
def test_a_bar_is_on_the_terminal_and_nothing_in_a_pipe(what: str, tmp_path: Path) -> None:
    source = make_source(tmp_path / "source", names=("QUEUE",))
    take = [*our_command(), "import", "-sd", str(tmp_path / "ours"), str(source)]
    command = take
    if what == "fsck":
        subprocess.run(take, check=True, capture_output=True)
        command = [*our_command(), "fsck", str(tmp_path / "ours")]

    code, shown = on_terminal(command)
    again = subprocess.run([*command, "--quiet"], capture_output=True, text=True, check=False)

    assert code == 0
    assert shown.startswith(f"\r[{'-' * 30}]   0 %  0 B of ")
    assert f"[{'#' * 30}] 100 %" in shown
    assert shown.endswith("\r\x1b[K")
    assert again.stderr == ""
