"""The state of a link to a consumer of an origin, with the subscription and the timer that belong to the state.

A change of the state ends both. Each request has a number, so that late answers to earlier requests are ignored.

Consumers and requests are handled by consumer_link.py and origin_link.py.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pyjs.base.clock import NS_PER_S
from pyjs.base.errors import StoreFailed
from pyjs.jetstream import errcodes
from pyjs.jetstream.errcodes import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pyjs.base.timers import Timer
    from pyjs.core.account import Account
    from pyjs.core.chore import Step
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.mirror.copier import Copier
    from pyjs.subjects.sublist import Subscription

ANSWER_NS = 5 * NS_PER_S  # longest ns to wait for an answer


class Link(Enum):
    """The states of a link, see consumer_link.py and origin_link.py."""

    IDLE = "idle"
    ASKED = "asked"
    TAKING = "taking"
    WAITING = "waiting"
    PROBING = "probing"
    CLOSED = "closed"


class Pace(NamedTuple):
    """The times that a link waits, in ns."""

    between: int  # minimum time between two requests
    answers: tuple[int, ...]  # the wait for an answer, by the number of unanswered requests before this one
    silent: int  # after this time without message or heartbeat, the consumer counts as lost


class Place(NamedTuple):
    """The position in an origin at which a copier begins or continues."""

    seq: int  # the first message to copy; 0: the first one that exists, or the first from `time_ns` on
    time_ns: int | None  # start time in ns, if `seq` is 0
    ident: bytes  # identity of the origin in which `seq` counts; b"": any


class Target(Protocol):
    """The part of sourcing.Inflow that links use: the copies into one stream."""

    def settled_steps(self) -> Generator[Step, None, None]:
        """Wait until every copy is either stored or lost.

        Raises:
            ApiError, StoreFailed: the stream cannot store copies any more.
        """

    def place_of(self, copier: Copier) -> Place:
        """Return the position at which a copier continues."""

    def recreated(self, copier: Copier) -> None:
        """Forget the position of a source, since its origin was deleted and created again."""

    def begin_steps(self, copier: Copier, delivered: int, ident: bytes) -> Generator[Step, None, None]:
        """Open a copier for the messages after `delivered` in the origin with the identity `ident`.

        Raises:
            ApiError, StoreFailed: the copier cannot be opened now.
        """


class Expected:
    """A subscription and a timer that end together."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self.subscription: Subscription | None = None
        self.timer: Timer | None = None

    def end(self) -> None:
        """End the subscription and the timer."""
        if self.subscription is not None:
            self._account.unsubscribe(self.subscription)
            self.subscription = None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class LinkState:
    """The state of one link, with the subscription and the timer that end with this state."""

    def __init__(self, js: JetStream, copier: Copier, pace: Pace, ask: Callable[[], None]) -> None:
        """Create an idle link; `ask` sends a request."""
        self.now = Link.IDLE
        self.asked = 0  # number of the last request
        self._js = js
        self._copier = copier
        self._pace = pace
        self._ask = ask
        self._asked_ns = -pace.between
        self._unanswered = 0  # number of unanswered requests in a row
        self._expected = Expected(js.account)

    def leave(self, state: Link) -> None:
        """Change to another state. In any state but TAKING, the copier ignores deliveries until it is reopened."""
        self.now = state
        self.asked += 1
        self._expected.end()
        if state is not Link.TAKING and self._copier.feed is not None:
            self._copier.feed.pause()

    def begin_request(self, unanswered: Callable[[], None]) -> int:
        """Begin to wait for an answer, and return the number of the request.

        `unanswered` is called if no answer arrives in time.
        """
        self.leave(Link.ASKED)
        self._asked_ns = self._js.shared.clock.now_ns()
        self.call_after(self._pace.answers[min(self._unanswered, len(self._pace.answers) - 1)], unanswered)
        self._unanswered += 1
        return self.asked

    def own(self, subscription: Subscription) -> None:
        """Store the subscription of the expected answer; the next change of state ends it."""
        self._expected.subscription = subscription

    def call_after(self, ns: int, call: Callable[[], None]) -> None:
        """Call `call` after `ns` nanoseconds, unless the state changes before."""
        at_ns = self._js.shared.clock.now_ns() + ns
        self._expected.timer = self._js.shared.timers.at(at_ns, call, self._copier.target)

    def ask_later(self) -> None:
        """Send another request, but not sooner than `Pace.between` after the last one."""
        left_ns = self._asked_ns + self._pace.between - self._js.shared.clock.now_ns()
        if left_ns <= 0:
            self._ask()
        else:
            self.wait(left_ns)

    def wait(self, ns: int) -> None:
        """Change to WAITING, and send another request after `ns` nanoseconds."""
        self._unanswered = 0
        self.leave(Link.WAITING)
        self.call_after(ns, self._ask)

    def go_on(self, asked: int, steps: Generator[Step, None, None]) -> None:
        """Run the steps of a request or an answer; after an error, report it and wait for the next request."""
        self._js.account.turn.go_on(self._guarded(asked, steps))

    def _guarded(self, asked: int, steps: Generator[Step, None, None]) -> Generator[Step, None, None]:
        try:
            yield from steps
        except (ApiError, StoreFailed) as error:
            if asked == self.asked:
                self._copier.error = (
                    error if isinstance(error, ApiError) else errcodes.STREAM_GENERAL.error(err=error)
                )
                self.wait(self._pace.between)

    def take(self, subscription: Subscription) -> None:
        """Change to TAKING with the subscription for deliveries; after a silence of `Pace.silent`, send a request."""
        self._unanswered = 0
        self.leave(Link.TAKING)
        self._expected.subscription = subscription
        self._watch()

    def _watch(self) -> None:
        left_ns = self._copier.active_ns + self._pace.silent - self._js.shared.clock.now_ns()
        if left_ns <= 0:
            self._ask()
        else:
            self.call_after(left_ns, self._watch)
