"""A worker process as its server sees it: process, channel, log lines and restarts."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import re
import signal
import socket
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pyjs.server.workers.channel import Channel

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyjs.config.options import Options, Worker
    from pyjs.server.logging import Logger
    from pyjs.server.workers.channel import Message

BACKOFF_S = 0.1  # seconds before a crashed worker is restarted; doubled after each crash
BACKOFF_MAX_S = 30.0
# seconds for which a worker must have been ready, so that the wait after its next crash is BACKOFF_S
LASTING_S = 60.0
PAGE_S = 5.0  # seconds within which a worker must answer a request for a page
CONFIRM_S = 5.0  # seconds without an answer to a reload after which the log names the worker
LAST_WORDS_S = 1.0  # seconds to wait for the end of the channel after its process has ended
CHUNK = 65536
MODULE = "pyjs.server.workers.child"
FORMATTED = re.compile(  # the beginning of a line that a log has written, with its pid
    rb'\[(\d+)\] |\{(?:"time":"[^"]*",)?"level":"[a-z]+","pid":(\d+),.*\}\Z', re.DOTALL
)


class State(enum.Enum):
    """The states of a worker: STARTING -> READY -> RESTING -> STARTING; any state -> ENDED."""

    STARTING = enum.auto()
    READY = enum.auto()
    RESTING = enum.auto()  # the worker crashed, and will be restarted
    ENDED = enum.auto()


@dataclass(frozen=True, slots=True)
class Page:
    """A worker's answer to a request for a page."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


