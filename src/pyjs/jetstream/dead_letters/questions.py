"""Requests that the server sends to streams and to the API; a chore waits for the answers of several of them.

Streams may be on other servers or workers, so a request is published in the account, like a request of a client. An
answer that does not come in time counts as missing; if it comes later, it is ignored.

This module knows nothing of letters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from pyjs.base.clock import NS_PER_S
from pyjs.base.errors import NONSENSE
from pyjs.base.nuid import nuid

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType
    from typing import Any

    from pyjs.base.timers import Timer
    from pyjs.core.chore import Chore, Step
    from pyjs.core.sink import Request
    from pyjs.jetstream.manage.engine import JetStream

ANSWER_NS = 5 * NS_PER_S


class Wait:
    """A wait of one chore. It ends when `end` is called, or after ANSWER_NS."""

    def __init__(self, js: JetStream) -> None:
        self._turn = js.account.turn
        self._timer: Timer = js.shared.timers.at(js.shared.clock.now_ns() + ANSWER_NS, self._expire)
        self._chore: Chore | None = None
        self.ended = False
        self.expired = False

    def park(self, chore: Chore) -> None:
        """Suspend `chore` until the wait ends."""
        self._chore = chore
        if self.ended:
            self._turn.chores.append(chore)

    def end(self) -> None:
        """End the wait, and let the suspended chore continue."""
        if self.ended:
            return
        self.ended = True
        self._timer.cancel()
        if self._chore is not None:
            self._turn.chores.append(self._chore)

    def _expire(self) -> None:
        self.expired = True
        self.end()


class Questions:
    """A context manager that sends numbered requests and collects their answers.

    On exit, it ends the subscription to the answers.
    """

    def __init__(self, js: JetStream) -> None:
        self._js = js
        self._inbox = f"$JSC.R.{nuid(js.shared.rng)}.".encode()
        self._open: set[int] = set()  # numbers without an answer
        self._wait: Wait | None = None
        self.answers: dict[int, dict[str, Any]] = {}  # by number; an answer that is not an object is {}

    def __enter__(self) -> Questions:
        self._subscription = self._js.account.subscribe_handler(self._inbox + b"*", self._on_answer)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._js.account.unsubscribe(self._subscription)

    def ask(self, number: int, subject: bytes, payload: bytes, headers: bytes = b"") -> None:
        """Publish a request; `number` must differ from the numbers of all requests without an answer.

        An earlier answer with this number is dropped.
        """
        self.answers.pop(number, None)
        self._open.add(number)
        self._js.account.send(subject, payload, headers, self._inbox + b"%d" % number)

    def wait(self) -> Generator[Step, None, None]:
        """Wait until each request has an answer, but at most ANSWER_NS.

        Answers that arrive after the wait are ignored.
        """
        if self._open:
            self._wait = Wait(self._js)
            yield self._wait.park
            self._wait = None
            self._open.clear()

    def _on_answer(self, request: Request) -> None:
        try:
            number = int(request.subject[len(self._inbox) :])
            if number not in self._open:
                return
            found = orjson.loads(request.payload) if request.payload else {}
        except NONSENSE:
            found = {}
        self.answers[number] = found if isinstance(found, dict) else {}
        self._open.discard(number)
        if not self._open and self._wait is not None:
            self._wait.end()
