"""The choice of the server that answers an API request: every server receives it, and exactly one answers.

- The leader of the metadata answers requests about all streams of an account (META) and about unknown streams.
- The server that holds a stream, or leads it, answers all other requests about the stream and its consumers.
- If no leader is known, each server holds the request until there is one. After HOLD_NS without a leader, the server
  of the client refuses it, and all others drop it. A server holds up to HELD_MAX requests; it refuses or drops any
  further one at once.

Source: nats-server 2.15.1 answers 10008 about ten seconds after the leader was lost, and nothing before.
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.jetstream import errcodes
from pyjs.jetstream.member.keeper import Key

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from pyjs.core.chore import Step
    from pyjs.core.sink import Request, Turn
    from pyjs.jetstream.api.endpoint import Endpoint
    from pyjs.jetstream.api.router import Router
    from pyjs.jetstream.member.keeper import Keeper
    from pyjs.jetstream.member.meta_machine import MetaMachine
    from pyjs.jetstream.member.meta_requests import MetaRequests
    from pyjs.jetstream.member.waiters import Waiters

META = frozenset(
    (
        "INFO",
        "STREAM.CREATE",
        "STREAM.UPDATE",
        "STREAM.DELETE",
        "STREAM.NAMES",
        "STREAM.LIST",
        "STREAM.RESTORE",
        "STREAM.PEER.REMOVE",
    )
)
HOLD_NS = 4 * NS_PER_S
HELD_MAX = 1000  # requests that one server holds; more are not held
SHORT_NS = 100 * NS_PER_MS  # for which a request is held at least


class Place(Enum):
    """The server that answers a request."""

    HERE = "here"
    ELSEWHERE = "elsewhere"
    UNKNOWN = "unknown"  # there is no leader, or this server does not know its part yet


class Desk:
    """Decides which requests this server answers."""

    def __init__(
        self,
        node: int,
        machine: MetaMachine,
        keeper: Keeper,
        requests: MetaRequests,
        waiters: Waiters,
        turn: Turn,
    ) -> None:
        self._node = node
        self._turn = turn
        self._machine = machine
        self._keeper = keeper
        self._requests = requests
        self._waiters = waiters
        self._held = 0  # requests

    def handle(
        self, router: Router, request: Request, endpoint: Endpoint, args: tuple[str, ...]
    ) -> Iterator[Step] | None:
        """Return the steps that answer a request, or None if another server answers it."""
        place = self._place(router, endpoint, args)
        if place is Place.ELSEWHERE:
            return None
        if place is Place.HERE:
            return router.work(request, self._requests.own(endpoint), args)
        return self._later(router, request, endpoint, args)

    def _later(
        self, router: Router, request: Request, endpoint: Endpoint, args: tuple[str, ...]
    ) -> Iterator[Step]:
        """Answer a request once the answering server is known, if it is this one."""
        place = partial(self._place, router, endpoint, args)
        if (yield from self._hold(lambda: place() is not Place.UNKNOWN)):
            if place() is Place.HERE:
                yield from router.work(request, self._requests.own(endpoint), args)
        elif request.session is not None and not self._machine.leader:
            router.refuse(request, endpoint, errcodes.CLUSTER_NOT_AVAILABLE.error())

    def _hold(self, is_known: Callable[[], bool]) -> Generator[Step, None, bool]:
        """Wait until the answering server is known; return False if it stays unknown."""
        if self._held >= HELD_MAX:
            return False
        wait_ns = max(self._machine.leaderless_ns() + HOLD_NS - self._turn.now, SHORT_NS)
        self._held += 1
        try:
            return (yield from self._waiters.until(is_known, wait_ns))
        finally:
            self._held -= 1

    def _place(self, router: Router, endpoint: Endpoint, args: tuple[str, ...]) -> Place:
        if router.js is None or endpoint.words in META or not args:
            return self._of_leader()
        if not self._keeper.is_caught_up:
            return Place.UNKNOWN
        stream = self._machine.state.stream(router.account.name, args[0])
        if stream is None:
            return self._of_leader()
        if self._node not in stream.nodes:
            return Place.ELSEWHERE
        if not self._keeper.is_settled(Key(stream.account, stream.name)):
            return Place.UNKNOWN
        opened, replicated = router.js.streams.get(args[0]), router.js.shared.replicated
        is_replica = opened is not None and replicated is not None and replicated.is_replica(opened)
        if stream.config.num_replicas == 1 and not is_replica:
            return Place.HERE
        if opened is None or replicated is None:
            return Place.ELSEWHERE
        if replicated.leads(opened):
            return Place.HERE
        # A leader that is no replica any more hands the lead over.
        return Place.ELSEWHERE if replicated.leader_of(opened) in stream.nodes else Place.UNKNOWN

    def _of_leader(self) -> Place:
        if self._machine.leads:
            return Place.HERE
        return Place.ELSEWHERE if self._machine.leader else Place.UNKNOWN
