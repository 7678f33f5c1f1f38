"""Transfers of snapshots. A leader offers one to a replica whose next entries were compacted; the replica fetches it.

The engine's snapshot frame has the descriptor of the data. The receiver requests one part after another, so the
receiver determines the rate. It repeats a request after RETRY_NS without an answer. It gives up after GIVE_UP_NS, or
when the sender no longer has the snapshot. The sender gives up a receiver that is silent for REPORT_NS, so that the
end of every transfer is reported to the engine.

This module does not use the log or the state machines.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.consensus import batch, descriptor
from pyjs.consensus.engine import node_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyjs.consensus.batch import Fetch, Outcome, Part
    from pyjs.consensus.engine import Point
    from pyjs.consensus.seams import Peers

STATE_MAX = 1 << 30  # maximum bytes of a snapshot's data, which is in memory as a whole
RETRY_NS = 200 * NS_PER_MS
GIVE_UP_NS = 2 * NS_PER_S
REPORT_NS = NS_PER_S


@dataclass(slots=True)
class Offer:
    """A state that a leader offers, and the peers to which it is offered."""

    data: bytes
    unused_ns: int  # time at which the offer is dropped if no peer has got it
    peers: dict[int, int] = field(default_factory=dict)  # peer -> time at which its transfer is abandoned


@dataclass(slots=True)
class Incoming:
    """The snapshot that one group is fetching from another node."""

    node: int
    point: Point
    wanted: descriptor.Descriptor
    retry_ns: int
    give_up_ns: int
    data: bytearray = field(default_factory=bytearray)

    @property
    def is_whole(self) -> bool:
        """Whether all parts have arrived."""
        return len(self.data) == self.wanted.size


@dataclass(frozen=True, slots=True)
class PartialWrite:
    """A part of a group's changes that is stored separately: the hard state, or the entries after a snapshot."""

    group: int
    hard: tuple[int, int, int] | None = None
    first: int = 0
    entries: Sequence[tuple[int, int, bytes]] = ()


