"""The servers to connect to: configured ones, and those learned from peers.

This module uses no sockets: `take_dials` returns the addresses to connect to; the caller connects, and then calls
`connected` or `failed`. A configured address is tried without end. A server learned from
a peer is tried as long as any peer has a route to it, and after that for KEEP_NS and at least `connect_retries`
times. So the halves of a split cluster join again even if no configured address leads from one half to the other.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from pyjs.base.clock import NS_PER_S
from pyjs.cluster.hello import BULK, CONSENSUS, MESSAGES, PULSE

if TYPE_CHECKING:
    from pyjs.base.timers import Timer
    from pyjs.cluster.cluster import Cluster
    from pyjs.config.options import RouteUrl

Address: TypeAlias = tuple[str, int]

FIRST_WAIT_NS = NS_PER_S // 10
WAIT_MAX_NS = NS_PER_S // 2
STEADY_NS = 10 * NS_PER_S  # an additional connection that lasted this long does not count as failed
LOCAL_WAIT_NS = NS_PER_S // 20  # ns to wait for another worker, which is being restarted
LOG_EVERY = 60  # of this many failures in a row of an address, only one is logged
KEEP_NS = 600 * NS_PER_S  # ns for which a learned server is tried while no peer has a route to it
LEARNED_MAX = 256  # maximum number of learned addresses


class DialState(enum.Enum):
    """The states of a `Dial`.

    WAITING becomes DIALING when the address is due. DIALING becomes CONNECTED, or WAITING again after a failure.
    CONNECTED becomes WAITING when the route is lost. A dial is DROPPED if its address is removed or is this server's
    own.
    """

    WAITING = enum.auto()
    DIALING = enum.auto()
    CONNECTED = enum.auto()
    DROPPED = enum.auto()


@dataclass(eq=False, slots=True)
class Dial:
    """One address, with the state of the connection attempts to it."""

    host: str
    port: int
    user: str = ""
    password: str = ""
    learned: bool = False  # learned from a peer
    state: DialState = DialState.WAITING
    failures: int = 0
    lost_ns: int = 0  # time of the first failure in a row
    tried_ns: int = 0  # time of the last attempt
    server_id: str = ""  # id of the last server that answered
    timer: Timer | None = None
    purpose: str = MESSAGES  # MESSAGES for a route, otherwise the purpose of an additional connection
    beside: int = 0  # the other side's number of the route to which an additional connection belongs

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Mesh:
    """The addresses of the other servers, and the connection attempts to them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._host = cluster.host
        self._dials: dict[Address, Dial] = {}
        self._beside: dict[tuple[str, str], Dial] = {}  # by server id and purpose: the newest address
        self.due: list[Dial] = []  # addresses to connect to now; the list object never changes
        self._stopped = False

    def apply_routes(self, routes: tuple[RouteUrl, ...]) -> list[str]:
        """Use the configured addresses; return the ids of the servers whose configured address was removed."""
        wanted = {(url.host, url.port): url for url in routes}
        gone = [at for at, dial in self._dials.items() if not dial.learned and at not in wanted]
        left = []
        for at in gone:
            dial = self._forget(self._dials[at])
            if dial.server_id:
                left.append(dial.server_id)
        for at, url in wanted.items():
            known = self._dials.get(at)
            if known is None or known.learned or (known.user, known.password) != (url.user, url.password):
                if known is not None:
                    self._forget(known)
                self._add(Dial(url.host, url.port, url.user, url.password))
        return left

    def learned(self, host: str, port: int, server_id: str) -> None:
        """Add the address of a server learned from a peer, unless it is known, or too many addresses were learned."""
        at = (host, port)
        if at in self._dials or any(dial.server_id == server_id for dial in self._dials.values()):
            return
        if sum(dial.learned for dial in self._dials.values()) >= LEARNED_MAX:
            self._host.log.error(
                f"Route to {host}:{port} not tried: {LEARNED_MAX} servers are known from others"
            )
            return
        self._add(Dial(host, port, learned=True, server_id=server_id))

    def beside(self, dial: Dial, rid: int, purposes: tuple[str, ...] = (PULSE, BULK)) -> None:
        """Open an additional connection for each of `purposes` to the server of a route.

        `rid` is the number that the other server has given the route.
        """
        for purpose in purposes:
            before = self._beside.get((dial.server_id, purpose))
            if before is not None:
                self._drop(before)
            beside = replace(
                dial, learned=False, state=DialState.WAITING, timer=None, purpose=purpose, beside=rid
            )
            self._beside[dial.server_id, purpose] = beside
            self._dial(beside)

    def take_dials(self) -> list[Dial]:
        """Remove and return the addresses to connect to now."""
        due = self.due.copy()
        self.due.clear()
        return due

    def failed(self, dial: Dial, cause: str) -> None:
        """Handle a failed connection attempt: try again later, or forget a learned address after many failures."""
        if dial.state is not DialState.DIALING:
            return
        if dial.purpose != MESSAGES:
            has_lasted = self._host.clock.now_ns() - dial.tried_ns > STEADY_NS
            dial.failures = 0 if has_lasted else dial.failures + 1
            self._wait(dial)
            return
        dial.failures += 1
        # between workers, failures are not logged
        if dial.failures % LOG_EVERY == 1 and not self._cluster.options.local:
            self._host.log.error(f"Error trying to connect to route (attempt {dial.failures}): {cause}")
        if dial.failures == 1:
            dial.lost_ns = self._host.clock.now_ns()
        if dial.learned and self._is_gone(dial):
            self._forget(dial)
            return
        self._wait(dial)

    def _is_gone(self, dial: Dial) -> bool:
        """Return whether to give up a server learned from a peer."""
        if self._cluster.is_told(dial.server_id) or dial.failures <= self._cluster.options.connect_retries:
            return False
        return self._host.clock.now_ns() - dial.lost_ns > KEEP_NS

    def connected(self, dial: Dial, server_id: str) -> None:
        """Record that the server at an address has a route to this server, perhaps over another connection."""
        dial.state, dial.server_id, dial.failures = DialState.CONNECTED, server_id, 0

    def is_self(self, dial: Dial) -> None:
        """Stop connecting to an address, since it is this server's own."""
        dial.state = DialState.DROPPED

    def own_routes(self) -> int:
        """Return the number of configured addresses that are this server's own."""
        return sum(
            dial.state is DialState.DROPPED and not dial.learned and dial.purpose == MESSAGES
            for dial in self._dials.values()
        )

    def is_settled(self) -> bool:
        """Return whether each address is connected, has failed at least once, or is no longer tried."""
        tried = (DialState.CONNECTED, DialState.DROPPED)
        return all(dial.state in tried or dial.failures for dial in self._dials.values())

    def route_lost(self, server_id: str) -> None:
        """Connect again to a server whose route was lost, and drop its additional connections."""
        for dial in list(self._dials.values()):
            if dial.server_id == server_id and dial.state in (DialState.CONNECTED, DialState.DIALING):
                self._wait(dial)
        for purpose in (PULSE, BULK, CONSENSUS):
            beside = self._beside.pop((server_id, purpose), None)
            if beside is not None:
                self._drop(beside)

    def stop(self) -> None:
        """Cancel all connection attempts, and make no more."""
        self._stopped = True
        for dial in [*self._dials.values(), *self._beside.values()]:
            self._cancel(dial)
        self.due.clear()

    def _add(self, dial: Dial) -> None:
        self._dials[dial.host, dial.port] = dial
        self._dial(dial)

    def _forget(self, dial: Dial) -> Dial:
        self._drop(dial)
        return self._dials.pop((dial.host, dial.port), dial)

    def _drop(self, dial: Dial) -> None:
        self._cancel(dial)
        dial.state = DialState.DROPPED
        if dial in self.due:
            self.due.remove(dial)

    def _cancel(self, dial: Dial) -> None:
        if dial.timer is not None:
            dial.timer.cancel()
            dial.timer = None

    def _wait(self, dial: Dial) -> None:
        if self._stopped:
            return
        self._cancel(dial)
        dial.state = DialState.WAITING
        wait_ns = min(WAIT_MAX_NS, FIRST_WAIT_NS << min(dial.failures, 8))
        if self._cluster.options.local:
            wait_ns = LOCAL_WAIT_NS
        wait_ns += self._host.rng.below(wait_ns // 2)
        dial.timer = self._host.timers.at(self._host.clock.now_ns() + wait_ns, lambda: self._dial(dial))

    def _dial(self, dial: Dial) -> None:
        dial.timer = None
        if self._stopped or self._cluster.has_route(dial.server_id) != (dial.purpose != MESSAGES):
            dial.state = DialState.CONNECTED
            return
        dial.state, dial.tried_ns = DialState.DIALING, self._host.clock.now_ns()
        self.due.append(dial)
