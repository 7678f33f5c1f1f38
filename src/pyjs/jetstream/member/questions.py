"""Reports about streams and accounts, gathered from the servers that have them.

The leader of the metadata asks each server once for all streams of a page, and waits up to ANSWER_NS. A server
without an answer, or with a damaged one, is left out: its streams are `missing` in a list, and its usage is not
counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.jetstream.config.choices import FILE, MEMORY
from pyjs.jetstream.member.notes import Question, Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from typing import Any

    from pyjs.core.chore import Step
    from pyjs.core.sink import Request, Turn
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.member.notes import Note
    from pyjs.jetstream.member.waiters import Waiters

ANSWER_NS = 2 * NS_PER_S
TAKEN = "?"  # instead of a stream, before a request of which another server asks whether it is answered here
TAKEN_NS = 200 * NS_PER_MS
STEP = 16  # streams reported in one turn: half a millisecond


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
        self.taken: dict[
            tuple[bytes, bytes], None
        ] = {}  # requests that this server answers, by subject and reply
        self._online = online
        self._last = 0  # number of the last question
        self._open: dict[int, bytes | None] = {}  # by number: data of the answer, if it has arrived

    def is_taken(self, account: str, nodes: list[int], request: Request) -> Generator[Step, None, bool]:
        """Return whether one of some servers answers a request of a client."""
        names = [TAKEN, request.subject.hex(), request.reply.hex()]
        asked = {node: names for node in nodes if node in self._online}
        found = yield from self.gather(account, asked, TAKEN_NS)
        return any(each.get("taken") for each in found)

    def gather(
        self, account: str, names: Mapping[int, list[str]], wait_ns: int = ANSWER_NS
    ) -> Generator[Step, None, list[dict[str, Any]]]:
        """Request reports about streams or, without names, about the account; return the answers in time."""
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
        """Store an answer."""
        if reply.number in self._open:
            self._open[reply.number] = reply.data
            self._waiters.notify()

    def asked(self, node: int, question: Question) -> None:
        """Answer a question of another server."""
        self._turn.go_on(self._answer(node, question))

    def _answer(self, node: int, question: Question) -> Generator[Step, None, None]:
        js = self.accounts.get(question.account)
        if question.names[:1] == (TAKEN,):
            _, subject, reply = question.names
            report: dict[str, Any] = {"taken": (bytes.fromhex(subject), bytes.fromhex(reply)) in self.taken}
        elif js is None:
            report = {}
        elif question.names:
            report = yield from streams_report(js, question.names)
        else:
            report = usage_report(js)
        self._send(node, Reply(question.number, orjson.dumps(report)))


def _report_in(data: bytes) -> dict[str, Any] | None:
    """Return the report in an answer, or None if it is damaged, which counts as no answer."""
    try:
        report = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return report if isinstance(report, dict) else None


def streams_report(js: JetStream, names: tuple[str, ...]) -> Generator[Step, None, dict[str, Any]]:
    """Return the infos of the streams on this server by name, as lists show them."""
    from pyjs.jetstream.manage.stream_info import stream_info  # imported with the first stream

    infos = {}
    for number, name in enumerate(names):
        if number % STEP == STEP - 1:
            yield None
        if name in js.streams:
            infos[name] = stream_info(js, js.streams[name], listed=True)
    return infos


def usage_report(js: JetStream) -> dict[str, int]:
    """Return this server's part of the usage of an account."""
    return {
        "memory": js.usage[MEMORY].used,
        "storage": js.usage[FILE].used,
        "reserved_memory": js.usage[MEMORY].reserved,
        "reserved_storage": js.usage[FILE].reserved,
        "consumers": js.num_consumers(),
        "total": js.api_total,
        "errors": js.api_errors,
    }
