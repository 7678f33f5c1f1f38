"""A forked server behaves like one that is started as a program."""

from __future__ import annotations

import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.conformance.harness.forks import Forked
from tests.conformance.harness.process import ServerProcess, our_command


def forked(folder: Path, *arguments: str) -> Forked:
    return Forked(list(arguments), folder / "log", folder, dict(os.environ))


def test_the_exit_code_and_the_log_are_those_of_the_command(tmp_path: Path) -> None:
    # when
    server = forked(tmp_path, "--nonsense")
    # then
    assert server.wait(20) == 2
    done = subprocess.run([*our_command(), "--nonsense"], capture_output=True, text=True, check=False)
    assert (tmp_path / "log").read_text() == done.stderr


def plain_exit_code(folder: Path) -> int:
    """Return the exit code of the command, started as a program, after SIGTERM."""
    folder.mkdir()
    server = ServerProcess(our_command(), "", folder, with_http=False)
    server.start()
    server.stop()
    assert server._process is not None
    code = server._process.poll()
    assert code is not None
    return code


def test_it_is_asked_to_end_and_killed_by_signals(tmp_path: Path) -> None:
    ended = []
    for name, number in (("asked", signal.SIGTERM), ("killed", signal.SIGKILL)):
        # given
        folder = tmp_path / name
        folder.mkdir()
        server = ServerProcess(our_command(), "", folder, with_http=False, may_fork=True)
        server.start()
        process = server._process
        assert isinstance(process, Forked)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.0)
        # when
        process.send_signal(number)
        # then
        ended.append(process.wait(20))
        assert process.poll() == ended[-1]
    assert ended == [plain_exit_code(tmp_path / "plain"), -signal.SIGKILL]


def test_the_log_of_a_start_is_empty_before(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("Server is ready")

    server = forked(tmp_path, "--version")

    assert server.wait(20) == 0
    assert "Server is ready" not in (tmp_path / "log").read_text()


def test_servers_started_in_several_threads_have_one_parent(tmp_path: Path) -> None:
    def ended(number: int) -> int:
        folder = tmp_path / str(number)
        folder.mkdir()
        return forked(folder, "--version").wait(20)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ended, range(8))) == [0] * 8
