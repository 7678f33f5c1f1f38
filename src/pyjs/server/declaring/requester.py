"""Requests of the server to its own JetStream API, with the same checks and answers as those of clients.

In a cluster, the server that is responsible answers. The requests are handled in the turns of the node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from pyjs.base.nuid import nuid

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.core.account import Account
    from pyjs.core.chore import Chore, Step
    from pyjs.core.sink import Request
    from pyjs.declared.asking import Answer, Ask, Exchange
    from pyjs.node import Node

WAIT_NS = 10_000_000_000  # maximum time for the answers to requests that were sent together

Result = TypeVar("Result")


class Requester:
    """A client of the server's own JetStream API in one account, which runs one exchange at a time."""

    def __init__(self, node: Node, account: Account) -> None:
        self._node = node
        self._account = account
        self._inbox = f"$JSC.R.{nuid(node.rng)}"
        self._sent = 0  # number of all requests
        self._waiting: dict[int, int] = {}  # requests without an answer: number -> position in `_answers`
        self._answers: list[Answer] = []
        self._parked: Chore | None = None
        self._is_late = False  # the time is over

    def run(self, exchange: Exchange[Result]) -> Generator[Step, None, Result]:
        """Carry out an exchange in the steps of a chore; return its result, or raise its exception."""
        inbox = self._account.subscribe_handler(f"{self._inbox}.*".encode(), self._on_answer)
        try:
            asks = next(exchange)
            while True:
                answers = yield from self._ask(asks)
                asks = exchange.send(answers)
        except StopIteration as end:
            result: Result = end.value
            return result
        finally:
            self._account.unsubscribe(inbox)

    def _ask(self, asks: list[Ask]) -> Generator[Step, None, list[Answer]]:
        """Send the requests and wait up to `WAIT_NS` for their answers; a missing answer is None.

        Without requests, yield to other work and return [].
        """
        if not asks:
            yield None
            return []
        self._is_late = False
        self._answers = [None] * len(asks)
        node = self._node
        timer = node.timers.at(node.clock.now_ns() + WAIT_NS, self._late)
        for at, ask in enumerate(asks):
            self._sent += 1
            self._waiting[self._sent] = at
            reply = f"{self._inbox}.{self._sent}".encode()
            self._account.send(f"$JS.API.{ask.words}".encode(), ask.payload, b"", reply)
        while self._waiting and not self._is_late:
            yield self._park
        timer.cancel()
        self._waiting.clear()
        return self._answers

    def _park(self, chore: Chore) -> None:
        self._parked = chore

    def _on_answer(self, request: Request) -> None:
        number = request.subject.rpartition(b".")[2]
        at = self._waiting.pop(int(number), None) if number.isdigit() and len(number) < 20 else None
        if at is None:
            return  # it came too late, or a client sent it
        self._answers[at] = _decoded(request.payload)
        if not self._waiting:
            self._go_on()

    def _late(self) -> None:
        self._is_late = True
        self._go_on()

    def _go_on(self) -> None:
        chore, self._parked = self._parked, None
        if chore is not None:
            self._node.turn_state.chores.append(chore)


def _decoded(payload: bytes) -> dict[str, Any] | None:
    """Return the JSON object in an answer, or None if the payload is not a JSON object."""
    try:
        answer = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return None
    return answer if isinstance(answer, dict) else None
