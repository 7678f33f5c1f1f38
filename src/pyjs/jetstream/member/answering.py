"""Chooses the server that answers an API request: every server receives the request, and exactly one answers it.

- The leader of the metadata answers requests about all streams of an account (META) and about unknown streams.
- The server that holds a stream, or leads it, answers all other requests about the stream and its consumers.
- If no leader is known, each server holds the request until there is one. After HOLD_NS without a leader, or after
  FIRST_NS if there was none since the start, the server of the client refuses it, and all others drop it. A server
  holds up to HELD_MAX requests with HELD_SIZE bytes in total; it refuses or drops any further one at once.
- The server of the client gives each request a number, which is the same at all servers. The number tells a second
  copy of a request, which a server drops, from an equal request that the client has sent later.
- If the answering server does not get this server's messages yet, this server forwards the request to it.
- If all servers of a stream are away, the leader of the metadata refuses requests about the stream after OFFLINE_NS.
  If one of these servers is back before that, it gets the request. If a stream needs a newer server, one of the
  servers of the stream refuses the requests about it.
- If the leader of a stream loses its leadership before it has answered, it passes the request on to the new leader,
  unless the requested change may have been made already and must not be made twice.
- A request may arrive after the leader has died and before the others notice. So for a moment, each server remembers
  the requests that it has left to a leader. If that leader is silent, the next leader answers the requests that
  arrived since the last sign of life. Requests that must not be carried out twice are refused by the server of the
  client.
- A request to an endpoint with `leaderless` is answered even without a leader. The server of the client answers it
  from the views of the servers of the stream, after it has checked for LEADER_NS whether a leader has taken the
  request.

Long because the parts that hold, forward and pass on a request decide together which single server answers it.

Source: nats-server 2.15.1 answers 10008 about ten seconds after the leader was lost, and nothing before.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.core.sink import Request
from pyjs.jetstream import errcodes
from pyjs.jetstream.admission import size_of
from pyjs.jetstream.errcodes import LeaderChanged
from pyjs.jetstream.member.keeper import Key
from pyjs.jetstream.member.notes import Forwarded, Order
from pyjs.jetstream.member.waiters import OFFLINE_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import Any

    from pyjs.core.chore import Step
    from pyjs.core.sink import Turn
    from pyjs.jetstream.api.endpoint import Endpoint
    from pyjs.jetstream.api.router import Router
    from pyjs.jetstream.cluster.assignments import Assignment
    from pyjs.jetstream.errcodes import ApiError
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
        "STREAM.CANCEL_MOVE",
    )
)
# Requests with the same result when they are carried out twice.
REPEATABLE = frozenset(
    ("CONSUMER.CREATE", "CONSUMER.DURABLE.CREATE", "CONSUMER.DELETE", "CONSUMER.PAUSE", "CONSUMER.UNPIN")
)
# Requests that the next leader answers although the lost one may have carried them out: repeating them does no harm.
AGAIN = frozenset(("INFO", "STREAM.CREATE", "CONSUMER.CREATE", "CONSUMER.DURABLE.CREATE"))
HOLD_NS = 4 * NS_PER_S
FIRST_NS = 10 * NS_PER_S  # as on nats-server, since the other servers may be about to start
HELD_MAX = 1000  # maximum number of requests that one server holds
HELD_SIZE = 32 << 20  # maximum bytes of held requests
TOO_MANY = "too many requests wait for a leader"
LEFT_NS = NS_PER_S  # time to remember a request left to a leader; a silent leader is noticed before that
LEFT_MAX = 1000  # maximum number of these requests
LEFT_SIZE = 8 << 20  # maximum bytes of these requests
BEAT_NS = 150 * NS_PER_MS  # maximum time between two signs of life
PAUSE_NS = 50 * NS_PER_MS  # pause before a request is passed on
HOPS_MAX = 20  # maximum number of times that a request is passed on
LEADER_NS = NS_PER_S  # time to wait for a leader before a request is answered without one
EXPLAINED_MAX = 64  # maximum number of requests that one server answers without a leader at the same time
SHORT_NS = 100 * NS_PER_MS  # minimum time for which a request is held


class Place(Enum):
    """The place where a request is answered, as far as this server can determine it."""

    HERE = "here"
    ELSEWHERE = "elsewhere"
    UNKNOWN = "unknown"  # no leader is known, or this server does not know its role yet


@dataclass(frozen=True, slots=True)
class Left:
    """A request that this server has left to another server to answer."""

    at_ns: int
    node: int  # number of the server that should answer
    router: Router
    request: Request
    endpoint: Endpoint
    args: tuple[str, ...]

    @property
    def size(self) -> int:
        """The size of the request, in bytes."""
        return size_of(self.request)


class Desk:
    """The dispatcher of one server's API requests: it answers, holds, forwards or ignores each one."""

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
        reached: Callable[[], set[int]],
    ) -> None:
        """Create the dispatcher. `reached` returns the servers that get the messages of this server's clients."""
        self._node = node
        self._tell = tell
        self._reached = reached
        self._questions = questions
        self._turn = turn
        self._machine = machine
        self._keeper = keeper
        self._requests = requests
        self._waiters = waiters
        self._held = 0  # number of held requests
        self._held_size = 0  # their bytes
        self._explained = 0  # number of requests that are being answered without a leader
        # Requests that this server answers, from clients or passed on: a new leader may get a request both ways.
        self._taken = questions.taken
        self._left: deque[Left] = deque()  # the oldest first
        self._left_size = 0
        self._passing: dict[
            Request, tuple[int, int]
        ] = {}  # requests to pass on -> deadline, and number of times passed on

    def handle(
        self, router: Router, request: Request, endpoint: Endpoint, args: tuple[str, ...]
    ) -> Iterator[Step] | None:
        """Return the steps that answer a request, or None if this server has nothing more to do.

        If it is not known yet which server answers, the steps wait until it is known.
        """
        place = self._place(router, endpoint, args)
        if endpoint.leaderless is not None and not self._leads_here(router, endpoint, args):
            return self._look(router, request, endpoint, args, place)
        if place is Place.HERE:
            return self._work(router, request, endpoint, args)
        if place is Place.UNKNOWN:
            return self._later(router, request, endpoint, args)
        self._leave(router, request, endpoint, args)
        if _is_of_client(request):
            self._forward(router, request, self._lacking(router, endpoint, args) - self._reached())
        return None

    def refuses(self, router: Router, request: Request, endpoint: Endpoint, args: tuple[str, ...]) -> bool:
        """Return whether this server refuses a request for which it has no room, so that only one server answers."""
        if self._taken.has(request.number):
            return False
        place = self._place(router, endpoint, args)
        return place is Place.HERE or (place is Place.UNKNOWN and _is_of_client(request))

    # -- servers that come -------------------------------------------------------------------------------------

    def _lacking(self, router: Router, endpoint: Endpoint, args: tuple[str, ...]) -> set[int]:
        """Return the numbers of the other servers that may have to answer a request."""
        nodes = {self._machine.leader}
        stream = self._machine.state.stream(router.account.name, args[0]) if args else None
        if stream is not None and endpoint.words not in META:
            nodes.update(stream.nodes)
        return nodes - {0, self._node}

    def _forward(self, router: Router, request: Request, nodes: set[int]) -> None:
        """Send a request to the servers `nodes`, which have not received it as a message."""
        subject = request.subject.decode("utf-8", "replace")
        for node in nodes:
            parts = subject, request.reply, request.headers or b"", request.payload, request.number
            self._tell(node, Forwarded(router.account.name, *parts))

    def _forward_steps(
        self, router: Router, request: Request, endpoint: Endpoint, args: tuple[str, ...], reached: set[int]
    ) -> Generator[Step, None, None]:
        """Send a request to the servers that may have to answer it, except those in `reached`.

        Each of these servers gets the request as soon as it is online. Servers that do not come online within
        OFFLINE_NS do not get the request.
        """
        is_ready = lambda: self._machine.leader and self._keeper.is_caught_up  # noqa: E731
        yield from self._waiters.until(is_ready, FIRST_NS)
        left, deadline_ns = self._lacking(router, endpoint, args) - reached, self._turn.now + OFFLINE_NS
        while left and self._turn.now < deadline_ns:
            there = {node for node in left if not self._questions.are_away((node,))}
            self._forward(router, request, there)
            left -= there
            yield from self._waiters.until(
                lambda left=left: not left or not self._questions.are_away(left),  # type: ignore[misc]
                deadline_ns - self._turn.now,
            )

    def forwarded(self, router: Router, note: Forwarded) -> Generator[Step, None, None]:
        """Handle a request that the server of its client has forwarded, unless this server has taken it already."""
        tokens = tuple(note.subject.split("."))
        found = router.find(tokens[tokens.index("API") + 1 :]) if "API" in tokens else None
        if found is None:
            return
        message = note.subject.encode(), note.reply, note.headers, note.payload
        request = Request(_nothing, *message, is_routed=True, number=note.number)
        steps = self._forwarded(router, request, *found)
        refuse = partial(router.turn_away, request, *found)
        yield from router.admission.counted(router.account, request, steps, refuse)

    def _forwarded(
        self, router: Router, request: Request, endpoint: Endpoint, args: tuple[str, ...]
    ) -> Generator[Step, None, None]:
        if self._taken.has(request.number):
            return
        yield from self._waiters.until_heard(router.account, request.reply)
        is_here = self._place(router, endpoint, args) is Place.HERE
        if not (is_here and (yield from self._is_taken(router, request, endpoint, args))):
            yield from self.handle(router, request, endpoint, args) or ()

    # -- leaders that are lost ---------------------------------------------------------------------------------

    def _leave(self, router: Router, request: Request, endpoint: Endpoint, args: tuple[str, ...]) -> None:
        """Remember a request that is left to a known leader and has a reply subject.

        The oldest requests are forgotten after LEFT_NS, or when there are too many.
        """
        node, left = self._leader_for(router, endpoint, args), self._left
        if node and request.reply:
            left.append(Left(self._turn.now, node, router, request, endpoint, args))
            self._left_size += left[-1].size
        oldest_ns = self._turn.now - LEFT_NS
        while left and (left[0].at_ns < oldest_ns or len(left) > LEFT_MAX or self._left_size > LEFT_SIZE):
            self._left_size -= left.popleft().size

    def _leader_for(self, router: Router, endpoint: Endpoint, args: tuple[str, ...]) -> int:
        """Return the number of the leader that should answer a request, or 0 if no leader is known."""
        stream = None
        if router.js is not None and args and endpoint.words not in META:
            stream = self._machine.state.stream(router.account.name, args[0])
        if stream is None or router.js is None:
            return self._machine.leader
        opened, replicated = router.js.streams.get(args[0]), router.js.shared.replicated
        return 0 if opened is None or replicated is None else replicated.leader_of(opened)

    def lost(self, node: int, quiet_ns: int) -> None:
        """Handle the requests that were left to the server `node`, which no longer responds.

        `quiet_ns` is the time since the last bytes from that server. Requests that were left to it within this time,
        or within BEAT_NS if that is longer, are answered or refused. All others are dropped.
        """
        since_ns = self._turn.now - max(quiet_ns, BEAT_NS)
        lost = [left for left in self._left if left.node == node and left.at_ns >= since_ns]
        last = {left.args[:1]: left for left in lost if left.endpoint.changes}
        for left in lost:
            self._turn.go_on(self._again(left, is_last=last.get(left.args[:1]) is left))
        self._left = deque(left for left in self._left if left.node != node)
        self._left_size = sum(left.size for left in self._left)

    def _again(self, left: Left, *, is_last: bool) -> Generator[Step, None, None]:
        """Answer a request that was left to a lost leader, if this server is the next leader.

        The server of the client refuses the request if no next leader is known within HOLD_NS. It also refuses
        changes other than creations. It even refuses a creation if a later change of the same stream is known
        (`is_last` is false): the lost leader may have made both changes, and repeating the creation would undo the
        later one.
        """
        router, request, endpoint, args = left.router, left.request, left.endpoint, left.args

        def place() -> Place:
            found = self._place(router, endpoint, args)
            is_lost = found is Place.ELSEWHERE and self._leader_for(router, endpoint, args) == left.node
            return Place.UNKNOWN if is_lost else found

        is_known = yield from self._hold(request, lambda: place() is not Place.UNKNOWN, HOLD_NS)
        if not is_known or (endpoint.changes and not (is_last and endpoint.words in AGAIN)):
            if request.session is not None:
                router.refuse(request, endpoint, errcodes.CLUSTER_NOT_AVAILABLE.error())
        elif place() is Place.HERE and not (yield from self._is_taken(router, request, endpoint, args)):
            yield from self._work(router, request, endpoint, args) or ()

    # -- streams without a leader ------------------------------------------------------------------------------

    def _leads_here(self, router: Router, endpoint: Endpoint, args: tuple[str, ...]) -> bool:
        """Return whether this server answers a request without refusing it.

        If the account has no JetStream, the result is True.
        """
        is_here = self._place(router, endpoint, args) is Place.HERE
        return router.js is None or (is_here and self._refusal(router, endpoint, args) is None)

    def _look(
        self, router: Router, request: Request, endpoint: Endpoint, args: tuple[str, ...], place: Place
    ) -> Iterator[Step] | None:
        """Return the steps that answer a request even if its stream has no leader, or None if there are none.

        Only the server of the client takes these steps, for up to EXPLAINED_MAX requests at a time. Beyond that, it
        refuses the request if no leader is known.
        """
        if not _is_of_client(request):
            return None
        if self._explained < EXPLAINED_MAX:
            return self._explain(router, request, endpoint, args)
        if place is Place.UNKNOWN:
            router.refuse(request, endpoint, errcodes.CLUSTER_NOT_AVAILABLE.detailed(TOO_MANY))
        return None

    def _explain(
        self, router: Router, request: Request, endpoint: Endpoint, args: tuple[str, ...]
    ) -> Generator[Step, None, None]:
        """Answer a request, unless another server takes it within LEADER_NS."""
        from pyjs.jetstream.api.endpoint import ApiCall  # imported with the first request

        assert router.js is not None
        assert endpoint.leaderless is not None
        self._explained += 1
        try:
            views = yield from self._taken_views(router, request, endpoint, args)
        finally:
            self._explained -= 1
        if views is None:
            return
        if self._leads_here(router, endpoint, args) and not self._taken.has(request.number):
            yield from self._work(router, request, endpoint, args) or ()
        else:
            router.answer(request, endpoint, endpoint.leaderless(ApiCall(router.js, args, request), views))

    def _taken_views(
        self, router: Router, request: Request, endpoint: Endpoint, args: tuple[str, ...]
    ) -> Generator[Step, None, list[dict[str, Any]] | None]:
        """Return the views of a stream's servers when this server must answer, or None if another server answers."""
        deadline_ns, views, looks = self._turn.now + LEADER_NS, [], 0
        while not self._leads_here(router, endpoint, args):
            stream = self._machine.state.stream(router.account.name, args[0])
            if stream is None and self._machine.leader:
                return None  # the leader of the metadata refuses it
            views = [] if stream is None else (yield from self._questions.views(stream))
            leaders = {int(view.get("leader", 0)) for view in views} - {0, self._node}
            if stream is not None and leaders:
                if (yield from self._questions.is_taken(stream.account, list(leaders), request)):
                    return None
                if looks:  # it has become the leader after the request came
                    self._forward(router, request, leaders)
            if self._turn.now >= deadline_ns or (stream is not None and stream.stored.offline):
                break
            looks += 1
            yield from self._waiters.until(lambda: False, SHORT_NS)
        return views

    # -- requests that wait ------------------------------------------------------------------------------------

    def _work(
        self, router: Router, request: Request, endpoint: Endpoint, args: tuple[str, ...]
    ) -> Iterator[Step] | None:
        """Return the steps that answer or refuse a request, or None if this server has taken it already."""
        if self._taken.has(request.number):
            return None
        self._taken.add(request)
        if self._refusal(router, endpoint, args) is not None:
            return self._refuse_steps(router, request, endpoint, args)
        return router.work(request, self._requests.endpoints.of(endpoint), args)

    def _refusal(self, router: Router, endpoint: Endpoint, args: tuple[str, ...]) -> ApiError | None:
        """Return the error for a request about a stream that is offline, or None if the stream is not offline.

        A stream is offline if none of its servers responds, or if this server does not support its configuration.
        """
        if router.js is None or endpoint.words in META or not args:
            return None
        stream = self._machine.state.stream(router.account.name, args[0])
        if stream is None:
            return None
        if self._is_away(stream):
            is_consumer = endpoint.words.startswith("CONSUMER.") and len(args) > 1
            return (errcodes.CONSUMER_OFFLINE if is_consumer else errcodes.STREAM_OFFLINE).error()
        reason = stream.stored.offline
        return errcodes.STREAM_OFFLINE_REASON.error(err=reason) if reason else None

    def _is_away(self, stream: Assignment) -> bool:
        """Return whether all servers of a stream are offline."""
        return self._node not in stream.nodes and self._questions.are_away(stream.nodes)

    def _refuse_steps(
        self, router: Router, request: Request, endpoint: Endpoint, args: tuple[str, ...]
    ) -> Generator[Step, None, None]:
        """Refuse a request about an offline stream, or pass it on if the stream is available within OFFLINE_NS."""
        refusal = partial(self._refusal, router, endpoint, args)
        error, lost = refusal(), LeaderChanged()
        is_back = yield from self._hold(request, lambda: refusal() is None, OFFLINE_NS)
        if not (is_back and (yield from self.pass_on(router, request, endpoint, args, lost))):
            router.refuse(request, endpoint, error or lost)

    def _later(
        self, router: Router, request: Request, endpoint: Endpoint, args: tuple[str, ...]
    ) -> Iterator[Step]:
        """Wait until it is known which server answers a request; if it is this one, answer the request.

        The server of the client refuses the request if too many requests wait, or if no leader appears in time.
        """
        place = partial(self._place, router, endpoint, args)
        if request.session is not None and not self._has_room(request):
            router.refuse(request, endpoint, errcodes.CLUSTER_NOT_AVAILABLE.detailed(TOO_MANY))
            return
        reached, others = self._reached(), self._machine.state.servers.keys() - {self._node}
        # The metadata names no servers before it has a leader, which may come only after this request.
        if _is_of_client(request) and not (others and reached.issuperset(others)):
            self._turn.go_on(self._forward_steps(router, request, endpoint, args, reached))
        if (yield from self._hold(request, lambda: place() is not Place.UNKNOWN)):
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
        """Pass a request on to the leader of its stream, or answer it if this server leads again.

        Return False if no leader appears in time, if the request was passed on too often, or if it may have taken
        effect already and must not be repeated.
        """
        if router.js is None or (endpoint.changes and error.is_unknown and endpoint.words not in REPEATABLE):
            return False
        if endpoint.leaderless is not None:
            yield from self._explain(router, request, endpoint, args)
            return True
        deadline_ns, hops = self._passing.get(request, (self._turn.now + HOLD_NS, 0))
        if self._turn.now > deadline_ns or hops > HOPS_MAX:
            return False
        self._passing[request] = deadline_ns, hops
        try:
            return (yield from self._pass_on(router, request, endpoint, args))
        finally:
            self._passing.pop(request, None)
            self._waiters.notify()

    @property
    def is_passing(self) -> bool:
        """Whether any request is waiting to be passed on to another leader."""
        return bool(self._passing)

    def _pass_on(
        self, router: Router, request: Request, endpoint: Endpoint, args: tuple[str, ...]
    ) -> Generator[Step, None, bool]:
        place = partial(self._place, router, endpoint, args)
        yield from self._waiters.until(
            lambda: False, PAUSE_NS
        )  # the new leader may not have opened its consumers yet
        if not (yield from self._hold(request, lambda: place() is not Place.UNKNOWN)):
            return False
        if place() is not Place.HERE:
            return self._send_on(router, request, endpoint, args[0])
        yield from router.work(request, self._requests.endpoints.of(endpoint), args)
        return True

    def _send_on(self, router: Router, request: Request, endpoint: Endpoint, name: str) -> bool:
        """Send a request to the leader of its stream or, if no leader is known, to another server of the stream.

        Return False if there is no such server.
        """
        assert router.js is not None
        stream = self._machine.state.stream(router.account.name, name)
        opened, replicated = router.js.streams.get(name), router.js.shared.replicated
        leader = 0 if opened is None or replicated is None else replicated.leader_of(opened)
        others = [] if stream is None else [node for node in stream.nodes if node != self._node]
        if stream is None or not (leader or others):
            return False
        self._taken.remove(request)  # the request may be passed back to this server
        hops, subject = self._passing[request][1] + 1, request.subject.decode("utf-8", "replace")
        place = stream.account, endpoint.words, stream.name, stream.group, hops, stream.config.num_replicas
        order = Order(*place, subject, request.reply, request.payload, request.number)
        self._tell(leader or others[0], order)
        return True

    def passed(self, router: Router, order: Order) -> Generator[Step, None, None]:
        """Answer a request that another server has passed on, or pass it on again if this server does not lead.

        Do nothing if this server has already taken the request. Refuse it if no leader appears in time.
        """
        tokens, words = order.subject.split("."), tuple(order.words.split("."))
        from pyjs.jetstream.api.router import ENDPOINT_BY_WORDS  # imported with the first request

        endpoint, args = ENDPOINT_BY_WORDS[words], tuple(tokens[tokens.index("API") + 1 + len(words) :])
        message = order.subject.encode(), order.reply, b"", order.payload
        request = Request(_nothing, *message, is_routed=True, number=order.number)
        if self._taken.has(request.number):
            return
        steps = self._passed_steps(router, request, endpoint, args, order.index)
        refuse = partial(router.refuse, request, endpoint, errcodes.too_many_waiting())
        yield from router.admission.counted(router.account, request, steps, refuse)

    def _passed_steps(
        self, router: Router, request: Request, endpoint: Endpoint, args: tuple[str, ...], hops: int
    ) -> Generator[Step, None, None]:
        self._taken.add(request)
        yield from self._waiters.until_heard(router.account, request.reply)
        if self._place(router, endpoint, args) is Place.HERE:
            yield from router.work(request, self._requests.endpoints.of(endpoint), args)
            return
        error = LeaderChanged()
        self._passing[request] = self._turn.now + HOLD_NS, hops
        if not (yield from self.pass_on(router, request, endpoint, args, error)):
            router.refuse(request, endpoint, error)

    def _is_taken(
        self, router: Router, request: Request, endpoint: Endpoint, args: tuple[str, ...]
    ) -> Generator[Step, None, bool]:
        """Return whether another server of the stream has taken a request."""
        stream = self._machine.state.stream(router.account.name, args[0]) if args else None
        if stream is None or endpoint.words in META:
            return False
        others = [node for node in stream.nodes if node != self._node]
        return (yield from self._questions.is_taken(stream.account, others, request))

    def _has_room(self, request: Request) -> bool:
        """Return whether a request can be held within the limits HELD_MAX and HELD_SIZE."""
        return self._held < HELD_MAX and self._held_size + size_of(request) <= HELD_SIZE

    def _hold(
        self, request: Request, is_known: Callable[[], bool], wait_ns: int = 0
    ) -> Generator[Step, None, bool]:
        """Wait until `is_known` returns True; return False after `wait_ns`, or at once if too many requests are held.

        If `wait_ns` is 0, the wait ends when the metadata has had no leader for HOLD_NS (FIRST_NS after a start).
        """
        if not self._has_room(request):
            return False
        size = size_of(request)
        hold_ns = HOLD_NS if self._machine.had_leader else FIRST_NS
        wait_ns = wait_ns or max(self._machine.leaderless_ns() + hold_ns - self._turn.now, SHORT_NS)
        self._held += 1
        self._held_size += size
        try:
            return (yield from self._waiters.until(is_known, wait_ns))
        finally:
            self._held -= 1
            self._held_size -= size

    def _place(self, router: Router, endpoint: Endpoint, args: tuple[str, ...]) -> Place:
        if router.js is None or endpoint.words in META or not args:
            return self._of_leader()
        if not self._keeper.is_caught_up:
            return Place.UNKNOWN
        stream = self._machine.state.stream(router.account.name, args[0])
        if stream is None or self._is_away(stream):
            return self._of_leader()
        opened, replicated = router.js.streams.get(args[0]), router.js.shared.replicated
        if self._node not in stream.nodes:  # this server leads until its replacements have all messages
            leads = opened is not None and replicated is not None and replicated.leads(opened)
            return Place.HERE if leads else Place.ELSEWHERE
        if stream.stored.offline:
            others = stream.nodes[: stream.nodes.index(self._node)]
            return Place.HERE if self._questions.are_away(others) else Place.ELSEWHERE
        if not self._keeper.is_settled(Key(stream.account, stream.name)):
            return Place.UNKNOWN
        is_replica = opened is not None and replicated is not None and replicated.is_replica(opened)
        if stream.config.num_replicas == 1 and not is_replica:
            return Place.HERE
        if opened is None or replicated is None:
            return Place.ELSEWHERE
        if replicated.leads(opened):
            return Place.HERE
        return Place.ELSEWHERE if replicated.leader_of(opened) else Place.UNKNOWN

    def _of_leader(self) -> Place:
        if self._machine.leads:
            return Place.HERE
        return Place.ELSEWHERE if self._machine.leader else Place.UNKNOWN


def _is_of_client(request: Request) -> bool:
    """Return whether a client of this server is waiting for the answer to a request."""
    return request.session is not None and bool(request.reply)


def _nothing(request: Request) -> None:
    """Do nothing: the request came from another server, so no session of this server has sent it."""