class Snapshots:
    """All snapshots that this node is sending or receiving."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._offers: dict[tuple[int, int], Offer] = {}  # by group and index
        self._incoming: dict[int, Incoming] = {}
        self.ended: list[
            tuple[int, int, bool]
        ] = []  # group, peer, done: reports for the engine; the owner empties the list
        self.given_up: list[int] = []  # groups that will not get their snapshot; the owner empties the list
        self.whole: list[int] = []  # groups with complete data, see take_whole

    @property
    def is_busy(self) -> bool:
        """Whether `tick` has work."""
        return bool(self._offers or self._incoming)

    # -- the sender --------------------------------------------------------------------------------------------

    def offer(self, group: int, index: int, data: bytes, now_ns: int) -> None:
        """Store the data of a snapshot that was offered to the engine; peers may still be fetching an older one."""
        known = self._offers.get((group, index))
        # transfers of an earlier offer of this snapshot go on, and their end must be reported too
        peers = {} if known is None else known.peers
        self._offers[group, index] = Offer(data, now_ns + REPORT_NS, peers)

    def sent(self, group: int, peer: int, index: int, now_ns: int) -> None:
        """Record that the engine has sent the frame of a snapshot to a peer."""
        offer = self._offers.get((group, index))
        if offer is None:
            self.ended.append((group, peer, False))
        else:
            offer.peers[peer] = now_ns + REPORT_NS

    def asked(self, node: int, fetch: Fetch, now_ns: int) -> None:
        """Answer a request for a part of a snapshot: send the part, or report that the snapshot is not offered."""
        group, index, offset = fetch.group, fetch.index, fetch.offset
        offer = self._offers.get((group, index))
        if offer is None or offset >= len(offer.data):
            self._peers.send(node, batch.of_outcome(group, index, done=False))
            return
        for peer in offer.peers:
            if node_of(peer) == node:
                offer.peers[peer] = now_ns + REPORT_NS
        data = offer.data[offset : offset + batch.PART_MAX]
        self._peers.send(node, batch.of_part(group, index, offset, data))

    def _end(self, key: tuple[int, int], peers: list[int], *, done: bool) -> None:
        """Report to the engine that the transfers to `peers` have ended; drop an offer that has no peers left."""
        offer = self._offers[key]
        for peer in peers:
            del offer.peers[peer]
            self.ended.append((key[0], peer, done))
        if peers and not offer.peers:
            del self._offers[key]

    # -- the receiver ------------------------------------------------------------------------------------------

    def fetch(self, group: int, node: int, point: Point, now_ns: int) -> None:
        """Begin to fetch a snapshot from `node`; give up if the node is unknown (0).

        Raises:
            BadDescriptor: the descriptor is damaged, or the snapshot is larger than STATE_MAX bytes.
        """
        wanted = descriptor.read(point.descriptor)
        if wanted.size > STATE_MAX:
            raise descriptor.BadDescriptor(
                f"a snapshot of {wanted.size} bytes, at most {STATE_MAX} are taken"
            )
        incoming = Incoming(node, point, wanted, now_ns + RETRY_NS, now_ns + GIVE_UP_NS)
        self._incoming[group] = incoming
        if incoming.is_whole:
            self.whole.append(group)
        elif node:
            self._ask(group, incoming)
        else:
            self.given_up.append(group)

    def _ask(self, group: int, incoming: Incoming) -> None:
        self._peers.send(incoming.node, batch.of_fetch(group, incoming.point.index, len(incoming.data)))

    def came(self, node: int, part: Part, now_ns: int) -> None:
        """Store a part of a snapshot, and request the next part; ignore a part that was not requested."""
        incoming = self._incoming.get(part.group)
        if incoming is None or (incoming.node, incoming.point.index) != (node, part.index):
            return
        if incoming.is_whole or part.offset != len(incoming.data):
            return  # a duplicate
        if len(part.data) > incoming.wanted.size - part.offset:
            self.given_up.append(part.group)
            return
        incoming.data += part.data
        incoming.retry_ns, incoming.give_up_ns = now_ns + RETRY_NS, now_ns + GIVE_UP_NS
        if incoming.is_whole:
            self.whole.append(part.group)
        else:
            self._ask(part.group, incoming)

    def ends(self, node: int, outcome: Outcome) -> None:
        """Handle a report of another node that a transfer has ended."""
        if outcome.done:
            key = (outcome.group, outcome.index)
            if key in self._offers:
                self._end(key, self._peers_on(key, node), done=True)
            return
        incoming = self._incoming.get(outcome.group)
        if incoming is None or incoming.is_whole:
            return
        if (incoming.node, incoming.point.index) == (node, outcome.index):
            self.given_up.append(outcome.group)

    def _peers_on(self, key: tuple[int, int], node: int) -> list[int]:
        return [peer for peer in self._offers[key].peers if node_of(peer) == node]

    def take_whole(self) -> list[int]:
        """Return the groups whose data has become complete since the last call."""
        groups = list(self.whole)
        self.whole.clear()
        incoming = self._incoming  # meanwhile, the group may have begun to fetch another snapshot
        return [group for group in groups if group in incoming and incoming[group].is_whole]

    def data_of(self, group: int) -> tuple[Point, bytes]:
        """Return the point and the data of a complete snapshot.

        Raises:
            BadDescriptor: the data does not match its descriptor.
        """
        incoming = self._incoming[group]
        data = bytes(incoming.data)
        descriptor.check(incoming.wanted, data)
        return incoming.point, data

    def finish(self, group: int) -> Incoming | None:
        """Remove and return the snapshot that a group was fetching, or return None if there was none."""
        return self._incoming.pop(group, None)

    def finish_whole(self, group: int, index: int) -> Incoming | None:
        """Remove and return the complete snapshot at `index` that a group has fetched.

        Return None if parts of it are missing, or if the group is not fetching a snapshot at this index.
        """
        incoming = self._incoming.get(group)
        if incoming is None or incoming.point.index != index or not incoming.is_whole:
            return None
        return self._incoming.pop(group)

    def arrived(self, group: int, incoming: Incoming) -> None:
        """Report to the sender that its snapshot is durable here."""
        self._peers.send(incoming.node, batch.of_outcome(group, incoming.point.index, done=True))

    # -- time --------------------------------------------------------------------------------------------------

    def tick(self, now_ns: int) -> None:
        """Repeat requests, and give up transfers that take too long."""
        for key, offer in list(self._offers.items()):
            if offer.peers:
                late = [peer for peer, at_ns in offer.peers.items() if at_ns <= now_ns]
                self._end(key, late, done=False)
            elif offer.unused_ns <= now_ns:
                del self._offers[key]
        for group, incoming in self._incoming.items():
            if incoming.is_whole:
                continue
            if incoming.give_up_ns <= now_ns:
                self.given_up.append(group)
            elif incoming.retry_ns <= now_ns:
                incoming.retry_ns = now_ns + RETRY_NS
                self._ask(group, incoming)

    def lost(self, node: int) -> None:
        """Give up all transfers to and from a lost node."""
        for key in list(self._offers):
            self._end(key, self._peers_on(key, node), done=False)
        self.given_up += [
            group
            for group, incoming in self._incoming.items()
            if incoming.node == node and not incoming.is_whole
        ]

    def forget(self, group: int) -> None:
        """Drop the transfers of a closed group."""
        self._offers = {key: offer for key, offer in self._offers.items() if key[0] != group}
        self._incoming.pop(group, None)
