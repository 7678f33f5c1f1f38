"""Answers to requests that the leader of the metadata has decided and another server finishes.

A stream that was created, changed or deleted is reported by the server that holds it, as soon as it has done so. The
leader sends an order; it names the request, so that the answer goes to the client from here.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.core.sink import Request
from pyjs.jetstream.member.keeper import Key

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from pyjs.core.chore import Step
    from pyjs.core.sink import Turn
    from pyjs.jetstream.api.endpoint import ApiCall
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.member.keeper import Keeper
    from pyjs.jetstream.member.meta_machine import MetaMachine
    from pyjs.jetstream.member.notes import Order
    from pyjs.jetstream.member.waiters import Waiters

WAIT_NS = 8 * NS_PER_S  # for the stream, after which nobody waits for the answer
INTEREST_NS = NS_PER_S  # for the news that the client waits for an answer
LOOK_NS = 10 * NS_PER_MS


class Orders:
    """The orders to one server."""

    def __init__(
        self,
        machine: MetaMachine,
        keeper: Keeper,
        accounts: dict[str, JetStream],
        waiters: Waiters,
        turn: Turn,
    ) -> None:
        self._machine = machine
        self._keeper = keeper
        self.accounts = accounts
        self._waiters = waiters
        self._turn = turn

    def take(self, order: Order) -> None:
        """Answer a request when its stream is ready."""
        js = self.accounts.get(order.account)
        if js is not None:
            self._turn.go_on(self._steps(js, order))

    def _steps(self, js: JetStream, order: Order) -> Generator[Step, None, None]:
        is_ready = partial(self._is_ready, js, order)
        for _ in range(WAIT_NS // LOOK_NS):
            if (yield from self._waiters.until(is_ready, LOOK_NS)):
                break
        if not is_ready() or not self._is_mine(js, order):
            return
        yield from self._know_client(js, order.reply)
        from pyjs.jetstream.api.router import ENDPOINT_BY_WORDS, Router  # imported with the first request

        endpoint = ENDPOINT_BY_WORDS[tuple(order.words.split("."))]
        own = replace(endpoint, handle=partial(self._fields, order), unsynced=None)
        request = Request(_nothing, order.subject.encode(), order.reply, b"", order.payload)
        yield from Router(js.account, js.shared, js).work(request, own, (order.stream,))

    def _is_ready(self, js: JetStream, order: Order) -> bool:
        """Return whether the stream is as the order says, and it is known who answers."""
        if self._machine.state.index < order.index or not self._keeper.is_settled(
            Key(order.account, order.stream)
        ):
            return False
        stream, replicated = js.streams.get(order.stream), js.shared.replicated
        if replicated is None or stream is None or not replicated.is_replica(stream):
            return True
        assigned = self._machine.state.stream(order.account, order.stream)
        is_applied = assigned is None or stream.config == assigned.config
        return replicated.leader_of(stream) != 0 and (is_applied or not replicated.leads(stream))

    def _is_mine(self, js: JetStream, order: Order) -> bool:
        """Return whether this server answers: of replicas, the one that leads.

        A replica that comes late, when the stream was answered and deleted meanwhile, is not it.
        """
        stream, replicated = js.streams.get(order.stream), js.shared.replicated
        if order.replicas == 1 or order.words == "STREAM.DELETE" or replicated is None:
            return True
        return stream is not None and replicated.leads(stream)

    def _know_client(self, js: JetStream, reply: bytes) -> Generator[Step, None, None]:
        """Wait until it is known here where the answer goes; that news comes on another connection."""
        for _ in range(INTEREST_NS // LOOK_NS):
            if not reply or js.account.has_interest(reply):
                return
            yield from self._waiters.until(lambda: js.account.has_interest(reply), LOOK_NS)

    def _fields(self, order: Order, call: ApiCall) -> dict[str, Any]:
        """Return the fields of the answer. Raises ApiError: the stream could not be opened, changed or removed."""
        failure = self._keeper.failures.get(Key(order.account, order.stream))
        if failure is not None:
            raise failure
        if order.words == "STREAM.DELETE":
            return {"success": True}
        from pyjs.jetstream.manage.stream_info import stream_info

        info = stream_info(call.js, call.stream(), domain=order.words != "STREAM.CREATE")
        is_new = order.words == "STREAM.CREATE" and order.index > 0
        return info | ({"did_create": True} if is_new else {})


def _nothing(request: Request) -> None:
    """Stand for the handler of a request that has come long ago."""
