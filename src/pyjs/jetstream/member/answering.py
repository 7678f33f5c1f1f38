"""The choice of the server that answers an API request: every server receives it, and exactly one answers.

- The leader of the metadata answers requests about all streams of an account (META) and about unknown streams.
- The server that holds a stream, or leads it, answers all other requests about the stream and its consumers.
- If no leader is known, each server holds the request until there is one. After HOLD_NS without a leader, the server
  of the client refuses it, and all others drop it. A server holds up to HELD_MAX requests; it refuses or drops any
  further one at once.
- If the leader of a stream changes before it has answered, it passes the request on to the new one; not if the change
  that the request wants may have been made, and must not be made twice.

Source: nats-server 2.15.1 answers 10008 about ten seconds after the leader was lost, and nothing before.
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.core.sink import Request
from pyjs.jetstream import errcodes
from pyjs.jetstream.errcodes import LeaderChanged
from pyjs.jetstream.member.keeper import Key
from pyjs.jetstream.member.notes import Order

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from pyjs.core.chore import Step
    from pyjs.core.sink import Turn
    from pyjs.jetstream.api.endpoint import Endpoint
    from pyjs.jetstream.api.router import Router
    from pyjs.jetstream.member.keeper import Keeper
    from pyjs.jetstream.member.meta_machine import MetaMachine
    from pyjs.jetstream.member.meta_requests import MetaRequests
    from pyjs.jetstream.member.notes import Note
    from pyjs.jetstream.member.questions import Questions
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
# Requests with the same result when they are carried out twice.
REPEATABLE = frozenset(
    ("CONSUMER.CREATE", "CONSUMER.DURABLE.CREATE", "CONSUMER.DELETE", "CONSUMER.PAUSE", "CONSUMER.UNPIN")
)
HOLD_NS = 4 * NS_PER_S
TAKEN_MAX = 1000  # requests that a server remembers
HELD_MAX = 1000  # requests that one server holds; more are not held
PAUSE_NS = 50 * NS_PER_MS  # before a request is passed on
HOPS_MAX = 20  # servers that a request is passed on to
SHORT_NS = 100 * NS_PER_MS  # for which a request is held at least


class Place(Enum):
    """The server that answers a request."""

    HERE = "here"
    ELSEWHERE = "elsewhere"
    UNKNOWN = "unknown"  # no leader is known, or this server does not know its role yet


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
        tell: Callable[[int, Note], None],
        questions: Questions,
    ) -> None:
        self._node = node
        self._tell = tell
        self._questions = questions
        self._turn = turn
        self._machine = machine
        self._keeper = keeper
        self._requests = requests
        self._waiters = waiters
        self._held = 0  # requests
        # By subject and reply, the oldest first: requests of clients that this server answers, and those that other
        # servers have passed on. A new leader may get a request both ways.
        self.taken = questions.taken
        self._passed: dict[tuple[bytes, bytes], None] = {}
        self._passing: dict[
            Request, tuple[int, int]
        ] = {}  # requests to pass on -> deadline, and number of times passed on

    def handle(
        self, router: Router, request: Request, endpoint: Endpoint, args: tuple[str, ...]
    ) -> Iterator[Step] | None:
        """Return the steps that answer a request, or None if another server answers it."""
        place = self._place(router, endpoint, args)
        if place is Place.ELSEWHERE:
            return None
        if place is Place.HERE:
            return self._work(router, request, endpoint, args)
        return self._later(router, request, endpoint, args)

    def _work(
        self, router: Router, request: Request, endpoint: Endpoint, args: tuple[str, ...]
    ) -> Iterator[Step] | None:
        """Return the steps that answer a request, or None if it has come from another server, too."""
        key = request.subject, request.reply
        if key in self._passed:
            del self._passed[key]
            return None
        self._remember(self.taken, request)
        return router.work(request, self._requests.own(endpoint), args)

    def _remember(self, requests: dict[tuple[bytes, bytes], None], request: Request) -> None:
        if request.reply:
            requests[request.subject, request.reply] = None
            if len(requests) > TAKEN_MAX:
                del requests[next(iter(requests))]

    def _later(
        self, router: Router, request: Request, endpoint: Endpoint, args: tuple[str, ...]
    ) -> Iterator[Step]:
        """Answer a request once the answering server is known, if it is this one."""
        place = partial(self._place, router, endpoint, args)
        if (yield from self._hold(lambda: place() is not Place.UNKNOWN)):
            if place() is Place.HERE and not (yield from self._is_taken(router, request, endpoint, args)):
                yield from self._work(router, request, endpoint, args) or ()
        elif request.session is not None and not self._machine.leader:
            router.refuse(request, endpoint, errcodes.CLUSTER_NOT_AVAILABLE.error())

    def pass_on(
        self,
        router: Router,
        request: Request,
        endpoint: Endpoint,
        args: tuple[str, ...],
        error: LeaderChanged,
    ) -> Generator[Step, None, bool]:
        """Make the leader of a stream answer; return False if no leader appears in time, or it must not answer."""
        if router.js is None or (endpoint.changes and error.is_unknown and endpoint.words not in REPEATABLE):
            return False
        deadline_ns, hops = self._passing.get(request, (self._turn.now + HOLD_NS, 0))
        if self._turn.now > deadline_ns or hops > HOPS_MAX:
            return False
        self._passing[request] = deadline_ns, hops
        try:
            return (yield from self._pass_on(router, request, endpoint, args))
        finally:
            self._passing.pop(request, None)

    def _pass_on(
        self, router: Router, request: Request, endpoint: Endpoint, args: tuple[str, ...]
    ) -> Generator[Step, None, bool]:
        place = partial(self._place, router, endpoint, args)
        yield from self._waiters.until(
            lambda: False, PAUSE_NS
        )  # the consumers of a leader may not be open yet
        if not (yield from self._hold(lambda: place() is not Place.UNKNOWN)):
            return False
        if place() is not Place.HERE:
            return self._send_on(router, request, endpoint, args[0])
        yield from router.work(request, self._requests.own(endpoint), args)
        return True

    def _send_on(self, router: Router, request: Request, endpoint: Endpoint, name: str) -> bool:
        """Send a request to the server that leads its stream, or else to another server of the stream, if any."""
        assert router.js is not None
        stream = self._machine.state.stream(router.account.name, name)
        opened, replicated = router.js.streams.get(name), router.js.shared.replicated
        leader = 0 if opened is None or replicated is None else replicated.leader_of(opened)
        others = [] if stream is None else [node for node in stream.nodes if node != self._node]
        if stream is None or not (leader or others):
            return False
        for known in (self.taken, self._passed):
            known.pop((request.subject, request.reply), None)  # it may come back
        hops, subject = self._passing[request][1] + 1, request.subject.decode("utf-8", "replace")
        place = stream.account, endpoint.words, stream.name, stream.group, hops, stream.config.num_replicas
        self._tell(leader or others[0], Order(*place, subject, request.reply, request.payload))
        return True

    def passed(self, router: Router, order: Order) -> Generator[Step, None, None]:
        """Answer a request that another server has passed on, unless this server got it from the client too."""
        tokens, words = order.subject.split("."), tuple(order.words.split("."))
        from pyjs.jetstream.api.router import ENDPOINT_BY_WORDS  # imported with the first request

        endpoint, args = ENDPOINT_BY_WORDS[words], tuple(tokens[tokens.index("API") + 1 + len(words) :])
        request = Request(_nothing, order.subject.encode(), order.reply, b"", order.payload)
        if (request.subject, request.reply) in self.taken:
            return
        self._remember(self._passed, request)
        if self._place(router, endpoint, args) is Place.HERE:
            yield from router.work(request, self._requests.own(endpoint), args)
            return
        error = LeaderChanged()
        self._passing[request] = self._turn.now + HOLD_NS, order.index
        if not (yield from self.pass_on(router, request, endpoint, args, error)):
            router.refuse(request, endpoint, error)

    def _is_taken(
        self, router: Router, request: Request, endpoint: Endpoint, args: tuple[str, ...]
    ) -> Generator[Step, None, bool]:
        """Return whether another server, as the former leader, has answered a request or will pass it on."""
        stream = self._machine.state.stream(router.account.name, args[0]) if args else None
        if stream is None or endpoint.words in META or not request.reply:
            return False
        others = [node for node in stream.nodes if node != self._node]
        return (yield from self._questions.is_taken(stream.account, others, request))

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
        # A leader that is no longer a replica transfers its leadership.
        return Place.ELSEWHERE if replicated.leader_of(opened) in stream.nodes else Place.UNKNOWN

    def _of_leader(self) -> Place:
        if self._machine.leads:
            return Place.HERE
        return Place.ELSEWHERE if self._machine.leader else Place.UNKNOWN


def _nothing(request: Request) -> None:
    """Do nothing; the request came from another server and has no sender here."""
