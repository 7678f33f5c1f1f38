"""The bound on the JetStream API requests of one server that have arrived and are not answered yet.

A request counts from its arrival until its last step: in the turn's list of requests, at the gates of streams and
consumers, in the queue of metadata writes, and while it waits for another server or worker. So the bound holds for
all these places together. Requests for information and all other requests have separate limits
(`info_queue_limit`, `request_queue_limit`); a third limit, SIZE_MAX, is for the bytes of both.

A request beyond a limit is refused. So that one client cannot make the server refuse the requests of others, half of
a limit is added as a reserve: half of the reserve for connections, and half for accounts, with few waiting requests.
The more of the reserve is used, the fewer a connection or an account may have. Waiting requests are never dropped.
Invariant: fewer than 1.5 times as many requests wait as the limit allows, of clients; requests of the server itself
are counted, but not refused.

This module knows nothing of endpoints and answers: the caller refuses the request.

Source: nats-server 2.15.1, which drops all waiting requests of all clients at a limit, without an answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_S
from pyjs.core.auth.identity import Sender
from pyjs.jetstream import advisories

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable
    from typing import TypeAlias

    from pyjs.base.clock import Clock
    from pyjs.base.log import Log
    from pyjs.base.rng import Rng
    from pyjs.base.timers import Timer, Timers
    from pyjs.config.options import JetStreamOptions
    from pyjs.core.account import Account
    from pyjs.core.chore import Step
    from pyjs.core.sink import Request

    Owners: TypeAlias = "tuple[Hashable, Hashable]"  # account, key of the connection

# Bytes of all waiting requests. 10,000 requests of the usual size, some 300 bytes, need a tenth of it; the limit on
# their number would allow 10 GB of requests with the largest payload.
SIZE_MAX = 32 << 20
TELL_NS = NS_PER_S  # minimum time between two log lines, and between two advisories
ADVISORY = b"$JS.EVENT.ADVISORY.API.LIMIT_REACHED"
INFOS = (b"STREAM.INFO.", b"CONSUMER.INFO.", b"CONSUMER.NAMES.", b"CONSUMER.LIST.", b"PYJS.")
INFO_WORDS = (b"INFO", b"STREAM.NAMES", b"STREAM.LIST")


def is_info(subject: bytes) -> bool:
    """Return whether a request on an API subject, with or without a domain, is a request for information."""
    words = subject.partition(b".API.")[2]
    return words in INFO_WORDS or words.startswith(INFOS)


def owners_of(account: Account, request: Request) -> Owners:
    """Return the account that gets a request, and a key for the connection that sent it.

    A request from another server has no connection here; its reply subject without the last token identifies the
    client, since clients have their own inboxes.
    """
    sender = request.session
    if sender is None:
        return account, (request.reply.rpartition(b".")[0],)
    if isinstance(sender, Sender):
        return account, (str(sender.fields.get("server")), str(sender.fields.get("id")))
    return account, (sender,)


class Tally:
    """The requests of one kind that wait, or their bytes: the total, and the parts of connections and accounts."""

    __slots__ = ("_of", "total")

    def __init__(self) -> None:
        self.total = 0
        self._of: dict[Hashable, int] = {}  # by owner; no value is 0

    def has_room(self, limit: int, owners: Owners) -> bool:
        """Return whether one more request of this account and connection may wait."""
        if self.total < limit:
            return True
        account, connection = owners
        left = limit + -(-limit // 4) - self.total  # of the reserve for connections
        return self._of.get(connection, 0) < left or self._of.get(account, 0) < left + limit // 4

    def add(self, owners: Owners, amount: int) -> None:
        """Add `amount`, which is negative if a request has ended."""
        self.total += amount
        for owner in owners:
            if now := self._of.get(owner, 0) + amount:
                self._of[owner] = now
            else:
                self._of.pop(owner, None)


class Admission:
    """The waiting requests of one server."""

    def __init__(
        self,
        options: JetStreamOptions,
        clock: Clock,
        timers: Timers,
        rng: Rng,
        log: Log,
        server_name: str,
        find_system: Callable[[], Account | None],
    ) -> None:
        """Create the bound; it follows changes of the limits in `options`."""
        self._options = options
        self._clock = clock
        self._timers = timers
        self._rng = rng
        self._log = log
        self._server_name = server_name
        self._find_system = find_system  # the account that gets the advisories
        self.infos = Tally()
        self.changes = Tally()  # all other requests
        self.sizes = Tally()
        self._waiting: dict[Request, Owners] = {}
        self._held: set[Request] = set()  # requests that are counted until a further call of `leave`
        self._refused = 0  # number of refused requests since the last log line
        self._timer: Timer | None = None  # set for TELL_NS after a log line

    @property
    def inflight(self) -> int:
        """The number of requests that wait."""
        return len(self._waiting)

    def admit(self, account: Account, request: Request) -> bool:
        """Count a request that has arrived, and return True; return False if it must be refused.

        The caller must call `leave` when the request has ended.
        """
        owners = owners_of(account, request)
        tally, limit = self._limit_of(request)
        is_own = request.session is None and not request.is_routed
        if not is_own and not (tally.has_room(limit, owners) and self.sizes.has_room(SIZE_MAX, owners)):
            return False
        tally.add(owners, 1)
        self.sizes.add(owners, size_of(request))
        self._waiting[request] = owners
        return True

    def hold(self, request: Request) -> None:
        """Count a request until `leave` was called once for this call, too: its answer follows its last step."""
        if request in self._waiting:
            self._held.add(request)

    def leave(self, request: Request) -> None:
        """Count a request no longer, unless it is held; do nothing if it is not counted."""
        if request in self._held:
            self._held.remove(request)
            return
        owners = self._waiting.pop(request, None)
        if owners is not None:
            self._limit_of(request)[0].add(owners, -1)
            self.sizes.add(owners, -size_of(request))

    def counted(
        self,
        account: Account,
        request: Request,
        steps: Generator[Step, None, None],
        refuse: Callable[[], object],
    ) -> Generator[Step, None, None]:
        """Run `steps` for a request that another server has passed on, and count it; call `refuse` without room."""
        if not self.admit(account, request):
            steps.close()
            refuse()
            self.refused(1)
            return
        try:
            yield from steps
        finally:
            self.leave(request)

    def _limit_of(self, request: Request) -> tuple[Tally, int]:
        options = self._options
        if is_info(request.subject):
            return self.infos, options.info_queue_limit or options.request_queue_limit
        return self.changes, options.request_queue_limit

    # -- reports of refused requests ---------------------------------------------------------------------------

    def refused(self, count: int) -> None:
        """Log the number of refused requests and publish an advisory: at once, or TELL_NS after the last report."""
        self._refused += count
        if self._refused and self._timer is None:
            self._tell()

    def _tell(self) -> None:
        self._timer = None
        if not self._refused:
            return
        count, self._refused = self._refused, 0
        self._timer = self._timers.at(self._clock.now_ns() + TELL_NS, self._tell)
        self._log.warn(f"JetStream API queue limit reached, refused {count} requests")
        system = self._find_system()
        if system is not None and system.has_interest(ADVISORY):
            domain = self._options.domain
            fields = {"server": self._server_name, **({"domain": domain} if domain else {}), "dropped": count}
            now_ns = self._clock.wall_ns()
            advisories.publish(
                system, self._rng, ADVISORY, "advisory.v1.api_limit_reached", now_ns, fields, ""
            )


def size_of(request: Request) -> int:
    """Return the size of a request's subject, reply subject, headers and payload, in bytes."""
    return sum(map(len, (request.subject, request.reply, request.headers or b"", request.payload)))
