"""Reports about streams and accounts, gathered from the servers that have them.

The leader of the metadata asks each server once for all streams of a page, and waits up to ANSWER_NS. A server
without an answer, or with a damaged one, is left out: its streams are `missing` in a list, and its usage is not
counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from pyjs.base.clock import NS_PER_S
from pyjs.jetstream.config.choices import FILE, MEMORY
from pyjs.jetstream.member.notes import Question, Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from typing import Any

    from pyjs.core.chore import Step
    from pyjs.core.sink import Turn
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.member.notes import Note
    from pyjs.jetstream.member.waiters import Waiters

ANSWER_NS = 2 * NS_PER_S
STEP = 16  # streams reported in one turn: half a millisecond


class Questions:
    """The questions of one server to others, and its answers to their questions."""

    def __init__(
        self,
        accounts: dict[str, JetStream],
        waiters: Waiters,
        turn: Turn,
        send: Callable[[int, Note], None],
    ) -> None:
        self.accounts = accounts
        self._waiters = waiters
        self._turn = turn
        self._send = send
        self._last = 0  # number of the last question
        self._open: dict[int, bytes | None] = {}  # by number; the data of the answer when it is here

    def gather(
        self, account: str, names: Mapping[int, list[str]]
    ) -> Generator[Step, None, list[dict[str, Any]]]:
        """Ask servers for reports of streams or, without names, of the account; return the answers in time."""
        numbers = []
        for node, wanted in names.items():
            self._last += 1
            numbers.append(self._last)
            self._open[self._last] = None
            self._send(node, Question(self._last, account, tuple(wanted)))
        try:
            is_complete = lambda: all(self._open[number] is not None for number in numbers)  # noqa: E731
            yield from self._waiters.until(is_complete, ANSWER_NS)
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
        if js is None:
            report: dict[str, Any] = {}
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