class WorkerProcess:
    """A worker of the server: a process, which is replaced by a new process after a crash."""

    def __init__(self, options: Options, worker: Worker, log: Logger, changed: Callable[[], None]) -> None:
        """Create a worker without a process; `changed` is called after each change of `state`."""
        self.options = options
        self.worker = worker
        self.state = State.STARTING
        self.pid = 0
        self.server_id = ""
        self.name = ""
        self.restarts = 0
        self.failure = ""  # the reason why the worker could not start
        self._log = log
        self._changed = changed
        self._channel: Channel
        self._channel_ended = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        self._ready_at = 0.0
        self._reload_due = False  # the process may have read the configuration before it changed
        self._may_end = False  # in lame duck mode, the worker may exit and is not restarted
        self._numbers = 0  # number of requests so far
        self._waiting: dict[int, asyncio.Future[tuple[Message, bytes] | None]] = {}

    def __str__(self) -> str:
        return f"worker {self.worker.number}"

    # -- life cycle ----------------------------------------------------------------------------------------------
    async def run(self, may_start_again: Callable[[], bool]) -> None:
        """Run processes until `stop`. A process that exits while `may_start_again` returns False is not replaced."""
        backoff_s = BACKOFF_S
        loop = asyncio.get_running_loop()
        try:
            while not self._stopping.is_set():
                self._become(State.STARTING)
                how = await self._run_once()
                self._forget_requests()
                if self._stopping.is_set() or self._may_end or not may_start_again():
                    self.failure = self.failure or how
                    return
                if self._ready_at and loop.time() - self._ready_at > LASTING_S:
                    backoff_s = BACKOFF_S
                self._log.error(f"{self} (pid {self.pid}) {how}; it starts again in {backoff_s:g} s")
                self._become(State.RESTING)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), backoff_s)
                backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)
                self.restarts += 1
        finally:
            self._become(State.ENDED)

    def stop(self) -> None:
        """Request that the process closes its connections and streams and ends; it is not restarted."""
        self._stopping.set()
        if self._process is not None:
            self._channel.send({"do": "stop"})

    def start_lame_duck(self) -> None:
        """Request that the process enters lame duck mode or, if it is not ready, stops; it is not restarted."""
        self._may_end = True
        if self.state is State.READY:
            self._channel.send({"do": "lame_duck"})
        else:
            self.stop()

    def kill(self) -> None:
        """End the process at once."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    def _become(self, state: State) -> None:
        self.state = state
        self._changed()

    async def _run_once(self) -> str:
        """Run one process until it ends; return a description of how it ended."""
        self._ready_at = 0.0
        self._reload_due = False
        ours, theirs = socket.socketpair()
        self._channel_ended.clear()
        self._channel = Channel(self._taken, self._note_end)
        await asyncio.get_running_loop().create_unix_connection(lambda: self._channel, sock=ours)
        with theirs:
            self._process = process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", MODULE, str(theirs.fileno())),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C at the terminal must only reach the server
            )
        self.pid = process.pid
        first = {
            "config": self.options.config_path,
            "flags": self.options.flags,
            "worker": asdict(self.worker),
        }
        self._channel.send(first | {"stands_in": self.restarts > 0})
        if self._stopping.is_set():
            self._channel.send({"do": "stop"})
        assert process.stdout is not None
        await self._relay(process.stdout)
        code = await process.wait()
        self._process = None
        with contextlib.suppress(TimeoutError):  # the channel may still have its last messages
            await asyncio.wait_for(self._channel_ended.wait(), LAST_WORDS_S)
        self._channel.close()
        return _told(code)

    async def _relay(self, lines: asyncio.StreamReader) -> None:
        """Write the lines in the output of the process to the log, until the output ends."""
        rest = b""
        while chunk := await lines.read(CHUNK):
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                self._relay_line(line)
            if len(rest) > CHUNK:
                self._relay_line(rest)
                rest = b""
        if rest:
            self._relay_line(rest)

    def _relay_line(self, line: bytes) -> None:
        found = FORMATTED.match(line)
        if found is not None and int(found[1] or found[2]) == self.pid:
            self._log.relay(line + b"\n")
        elif line.strip():  # part of a traceback, or from the interpreter
            self._log.error(f"{self}: {line.decode('utf-8', 'replace')}")

    # -- messages --------------------------------------------------------------------------------------------------
    def _taken(self, message: Message, body: bytes) -> None:
        if "ready" in message:
            self.server_id, self.name = message["id"], message["name"]
            self._ready_at = asyncio.get_running_loop().time()
            self._become(State.READY)
            if self._reload_due:
                self._ask({"do": "reload"}).add_done_callback(self._log_refusal)
        elif "failed" in message:
            self.failure = message["failed"]
        else:
            number = message["page"] if "page" in message else message["reloaded"]
            waiting = self._waiting.pop(number, None)
            if waiting is not None and not waiting.done():
                waiting.set_result((message, body))

    def _ask(self, request: Message) -> asyncio.Future[tuple[Message, bytes] | None]:
        """Send a request; the result is None if the process is not ready, or ends before it answers."""
        answer: asyncio.Future[tuple[Message, bytes] | None] = asyncio.get_running_loop().create_future()
        self._numbers += 1
        self._waiting[self._numbers] = answer
        if self.state is not State.READY or not self._channel.send(request | {"number": self._numbers}):
            del self._waiting[self._numbers]
            answer.set_result(None)
        return answer

    def ask_page(self, target: str) -> asyncio.Future[Page | None]:
        """Request a page.

        The result is None if the process is not ready, ends, or takes longer than `PAGE_S` seconds.
        """
        asked = self._ask({"do": "page", "target": target})
        page: asyncio.Future[Page | None] = asyncio.get_running_loop().create_future()

        def answered(_: object) -> None:
            found = asked.result() if not asked.cancelled() else None
            if not page.done():
                page.set_result(None if found is None else _page_of(*found))

        asked.add_done_callback(answered)
        timer = asyncio.get_running_loop().call_later(PAGE_S, asked.cancel)
        page.add_done_callback(lambda _: timer.cancel())
        return page

    async def reload(self) -> str:
        """Request that the process reads the configuration again; return the error message, or "" on success.

        If the process does not answer within CONFIRM_S seconds, this is logged. The call waits until the process
        answers or ends.
        """
        asked = self._ask({"do": "reload"})
        answered, _ = await asyncio.wait((asked,), timeout=CONFIRM_S)
        if not answered:
            self._log.warn(
                f"{self} (pid {self.pid}) has not confirmed the reload after {CONFIRM_S:g} s;"
                " later reloads wait until it answers or ends"
            )
        found = await asked
        return "it has ended meanwhile" if found is None else str(found[0]["error"])

    def reload_when_ready(self) -> None:
        """Make a process that is starting reread the configuration as soon as it is ready."""
        self._reload_due = self.state is State.STARTING

    def _log_refusal(self, reloaded: asyncio.Future[tuple[Message, bytes] | None]) -> None:
        found = reloaded.result()
        if found is not None and found[0]["error"]:
            self._log.error(f"Failed to reload server configuration in {self}: {found[0]['error']}")

    def _note_end(self) -> None:
        self._channel_ended.set()
        self._forget_requests()

    def _forget_requests(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            if not each.done():
                each.set_result(None)


def _page_of(message: Message, body: bytes) -> Page:
    headers = tuple((str(name), str(value)) for name, value in message["headers"])
    return Page(message["status"], headers, body)


def _told(code: int) -> str:
    """Return a description of the end of a process.

    `code` is the exit code, or the negative number of the signal that killed the process.
    """
    if code >= 0:
        return f"has ended with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    return f"was killed by signal {-code} ({name})"
