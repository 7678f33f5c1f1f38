"""Nodes with replicated streams in one process: real logs and stores, a network in memory, one virtual clock."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from struct import unpack_from
from typing import Any

from raft.tests.sim.net import SimNet, Weather
from tests.support.consensus import Calm
from xxhash import xxh64_intdigest

from pyjs.base.clock import NS_PER_MS, VirtualClock
from pyjs.base.disk import Disk, OsDisk
from pyjs.consensus.consensus import Consensus, Tuning
from pyjs.consensus.log.node_log import NodeLog
from pyjs.core.account import Account
from pyjs.jetstream.cluster.assignments import Assignment, Replica, stored_config
from pyjs.jetstream.cluster.servers import Server
from pyjs.jetstream.cluster.state import MetaState
from pyjs.jetstream.config.stream import StreamConfig
from pyjs.jetstream.manage.engine import JetStream
from pyjs.jetstream.replication.streams import ReplicatedStreams
from pyjs.jetstream.server import JetStreamServer
from pyjs.jetstream.stream.stream import Stream
from pyjs.testing import VirtualNode

STEP_MS = 10
LOG_FILE_SIZE = 1 << 19
S = 1_000_000_000
_STARTS = count(1)


class ReplicaNode(VirtualNode):
    """The process of one node."""

    def __init__(self, cluster: Cluster, number: int, directory: Path, disk: Disk, now_ns: int) -> None:
        super().__init__(jetstream={"store_dir": directory}, seed=number, now_ns=now_ns)
        self.cluster, self.number = cluster, number
        self.node.disk = disk
        self.node.server_name = f"n{number}"
        self.is_up = True
        self.node_log = NodeLog(
            disk,
            f"{directory}/.raft",
            self.log,
            cluster.incarnation(),
            file_size=LOG_FILE_SIZE,
            machine=cluster.machines[number],
        )

    def start(self) -> None:
        """Recover everything, and open the assigned streams."""
        for _ in self.node_log.recover_steps():
            pass
        self.node.turn_state.now = self.clock.now_ns()
        self.consensus = Consensus(self.node, self.number, self.node_log, self, self.cluster.tuning)
        server = self.node.jetstream = JetStreamServer(self.node)
        self.replicated = ReplicatedStreams(
            self.number, "C", server.shared, self.consensus, self.node_log, self, self.cluster
        )
        server.shared.replicated = self.replicated
        for _ in server.start_steps():
            pass
        for assignment in self.cluster.assignments.values():
            if self.number not in assignment.nodes:
                continue
            self.do(partial(self.replicated.open_steps, self.js, assignment))

    def keep_up(self) -> None:
        """Do the upkeep of stores that the last turn requested, in place of a thread."""
        for store in self.node.turn_state.take("upkeep"):
            while (job := store.begin_upkeep()) is not None:
                store.finish_upkeep(job())

    def do(self, steps: Callable[[], Any]) -> None:
        """Run steps as the keeper of the metadata does, and wait until they end."""
        ended: list[bool] = []

        def chore() -> Any:
            try:
                yield from self.js.gates.within("S", True, steps)
            finally:
                ended.append(True)

        self.node.turn_state.go_on(chore())
        self.turn()
        for _ in range(300):
            if ended:
                return
            self.cluster.step()
        raise AssertionError("the steps do not end")

    @property
    def js(self) -> JetStream:
        assert self.node.jetstream is not None
        return self.node.jetstream.accounts["$G"]

    @property
    def stream(self) -> Stream:
        return self.js.streams["S"]

    @property
    def leads(self) -> bool:
        """Whether this node is the leader of the stream."""
        return self.is_up and "S" in self.js.streams and self.replicated.leads(self.stream)

    def ask(self, subject: str, body: Any = b"") -> Any:
        """Send a request from a client of this node, and return the answer."""
        client = self.client()
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        client.send(
            b"SUB _INBOX.a 1\r\nPUB %b _INBOX.a %d\r\n%b\r\n" % (subject.encode(), len(payload), payload)
        )
        found: list[bytes] = []

        def came() -> bool:
            found.extend(client.payloads())
            return bool(found)

        self.cluster.until(came)
        client.session.close("done")
        return json.loads(found[0])

    # -- Peers -------------------------------------------------------------------------------------------------

    def send(self, node: int, parts: Sequence[bytes]) -> None:
        """Send a batch."""
        self.cluster.net.send(self.cluster.now, self.number, node, b"".join(parts))

    def pending_size(self, node: int) -> int:
        """Return the number of bytes that wait to be sent."""
        return 0

    def stop(self, reason: str) -> None:
        """End all connections."""

    # -- Interests ---------------------------------------------------------------------------------------------

    def withdraw(self, account: Account, keys: Iterable[tuple[bytes, bytes]]) -> None:
        """Do nothing: no messages come from other nodes."""

    def fence(self, passed: Callable[[], None]) -> None:
        """Call `passed`."""
        passed()


class Cluster:
    """Some nodes; the stream S is on all of them."""

    def __init__(
        self,
        directory: Path,
        size: int = 3,
        *,
        tuning: Tuning | None = None,
        assignment: Assignment | None = None,
        without: int = 0,
        **options: Any,
    ) -> None:
        self.directory = directory
        self.tuning = tuning or Tuning()
        # The number of the machine's current start for each node; 0: with `always`, it is not used.
        self.machines = dict.fromkeys(range(1, size + 1), 2 if self.tuning.sync_interval_ns else 0)
        self.net = SimNet(Calm(7), Weather(delay_max=0))
        self.now = 0
        self.state = MetaState()
        self.numbers = tuple(range(1, size + 1))
        for number in self.numbers:
            self.state.servers[number] = Server(number, f"n{number}", "C", (), number, "0.1.0", 1, -1, -1)
        made = StreamConfig(name="S", subjects=("s.>",), duplicate_window_ns=120 * S, num_replicas=size)
        self.config = replace(made, **options)
        self.assignments: dict[str, Assignment] = {}
        self.disks: dict[int, Disk] = {number: OsDisk() for number in self.numbers}
        self.nodes: dict[int, ReplicaNode] = {}
        self.start_ns = VirtualClock().now_ns()
        if assignment is not None:  # the replicas whose files are in the directories
            self.assignments["S"] = assignment
            self.state.put(assignment)
        for number in self.numbers:
            if number != without:
                self.start(number)

    def incarnation(self) -> int:
        """Return an incarnation that no log has had."""
        return xxh64_intdigest(b"%d" % next(_STARTS)) | 0x01010101

    def start(self, number: int) -> ReplicaNode:
        """Start the process of a node."""
        now_ns = self.start_ns + self.now * STEP_MS * NS_PER_MS
        node = ReplicaNode(self, number, self.directory / f"{number}", self.disks[number], now_ns)
        self.nodes[number] = node
        node.start()
        for other in self.up():
            other.replicated.node_heard(number)
        for other_number in self.numbers:
            if other_number not in [each.number for each in self.up()]:
                self._silence(node, other_number)
        return node

    def _silence(self, node: ReplicaNode, number: int) -> None:
        if number in self.nodes:
            node.replicated.node_silent(number)

    def kill(self, number: int) -> None:
        """End the process of a node without stopping it."""
        node = self.nodes[number]
        node.is_up = False
        assert node.node.jetstream is not None
        lock = node.node.jetstream._lock
        if lock is not None:
            lock.release()
        for other in self.up():
            self._silence(other, number)

    def stop(self, number: int) -> None:
        """Stop a node as the server does."""
        node = self.nodes[number]
        node.consensus.stop()
        node.turn()
        node.node.stop()
        node.node_log.close()
        node.is_up = False
        for other in self.up():
            self._silence(other, number)

    def up(self) -> list[ReplicaNode]:
        """Return the running nodes."""
        return [node for node in self.nodes.values() if node.is_up]

    def create(
        self, *, created_ns: int = 1, group: int = 1, on: Sequence[int] = (), **options: Any
    ) -> Assignment:
        """Assign the stream to all nodes, or to those of `on`, and wait for a leader."""
        config = replace(self.config, **options)
        replicas = tuple(Replica(number, 1) for number in on or self.numbers)
        made = Assignment("$G", group, 1, created_ns, replicas, 1, stored_config(config))
        self.assignments["S"] = made
        self.state.put(made)
        for node in self.up():
            if node.number in made.nodes:
                node.do(partial(node.replicated.open_steps, node.js, made))
        self.leader()
        return made

    def change(self, new: Assignment) -> None:
        """Change the assignment of the stream, and let all nodes follow it as their keepers do."""
        old = self.assignments["S"]
        self.assignments["S"] = new = replace(new, revision=old.revision + 1)
        self.state.put(new, old)
        for node in self.up():
            if node.number not in old.nodes and node.number in new.nodes:
                node.do(partial(node.replicated.open_steps, node.js, new))
            elif node.number in new.nodes:
                node.do(partial(node.replicated.change_steps, node.js, old, new))
            elif node.number in old.nodes:
                node.do(partial(node.replicated.drop_steps, node.js, old))

    def delete(self) -> None:
        """Delete the stream on all nodes that run."""
        old = self.assignments.pop("S")
        self.state.accounts.clear()
        for node in self.up():
            if node.number in old.nodes:
                node.do(partial(node.replicated.drop_steps, node.js, old))

    def move(self, *nodes: int) -> None:
        """Assign the stream to other nodes."""
        self.change(self.assignments["S"].regrouped(nodes))

    def step(self, count: int = 1) -> None:
        """Advance the time by 10 ms `count` times."""
        for _ in range(count):
            self.now += 1
            for source, target, data, _ in self.net.arrived(self.now):
                node = self.nodes.get(target)
                if node is not None and node.is_up and self.nodes[source].is_up:
                    node.replicated.receive(source, data)
            for node in self.up():
                node.advance(milliseconds=STEP_MS)
                node.keep_up()

    def until(self, reached: Callable[[], object], steps: int = 500) -> None:
        """Advance the time until `reached` returns true."""
        for _ in range(steps):
            if reached():
                return
            self.step()
        raise AssertionError(f"not reached in {steps} steps")

    def leader(self) -> ReplicaNode:
        """Wait for a leader of the stream; return its node."""
        self.until(lambda: any(node.leads for node in self.up()))
        return next(node for node in self.up() if node.leads)

    def followers(self) -> list[ReplicaNode]:
        """Wait for a leader of the stream; return the other nodes."""
        leader = self.leader()
        return [node for node in self.up() if node is not leader]

    def publish(
        self, count: int, subject: str = "s.a", size: int = 8, first: int = 0
    ) -> list[dict[str, Any]]:
        """Publish at the leader; return the answers when all have arrived."""
        leader = self.leader()
        client = leader.client()
        client.send(b"SUB _INBOX.> 1\r\n")
        for at in range(first, first + count):
            payload = (b"%d" % at).ljust(size, b".")
            client.send(b"PUB %b _INBOX.p %d\r\n%b\r\n" % (subject.encode(), size, payload))
        found: list[dict[str, Any]] = []

        def came() -> bool:
            found.extend(json.loads(each) for each in client.payloads())
            return len(found) == count

        self.until(came)
        client.session.close("done")
        return found

    def settle(self) -> None:
        """Wait until all running nodes have applied the same entries."""
        self.until(lambda: len({self._place(node) for node in self.holders()}) == 1)

    def holders(self) -> list[ReplicaNode]:
        """Return the running nodes that the stream is assigned to."""
        return [node for node in self.up() if node.number in self.assignments["S"].nodes]

    def _place(self, node: ReplicaNode) -> object:
        """Return the position of a replica: equal for all replicas that have applied the same entries."""
        stream = node.js.streams.get("S")
        if stream is None or stream.replica is None or stream.replica.is_working or stream.replica.stopped:
            return f"n{node.number} is not open"
        return node.consensus.status(self.assignments["S"].group).applied

    def same(self) -> dict[str, Any]:
        """Wait until the state of all replicas is equal; return it."""
        self.settle()
        states = [state_of(node.stream) for node in self.holders()]
        assert all(state == states[0] for state in states)
        return states[0]


def state_of(stream: Stream) -> dict[str, Any]:
    """Return the state on which replicas must agree."""
    store = stream.store
    stream.dedupe.expire(store.applied_ns)
    found = [store.get(seq) for seq in range(max(store.first_seq, 1), store.last_seq + 1)]
    messages = [(m.seq, m.ts, m.subject, m.headers, m.payload) for m in found if m is not None]
    ids, last_id = ids_of(stream), stream.dedupe.last_msg_id
    return {
        "messages": messages,
        "range": (store.first_seq, store.last_seq, store.msgs, store.bytes),
        "ids": (len(ids), last_id),
        "each id": ids,
        "config": stream.config,
    }


def ids_of(stream: Stream) -> list[tuple[int, int, bytes]]:
    """Return sequence, time and text of the message ids that count; an id that was forgotten has no text."""
    count = len(stream.dedupe)
    dump, at = stream.dedupe.dump(0, count), 24 * count
    found = []
    for number in range(count):
        seq, ns, size, _ = unpack_from("<QqII", dump, 24 * number)
        found.append((seq, ns, dump[at : at + size]))
        at += size
    return [each for each in found if each[2]]
