"""Reports about streams and accounts, gathered from the servers that have them.

The leader of the metadata sends each server one question about all streams of a page, and waits up to ANSWER_NS. A
server that does not answer, or whose answer is damaged, is left out: its streams are in the field `missing` of a
list, and its usage is not counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.jetstream.config.choices import FILE, MEMORY
from pyjs.jetstream.member.notes import Question, Reply
from pyjs.jetstream.why.leaderless import view_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping
    from typing import Any

    from pyjs.core.chore import Step
    from pyjs.core.sink import Request, Turn
    from pyjs.jetstream.cluster.assignments import Assignment
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.member.notes import Note
    from pyjs.jetstream.member.waiters import Waiters

ANSWER_NS = 2 * NS_PER_S
# in place of a stream's name: asks whether the server has taken the client request whose number follows
TAKEN = "?"
TAKEN_NS = 200 * NS_PER_MS
# in place of a stream's name: asks for the servers in the group of the stream that follows
MEMBERS = "#"
# in place of a stream's name: asks for the server's view of the stream that follows
VIEW = "!"
VIEW_NS = 500 * NS_PER_MS
STEP = 16  # streams reported in one turn, in about half a millisecond
TAKEN_MAX = 10_000  # maximum number of taken requests that a server remembers


class Taken:
    """The newest client requests that a server has taken, by their numbers (core.sink.Request)."""

    def __init__(self) -> None:
        self._numbers: dict[int, None] = {}  # the oldest first

    def add(self, request: Request) -> None:
        """Add a request. If there are too many, forget the oldest."""
        self._numbers[request.number] = None
        if len(self._numbers) > TAKEN_MAX:
            del self._numbers[next(iter(self._numbers))]

    def remove(self, request: Request) -> None:
        """Remove a request, because another server takes it over."""
        self._numbers.pop(request.number, None)

    def has(self, number: int) -> bool:
        """Return whether the request with a number was taken."""
        return number in self._numbers


class Questions:
    """The questions of one server to others, and its answers to their questions."""

    def __init__(
        self,
        accounts: dict[str, JetStream],
        waiters: Waiters,
        turn: Turn,
        send: Callable[[int, Note], None],
        online: set[int],
    ) -> None:
        self.accounts = accounts
        self._waiters = waiters
        self._turn = turn
        self._send = send
        self.taken = Taken()
        self._online = online
        self._last = 0  # number of the last question
        # number of a question -> data of its answer, None before the answer arrives
        self._open: dict[int, bytes | None] = {}

    def is_taken(self, account: str, nodes: list[int], request: Request) -> Generator[Step, None, bool]:
        """Return whether a server in `nodes` has taken a client's request and says so within TAKEN_NS."""
        names = [TAKEN, str(request.number)]
        asked = {node: names for node in nodes if node in self._online}
        found = yield from self.gather(account, asked, TAKEN_NS)
        return any(each.get("taken") for each in found)

    def members(self, account: str, name: str, node: int) -> Generator[Step, None, list[int]]:
        """Return the numbers of the servers in a stream's group, as reported by the server `node`.

        The list is empty if that server does not answer.
        """
        found = yield from self.gather(account, {node: [MEMBERS, name]} if node in self._online else {})
        return [each for report in found for each in report.get("members", ())]

    def views(self, stream: Assignment) -> Generator[Step, None, list[dict[str, Any]]]:
        """Return the views of a stream from this server and from the stream's other servers that answer in time.

        The views have the format of `why/leaderless.py`.
        """
        js, name = self.accounts.get(stream.account), stream.name
        asked = {node: [VIEW, name] for node in stream.nodes if node in self._online}
        found = yield from self.gather(stream.account, asked, VIEW_NS)
        own = {} if js is None else view_of(js, name)
        # An older server answers with infos by name; even a stream named "node" is then an object, not a number.
        return [each for each in (own, *found) if isinstance(each.get("node"), int)]

    def are_away(self, nodes: Iterable[int]) -> bool:
        """Return whether all servers in `nodes` are offline; this server must not be among them."""
        return self._online.isdisjoint(nodes)

    def gather(
        self, account: str, names: Mapping[int, list[str]], wait_ns: int = ANSWER_NS
    ) -> Generator[Step, None, list[dict[str, Any]]]:
        """Send a question to each server in `names`, and return the reports that arrive within `wait_ns`.

        `names` has for each server the names of streams; an empty list requests the usage of the account. Damaged
        reports are left out.
        """
        numbers = []
        for node, wanted in names.items():
            self._last += 1
            numbers.append(self._last)
            self._open[self._last] = None
            self._send(node, Question(self._last, account, tuple(wanted)))
        try:
            is_complete = lambda: all(self._open[number] is not None for number in numbers)  # noqa: E731
            yield from self._waiters.until(is_complete, wait_ns)
            answers = [data for number in numbers if (data := self._open[number]) is not None]
            return [report for data in answers if (report := _report_in(data)) is not None]
        finally:
            for number in numbers:
                del self._open[number]

    def came(self, reply: Reply) -> None:
        """Store an answer of another server if it is still awaited."""
        if reply.number in self._open:
            self._open[reply.number] = reply.data
            self._waiters.notify()

    def asked(self, node: int, question: Question) -> None:
        """Answer a question of another server."""
        self._turn.go_on(self._answer(node, question))

    def _answer(self, node: int, question: Question) -> Generator[Step, None, None]:
        js = self.accounts.get(question.account)
        if question.names[:1] == (TAKEN,):
            report: dict[str, Any] = {"taken": self.taken.has(int(question.names[1]))}
        elif js is None:
            report = {}
        elif question.names[:1] == (MEMBERS,):
            report = {"members": members_of(js, question.names[1])}
        elif question.names[:1] == (VIEW,):
            report = view_of(js, question.names[1])
        elif question.names:
            report = yield from streams_report(js, question.names)
        else:
            report = usage_report(js)
        self._send(node, Reply(question.number, orjson.dumps(report)))


def _report_in(data: bytes) -> dict[str, Any] | None:
    """Return the report in the JSON text of an answer, or None if the text is damaged."""
    try:
        report = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return report if isinstance(report, dict) else None


def members_of(js: JetStream, name: str) -> list[int]:
    """Return the numbers of the servers in a stream's group, or [] if this server has no replica of the stream."""
    stream, replicated = js.streams.get(name), js.shared.replicated
    machine = None if stream is None or replicated is None else replicated.machine_of(stream)
    if machine is None or replicated is None:
        return []
    return [each.node for each in replicated.group_status(machine).peers]


def streams_report(js: JetStream, names: tuple[str, ...]) -> Generator[Step, None, dict[str, Any]]:
    """Return the infos of streams by name, in the form of STREAM.LIST; streams not on this server are left out."""
    from pyjs.jetstream.manage.stream_info import know_lag, stream_info  # imported with the first stream

    infos = {}
    for number, name in enumerate(names):
        if number % STEP == STEP - 1:
            yield None
        stream = js.streams.get(name)
        if stream is None:
            continue
        yield from know_lag(js, stream)
        if not stream.closed:
            infos[name] = stream_info(js, stream, listed=True)
    return infos


def usage_report(js: JetStream) -> dict[str, int]:
    """Return the usage of an account on this server: bytes, and numbers of consumers and API requests."""
    return {
        "memory": js.usage[MEMORY].used,
        "storage": js.usage[FILE].used,
        "reserved_memory": js.usage[MEMORY].reserved,
        "reserved_storage": js.usage[FILE].reserved,
        "consumers": js.num_consumers(),
        "total": js.api_total,
        "errors": js.api_errors,
    }
