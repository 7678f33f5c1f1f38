"""Answers requests that the leader of the metadata has decided and that another server carries out.

The server that holds a stream answers a create, update or delete request as soon as it has carried the request out.
The leader of the metadata sends an order to this server. The order contains the request, so the server answers the
client directly. For a replicated stream, the leader answers and informs the other replicas; if it fails before that,
the next leader answers.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_S
from pyjs.core.sink import Request
from pyjs.jetstream.member.keeper import Key
from pyjs.jetstream.member.notes import Answered
from pyjs.jetstream.member.waiters import LOOK_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from pyjs.core.chore import Step
    from pyjs.core.sink import Turn
    from pyjs.jetstream.api.endpoint import ApiCall
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.member.keeper import Keeper
    from pyjs.jetstream.member.meta_machine import MetaMachine
    from pyjs.jetstream.member.notes import Note, Order
    from pyjs.jetstream.member.questions import Questions
    from pyjs.jetstream.member.waiters import Waiters

WAIT_NS = 8 * NS_PER_S  # maximum wait for the stream; after that, no client waits for the answer
# maximum time to wait for the other servers of a stream that cannot be opened on this server
OTHERS_NS = NS_PER_S
EARLY_MAX = 256  # maximum number of answers that become known before their orders arrive


class Orders:
    """The orders that one server has received, and the answers to them."""

    def __init__(
        self,
        node: int,
        machine: MetaMachine,
        keeper: Keeper,
        accounts: dict[str, JetStream],
        waiters: Waiters,
        turn: Turn,
        questions: Questions,
        send: Callable[[int, Note], None],
    ) -> None:
        self._node = node
        self._questions = questions
        self._send = send
        self._open: dict[Answered, Order] = {}  # orders that are neither answered nor dropped yet
        self._early: dict[Answered, None] = {}
        self._machine = machine
        self._keeper = keeper
        self.accounts = accounts
        self._waiters = waiters
        self._turn = turn

    def take(self, order: Order) -> None:
        """Accept an order: answer its request when the stream is ready, unless another server has answered it."""
        js, name = self.accounts.get(order.account), _name(order)
        if name in self._early:
            del self._early[name]
        elif js is not None:
            self._open[name] = order
            self._turn.go_on(self._steps(js, order))

    def answered(self, note: Answered) -> None:
        """Drop an order that another server has answered.

        An order that has not arrived yet is dropped when it arrives.
        """
        if self._open.pop(note, None) is not None:
            self._waiters.notify()
            return
        self._early[note] = None
        if len(self._early) > EARLY_MAX:
            del self._early[next(iter(self._early))]

    def _steps(self, js: JetStream, order: Order) -> Generator[Step, None, None]:
        name = _name(order)
        try:
            is_mine = yield from self._decide(js, order, name)
            if is_mine:
                yield from self._waiters.until_heard(js.account, order.reply)
        finally:
            is_open = self._open.get(name) is order
            if is_open:
                del self._open[name]
        if not is_mine or not is_open:
            return
        for node in self._others(order):
            self._send(node, name)
        from pyjs.jetstream.api.router import ENDPOINT_BY_WORDS, Router  # imported with the first request

        endpoint = ENDPOINT_BY_WORDS[tuple(order.words.split("."))]
        own = replace(endpoint, handle=partial(self._fields, order), unsynced=None)
        request = Request(
            _nothing, order.subject.encode(), order.reply, b"", order.payload, number=order.number
        )
        yield from Router(js.account, js.shared, js).work(request, own, (order.stream,))

    def _decide(self, js: JetStream, order: Order, name: Answered) -> Generator[Step, None, bool]:
        """Wait until it is known which server answers an order; return whether it is this server.

        A follower waits too, since the leader may fail before it answers.
        """
        deadline_ns = self._turn.now + WAIT_NS

        def place() -> bool | None:
            return self._is_mine(js, order) if self._open.get(name) is order else False

        while self._turn.now < deadline_ns:
            wait_ns = deadline_ns - self._turn.now
            if not (yield from self._waiters.until(lambda: place() is not None, wait_ns)):
                return False
            if not place():
                return self._open.get(name) is order and (yield from self._refuses(order, name))
            if self._is_applied(js, order):
                return True
            yield from self._waiters.until(
                lambda: self._is_applied(js, order), LOOK_NS
            )  # nothing notifies the waiters of this condition
        return False

    def _is_mine(self, js: JetStream, order: Order) -> bool | None:
        """Return whether this server answers an order, or None if that is not known yet.

        Only the leader of a replicated stream answers. If the stream has been deleted since the order, no replica
        answers, because the leader answered before the deletion.
        """
        key = Key(order.account, order.stream)
        if self._machine.state.index < order.index or not self._keeper.is_settled(key):
            return None
        stream, replicated = js.streams.get(order.stream), js.shared.replicated
        if order.replicas == 1 or order.words == "STREAM.DELETE" or replicated is None:
            return True
        if stream is None:
            return False
        if not replicated.is_replica(stream):
            return key in self._keeper.failures  # the only replica could not add the others to its group
        return True if replicated.leads(stream) else None

    def _is_applied(self, js: JetStream, order: Order) -> bool:
        """Return whether a replica has applied the configuration in the metadata, or has failed to do so.

        Return True for a stream without replicas.
        """
        key = Key(order.account, order.stream)
        stream, replicated = js.streams.get(order.stream), js.shared.replicated
        if replicated is None or stream is None or not replicated.is_replica(stream):
            return True
        assigned = self._machine.state.stream(*key)
        return assigned is None or stream.config == assigned.config or key in self._keeper.failures

    def _refuses(self, order: Order, name: Answered) -> Generator[Step, None, bool]:
        """Return whether this server must answer with an error.

        It must do so if it leads the metadata and has failed to open the stream, and no other server has the stream.
        """
        if Key(order.account, order.stream) not in self._keeper.failures or not self._machine.leads:
            return False
        yield from self._waiters.until(lambda: self._open.get(name) is not order, OTHERS_NS)
        nodes = self._others(order)
        reports = yield from self._questions.gather(order.account, {node: [order.stream] for node in nodes})
        return not any(order.stream in report for report in reports)

    def _others(self, order: Order) -> list[int]:
        """Return the numbers of the other servers of a replicated stream, which received the same order."""
        stream = self._machine.state.stream(order.account, order.stream)
        if stream is None or order.replicas == 1 or order.words == "STREAM.DELETE":
            return []
        return [node for node in stream.nodes if node != self._node]

    def _fields(self, order: Order, call: ApiCall) -> Generator[Step, None, dict[str, Any]]:
        """Return the fields of the answer. Raises ApiError if the stream could not be opened, changed or removed."""
        failure = self._keeper.failures.get(Key(order.account, order.stream))
        if failure is not None:
            raise failure
        if order.words == "STREAM.DELETE":
            return {"success": True}
        from pyjs.jetstream.manage.stream_info import know_lag, stream_info

        yield from know_lag(call.js, call.stream())
        info = stream_info(call.js, call.stream(), domain=order.words != "STREAM.CREATE")
        is_new = order.words == "STREAM.CREATE" and order.index > 0
        return info | ({"did_create": True} if is_new else {})


def _name(order: Order) -> Answered:
    """Return the note that an order has been answered. The note is also the key of the order."""
    return Answered(order.account, order.stream, order.number, order.index)


def _nothing(request: Request) -> None:
    """Do nothing: the request came from another server, so no session of this server has sent it."""
