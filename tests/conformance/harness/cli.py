"""The `nats` command line tool, run through one script (cli/walk.txt) against one server of each kind.

One statement per line:

    nats ARGUMENTS          run a command; its exit code and output are recorded
    unordered ARGUMENTS     the same, but lines are sorted: the tool prints headers in random order
    start NAME ARGUMENTS    run a command in the background
    shows NAME TEXT         wait until it has printed the text
    end NAME                wait until it has ended uninterrupted; stop NAME: interrupt it. Both record its output.
    listening SUBJECT       wait until the monitoring port shows a subscription to the subject
    text NAME CONTENT       write a file; file NAME SIZE: write SIZE bytes; same NAME NAME: compare two files

Every command runs in a directory of this run, without the user's contexts. Only values that differ from one run to
the next on the same server are masked (times, durations, ids, ports, sizes of the disk).

Every command has a time limit. A command that `nats` or `unordered` runs is repeated once after that; the walk also
has a limit for all its statements together, so that a server that answers nothing ends it early. The error has the
command, its output, the slowest statements and the last lines of the server's log.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from tests.conformance.harness.process import ServerProcess

WALK = Path(__file__).resolve().parent.parent / "cli" / "walk.txt"
VERSION = "v0.4.0"
COMMAND_SECONDS = 30.0  # the slowest command takes 0.2 s on an idle machine
WAIT_SECONDS = 30.0
WALK_SECONDS = 120.0  # for all statements; 10 s on an idle machine
SHOWN_MAX = 2000  # bytes of an output, or of a log, in an error
POLL_SECONDS = 0.01
CONFIG = 'jetstream { store_dir: "<<store>>", max_mem: 256MB, max_file: 1GB }'

_TIME = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?( [+-]\d{4} \w+|Z|[+-]\d\d:\d\d)?"
_SINCE = r"(\d+h)?(\d+m)?\d+(\.\d+)?s"
# Patterns for the places where two runs cannot agree, and the text that replaces them.
MASKS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.MULTILINE), mask)
    for pattern, mask in (
        (r"\x1b\[[0-9;]*[A-Za-z]|[\r\u2500]+", ""),
        (rf"(?!0001-01-01){_TIME}", "<time>"),
        (r"\b\d\d:\d\d:\d\d\b", "<time>"),
        (r"\bN[A-Z2-7]{55}\b", "<server id>"),
        (r"_INBOX\.[A-Za-z0-9]{22}\.\w{8}\b", "_INBOX.<nuid>.<token>"),
        (r"\b(?=[A-Za-z0-9]*\d)(?=[A-Za-z0-9]*[A-Za-z])[A-Za-z0-9]{22}\b", "<nuid>"),
        (r"127\.0\.0\.1:\d+", "127.0.0.1:<port>"),
        (r"(?<![\d.])\d+(\.\d+)?(µs|ms|ns)\b", "<duration>"),
        (rf"(?<=\(){_SINCE}(?=\))|{_SINCE}(?= ago)|(?<==){_SINCE}|(?<=took ){_SINCE}", "<duration>"),
        (
            rf"{_SINCE}(?=\s*│\s*$)|{_SINCE}(?= remaining)",
            "<duration>",
        ),  # the last column: since the last message
        (r"(?<=Client ID: )\d+", "<client id>"),
        (r'(?<="rtt": )\d+', "<duration>"),
        (r"[ \t\u00a0]+", " "),
    )
)


def program() -> str | None:
    """Return the `nats` program: PYJS_NATS_CLI, or the one in PATH, or None."""
    return os.environ.get("PYJS_NATS_CLI") or shutil.which("nats")


class WalkFailed(Exception):
    """A command hung twice, or the walk took too long. The text has the command and its output."""


class Walk:
    """One run of the script; `seen` holds the recorded lines of each statement, `played_again` the commands that hung
    and ended when they were repeated.
    """

    def __init__(self, nats: str, server: ServerProcess, directory: Path) -> None:
        self.seen: dict[str, list[str]] = {}
        self.played_again: list[str] = []
        self._seconds: dict[str, float] = {}  # by statement
        self._nats = nats
        self._server = server
        self._directory = directory
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        kept = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
        self._environment = {**kept, "HOME": str(directory), "TZ": "UTC", "COLUMNS": "200", "NO_COLOR": "1"}

    def run(self, text: str) -> None:
        """Run every statement of the script.

        Raises:
            WalkFailed: a command hung twice, or the walk took longer than WALK_SECONDS.
        """
        try:
            for number, line in enumerate(text.splitlines(), 1):
                if line.strip() and not line.startswith("#"):
                    self._timed(f"{number}: {line}")
        finally:
            for process in self._running.values():
                process.kill()
                process.wait()

    def _timed(self, statement: str) -> None:
        verb, _, rest = statement.partition(": ")[2].partition(" ")
        begun = time.monotonic()
        self.seen[statement] = self._statement(verb, rest)
        self._seconds[statement] = time.monotonic() - begun
        if sum(self._seconds.values()) > WALK_SECONDS:
            lines = "\n".join(self.seen[statement])
            self._fail(
                f"the walk takes longer than {WALK_SECONDS:g} s, after {statement}, which printed:\n{lines}"
            )

    def _fail(self, problem: str) -> NoReturn:
        slowest = sorted(self._seconds.items(), key=lambda item: -item[1])[:5]
        listed = "\n".join(f"{seconds:6.1f} s {statement}" for statement, seconds in slowest)
        raise WalkFailed(
            f"{problem}\nslowest statements:\n{listed}\nend of the server's log:\n{self._server.log_end(SHOWN_MAX)}"
        )

    def _statement(self, verb: str, rest: str) -> list[str]:
        first, _, more = rest.partition(" ")
        path = self._directory / first
        if verb == "nats":
            return self._command(shlex.split(rest))
        if verb == "unordered":
            return sorted(self._command(shlex.split(rest)))
        if verb == "start":
            self._start(first, shlex.split(more))
        elif verb == "shows":
            missing = self._until(lambda: more in self._output(first), f"{first} does not show it, but:")
            return [*missing, *masked(self._output(first))] if missing else []
        elif verb in ("end", "stop"):
            return self._end(first, interrupt=verb == "stop")
        elif verb == "listening":
            return self._until(lambda: self._is_listened_to(first), f"nobody listens to {first}")
        elif verb == "text":
            path.write_text(more, "utf-8")
        elif verb == "file":
            path.write_bytes(bytes(n % 251 for n in range(int(more))))
        elif verb == "same":
            other = self._directory / more
            return [str(other.exists() and path.read_bytes() == other.read_bytes())]
        else:
            raise ValueError(f"{WALK}: no statement {verb}")
        return []

    def _command(self, arguments: list[str]) -> list[str]:
        try:
            done = self._run(arguments)
        except subprocess.TimeoutExpired as hung:
            problem = (
                f"nats {shlex.join(arguments)} hung for {COMMAND_SECONDS:g} s and printed:\n{_end_of(hung)}"
            )
            try:
                done = self._run(arguments)
            except subprocess.TimeoutExpired as again:
                self._fail(f"{problem}\nand when it was repeated:\n{_end_of(again)}")
            self.played_again.append(problem)
        output = done.stdout.decode("utf-8", "replace").replace(f"{self._directory}/", "")
        return [f"exit {done.returncode}", *masked(output)]

    def _run(self, arguments: list[str]) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            self._line(arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self._directory,
            env=self._environment,
            timeout=COMMAND_SECONDS,
            check=False,
        )

    def _line(self, arguments: list[str]) -> list[str]:
        return [self._nats, "--server", f"nats://127.0.0.1:{self._server.port}", *arguments]

    def _start(self, name: str, arguments: list[str]) -> None:
        with (self._directory / f"{name}.out").open("wb") as output:
            self._running[name] = subprocess.Popen(
                self._line(arguments),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._directory,
                env=self._environment,
            )

    def _output(self, name: str) -> str:
        return (self._directory / f"{name}.out").read_text("utf-8", "replace")

    def _end(self, name: str, interrupt: bool) -> list[str]:
        process = self._running.pop(name)
        if interrupt:
            process.send_signal(signal.SIGINT)
        try:
            process.wait(COMMAND_SECONDS)
            code = "interrupted" if interrupt else f"exit {process.returncode}"
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code = f"{name} hung for {COMMAND_SECONDS:g} s, and was killed"
        return [code, *masked(self._output(name))]

    def _is_listened_to(self, subject: str) -> bool:
        url = f"http://127.0.0.1:{self._server.http_port}/subsz?subs=1&test={subject}"
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(json.load(answer).get("subscriptions_list"))

    def _until(self, reached: Callable[[], bool], problem: str) -> list[str]:
        deadline = time.monotonic() + WAIT_SECONDS
        while not reached():
            if time.monotonic() > deadline:
                return [problem]
            time.sleep(POLL_SECONDS)  # pause between two looks at another process
        return []


def _end_of(hung: subprocess.TimeoutExpired) -> str:
    """Return the end of the output of a command that was killed."""
    output: bytes = hung.output or b"(nothing)"
    return output[-SHOWN_MAX:].decode("utf-8", "replace")


def masked(output: str) -> list[str]:
    """Return the lines of an output, without blank lines and with values that differ between runs masked."""
    for pattern, mask in MASKS:
        output = pattern.sub(mask, output)
    return [line.strip() for line in output.splitlines() if line.strip()]


def walk(nats: str, command: list[str], directory: Path) -> Walk:
    """Return a complete run with a fresh server of `command`.

    Raises:
        WalkFailed: see `Walk.run`.
    """
    directory.mkdir(parents=True)
    server = ServerProcess(command, CONFIG, directory, with_http=True)
    server.start()
    work = directory / "work"
    work.mkdir()
    steps = Walk(nats, server, work)
    try:
        steps.run(WALK.read_text("utf-8"))
    finally:
        server.kill()
    return steps


def differences(peer: dict[str, list[str]], ours: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the statements with another outcome, each with the lines that only one server has."""
    found = {}
    for statement, theirs in peer.items():
        own = ours.get(statement, [])
        if theirs != own:
            found[statement.partition(": ")[2]] = [
                *(f"peer: {line}" for line in theirs if line not in own),
                *(f"ours: {line}" for line in own if line not in theirs),
            ]
    return found
