"""Nodes in memory for the unit tests; their frames arrive at once, and their writes are durable at once."""

from __future__ import annotations

from collections import defaultdict

from pyjs_raft import Conf, EntryKind, Groups, Point, Ready, Role, Write, peer_id

GROUP = 5


def descriptor(number: int) -> bytes:
    """Return a descriptor that begins with a payload size of 0 and ends with a number."""
    return bytes(32) + number.to_bytes(8, "little")


def number_of(body: bytes) -> int:
    """Return the number in a descriptor."""
    return int.from_bytes(body[32:], "little")


class Cluster:
    """Some nodes, each with one or more groups of the same peers."""

    def __init__(self, count: int = 3, *, groups: int = 1) -> None:
        self.groups = range(GROUP, GROUP + groups)
        self.conf = Conf([peer_id(node) for node in range(1, count + 1)])
        self.nodes: dict[int, Groups] = {}
        self.committed: dict[int, list[int]] = defaultdict(
            list
        )  # numbers in the descriptors of the first group's committed entries, by node
        self.writes: dict[int, list[Write]] = defaultdict(list)
        self.reads: list[tuple[int, int, int]] = []  # node, number of the read, index
        self.wanted: list[tuple[int, int]] = []  # node, peer
        self.snapshots: dict[int, Point] = {}
        self.sent: list[tuple[int, int]] = []  # node, index of a snapshot
        self.payloads: list[tuple[int, int, int]] = []
        self.cut_off: set[int] = set()
        for node in range(1, count + 1):
            self.start(node)

    def start(self, node: int, *, empty: bool = False) -> None:
        """Start a node; if `empty`, its group waits for a snapshot."""
        self.nodes[node] = Groups(node, seed=7, boot=1)
        for group in self.groups:
            if empty:
                self.nodes[node].open(group, "orders", peer_id(node), Conf(), start=0, start_term=0)
            else:
                self.nodes[node].open(group, "orders", peer_id(node), self.conf)

    def settle(self) -> None:
        """Deliver frames until there are none."""
        for _ in range(100):
            busy = [node for node in self.nodes if self._turn(node)]
            if not busy:
                return
        raise AssertionError("never settles")

    def tick(self, count: int) -> None:
        """Advance the time by `count` ticks."""
        for _ in range(count):
            for node in self.nodes.values():
                node.tick()
            self.settle()

    def _turn(self, node: int) -> bool:
        ready = self.nodes[node].ready()
        self._note(node, ready)
        frames = [*ready.frames, *self.nodes[node].stored(ready.token)]
        self.deliver(node, frames)
        return bool(frames or ready.writes or ready.committed)

    def _note(self, node: int, ready: Ready) -> None:
        first = [entry for entry in ready.committed if entry[0] == GROUP and entry[3] == EntryKind.DATA]
        self.committed[node] += [number_of(body) for *_, body in first]
        self.writes[node] += ready.writes
        self.reads += [(node, number, index) for _, number, index in ready.reads]
        self.wanted += [(node, peer) for _, peer in ready.wanted]
        self.sent += [(node, index) for _, _, index in ready.snapshots]
        for write in ready.writes:
            if write.snapshot is not None:
                self.snapshots[node] = write.snapshot

    def deliver(self, source: int, frames: list[tuple[int, bytes, list[tuple[int, int, int]]]]) -> None:
        """Deliver frames to their nodes."""
        for target, data, payloads in frames:
            self.payloads += payloads
            if not {source, target} & self.cut_off and target in self.nodes:
                assert self.nodes[target].step(data) == []

    def elect(self, node: int) -> None:
        """Make a node the leader of all groups."""
        for group in self.groups:
            self.nodes[node].campaign(group)
        self.settle()

    def propose(self, node: int, number: int) -> tuple[int, int] | None:
        """Propose to the first group, and deliver all frames."""
        (done,) = self.nodes[node].propose([(GROUP, descriptor(number))])
        self.settle()
        return done

    def leaders(self) -> list[int]:
        """Return the nodes that lead the first group, except those that are cut off."""
        return [node for node in self.nodes if node not in self.cut_off and self.role(node) == Role.LEADER]

    def role(self, node: int) -> Role:
        """Return the role of a node in the first group."""
        return Role(self.nodes[node].status(GROUP).role)

    def asleep(self) -> list[int]:
        """Return the nodes whose first group is asleep."""
        return [node for node, engine in self.nodes.items() if engine.status(GROUP).asleep]
