"""Starts our server without its imports, which take most of the processor time of a start.

One process imports the server and waits. For each start it forks a child that runs the command with the arguments,
the environment, the folder and the log of that start. So each server is a separate process: it gets signals, can be
killed and leaves its files behind. Scenarios start servers this way. The tests of the command itself
(tests/system/test_process.py and others) start `python -m pyjs`.

The parent reads and writes JSON lines: a start is answered with its process id, and a process id with its exit code
or null.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import select
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

NOT_OF_THE_COMMAND = ("pyjs.__main__", "pyjs.aio", "pyjs.models", "pyjs.pytest_plugin", "pyjs.testing")


class Parent:
    """The process that forks the servers; the tests' handle for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # any thread of the tests may start a server
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.conformance.harness.forks"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).resolve().parents[3],
        )
        atexit.register(self.end)

    def end(self) -> None:
        """End the process; servers that it forked keep running."""
        self._process.communicate(timeout=20)

    def ask(self, question: Any) -> Any:
        """Send a request to the process and return its answer."""
        assert self._process.stdin
        assert self._process.stdout
        with self._lock:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())


_parents: list[Parent] = []  # at most one
_first = threading.Lock()


def parent() -> Parent:
    """Return the process that forks this test process's servers; the first call, from any thread, starts it."""
    with _first:
        if not _parents:
            _parents.append(Parent())
        return _parents[0]


class Forked:
    """A server that the parent forked; it has the part of subprocess.Popen that the tests use."""

    def __init__(self, arguments: list[str], log: Path, cwd: Path, env: dict[str, str]) -> None:
        start = {"arguments": arguments, "log": str(log), "cwd": str(cwd), "env": env}
        # so that a reader does not find an earlier log before the child has opened this one
        log.write_bytes(b"")
        self.pid: int = parent().ask(start)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        if self.returncode is None:
            self.returncode = parent().ask(self.pid)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Return the exit code once the process has ended.

        Raises:
            subprocess.TimeoutExpired: it runs longer than `timeout` seconds.
        """
        code = self.poll()
        if code is None:
            end = os.pidfd_open(self.pid)
            try:
                if not select.select([end], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired("pyjs", timeout)
            finally:
                os.close(end)
            code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)  # the child has not been reaped, so no other process can have this id

    def kill(self) -> None:
        """Kill the process."""
        self.send_signal(9)


# In the parent


def serve() -> None:
    """Import the server; then fork and reap until the tests close their end."""
    for module in pkgutil.walk_packages(importlib.import_module("pyjs").__path__, "pyjs."):
        if not module.name.startswith(NOT_OF_THE_COMMAND):
            import_it(module.name)
    gc.collect()
    gc.freeze()  # the children share these pages
    for line in sys.stdin:
        asked = json.loads(line)
        answer = exit_code(asked) if isinstance(asked, int) else fork(asked)
        print(json.dumps(answer), flush=True)


def import_it(name: str) -> None:
    """Import a module; skip one that needs the consensus engine if the engine is not installed."""
    try:
        importlib.import_module(name)
    except ImportError as error:
        if type(error).__name__ != "EngineMissing":  # without the engine its class cannot be imported
            raise


def exit_code(pid: int) -> int | None:
    """Reap a child and return its exit code, or None if it has not ended."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def fork(start: dict[str, Any]) -> int:
    """Return the process id of a child that runs the command."""
    return os.fork() or run(start)


def run(start: dict[str, Any]) -> NoReturn:
    """Run the command in this process, with the standard streams, directory, environment and arguments of `start`."""
    code = 1
    try:
        nothing = os.open(os.devnull, os.O_RDONLY)
        log = os.open(start["log"], os.O_WRONLY | os.O_APPEND)
        for number, descriptor in ((0, nothing), (1, log), (2, log)):
            os.dup2(descriptor, number)
        os.close(nothing)
        os.close(log)
        os.chdir(start["cwd"])
        os.environ.clear()
        os.environ.update(start["env"])
        time.tzset()  # the parent has read another TZ
        gc.unfreeze()
        sys.argv = ["pyjs-server", *start["arguments"]]
        from pyjs.cli import main

        code = main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
