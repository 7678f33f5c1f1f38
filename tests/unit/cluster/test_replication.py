"""Batches of replicated groups between servers, over routes: real nodes on a simulated network."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from raft.tests.conftest import is_here

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)


from tests.sim.consensus.log import MemoryLog
from tests.support.simnet import LONG_NS, SimNet, SimServer, say

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.cluster.hello import CONSENSUS
from pyjs.cluster.mesh import Dial
from pyjs.cluster.replication import Replication
from pyjs.cluster.route import Route
from pyjs.consensus import batch, names
from pyjs.consensus.consensus import Consensus, Tuning
from pyjs.consensus.engine import Conf, Role, peer_id
from pyjs.consensus.names import number_of

GROUP = 5
NAMES = ("a", "b", "c")


class Machine:
    """A state machine that collects the applied payloads."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.leads = False

    def apply(self, index: int, term: int, time_ns: int, payload: bytes, proposal: object | None) -> None:
        self.payloads.append(payload)

    def role(self, term: int, role: Role, leader: int) -> None:
        self.leads = role == Role.LEADER

    def dropped(self, proposal: object) -> None:
        pass

    def durable(self) -> int:
        return 0

    def snapshot(self) -> bytes:
        return b"\n".join(self.payloads)

    def install(self, index: int, data: bytes) -> None:
        self.payloads = data.split(b"\n")

    def renewed(self) -> None:
        raise AssertionError


class Replicated:
    """Servers with one replicated group."""

    def __init__(self) -> None:
        self.net = SimNet(seed=3)
        self.servers: dict[str, SimServer] = {}
        self.replications: dict[str, Replication] = {}
        self.hosts: dict[str, Consensus] = {}
        self.machines: dict[str, Machine] = {}

    def start(self, name: str, *routes: str, group: bool = True) -> SimServer:
        server = self.servers[name] = self.net.start(name, *routes)
        replication = self.replications[name] = Replication(server.cluster)
        server.node.turn_state.now = self.net.clock.now_ns()
        host = self.hosts[name] = Consensus(
            server.node, number_of(name), MemoryLog(), replication, Tuning(sync_interval_ns=NS_PER_S)
        )
        replication.begin(host, frames=host)
        self._run_jobs(server)
        machine = self.machines[name] = Machine()
        if group:
            host.open(GROUP, "orders", machine, Conf([peer_id(number_of(each)) for each in NAMES]))
        server.wake()
        return server

    def _run_jobs(self, server: SimServer) -> None:
        """Complete syncs at once; the server runs them in a thread."""
        wake = server.wake

        def wake_and_sync() -> None:
            wake()
            turn = server.node.turn_state
            while turn.jobs and not server.paused and server.alive:
                for job in turn.take("jobs"):
                    job.run()
                    turn.finished.append((job, None))
                wake()

        server.wake = wake_and_sync  # type: ignore[method-assign]

    def leader(self) -> str:
        self.net.run_until(lambda: any(machine.leads for machine in self.machines.values()))
        return next(name for name, machine in self.machines.items() if machine.leads)

    def publish(self, payload: bytes) -> None:
        name = self.leader()
        assert self.hosts[name].propose(GROUP, payload)
        self.servers[name].wake()

    def connections(self, name: str) -> dict[int, Route]:
        return self.replications[name].connections


@pytest.fixture
def three() -> Replicated:
    found = Replicated()
    found.start("a")
    found.start("b", "a")
    found.start("c", "a")
    found.net.run_until(found.net.whole)
    return found


def errors(server: SimServer) -> list[str]:
    return [text for level, text in server.log.lines if level == "ERR"]


def test_entries_travel_over_connections_of_their_own(three: Replicated) -> None:
    for number in range(20):
        three.publish(b"%d" % number)
    three.net.run_until(lambda: all(len(each.payloads) == 20 for each in three.machines.values()))

    for name in NAMES:
        assert set(three.connections(name)) == {number_of(each) for each in NAMES if each != name}


def test_a_large_entry_travels_and_delays_no_message(three: Replicated) -> None:
    three.publish(bytes(3_000_000))

    three.net.run_until(lambda: all(len(each.payloads) == 1 for each in three.machines.values()))

    routes = [route for server in three.servers.values() for route in server.cluster.routes.values()]
    assert max(route.in_msgs for route in routes) == 0


def test_another_server_leads_as_soon_as_the_connection_breaks(three: Replicated) -> None:
    three.publish(b"x")
    three.net.run(NS_PER_S)
    lost = three.leader()
    three.net.kill(lost)
    del three.machines[lost]
    began_ns = three.net.clock.now_ns()

    three.leader()

    assert three.net.clock.now_ns() - began_ns < 100 * NS_PER_MS


def test_another_server_leads_when_the_leader_is_stopped(three: Replicated) -> None:
    three.publish(b"x")
    three.net.run(NS_PER_S)
    lost = three.leader()
    three.net.pause(lost)
    stopped = three.machines.pop(lost)
    began_ns = three.net.clock.now_ns()
    three.leader()
    assert three.net.clock.now_ns() - began_ns < 600 * NS_PER_MS

    three.net.resume(lost)
    three.machines[lost] = stopped
    three.net.run_until(lambda: not stopped.leads)
    three.publish(b"y")
    three.net.run_until(lambda: stopped.payloads == [b"x", b"y"])


def idle(three: Replicated) -> list[str]:
    """Return the servers that send heartbeats at the long interval."""
    return [name for name, server in three.servers.items() if server.cluster.pulse.is_idle]


def test_the_heartbeats_of_sleeping_groups_keep_no_server_active(three: Replicated) -> None:
    three.publish(b"x")
    three.net.run(4 * NS_PER_S)
    for _ in range(70):
        assert idle(three) == [*NAMES]
        three.net.run(NS_PER_S)
    assert three.leader()


def test_a_proposal_and_a_note_make_servers_active_at_once(three: Replicated) -> None:
    three.publish(b"x")
    three.net.run(4 * NS_PER_S)
    three.publish(b"y")
    assert idle(three) == [name for name in NAMES if name != three.leader()]
    three.net.run(LONG_NS)
    assert idle(three) == []

    three.net.run(4 * NS_PER_S)
    three.replications["a"].send_note(number_of("b"), b"a note")
    three.servers["a"].wake()
    assert "a" not in idle(three)


def test_an_idle_leader_that_stops_is_replaced_soon_after_the_next_message(three: Replicated) -> None:
    three.publish(b"x")
    three.net.run(4 * NS_PER_S)
    lost = three.leader()
    three.net.pause(lost)
    del three.machines[lost]
    server = three.servers[next(iter(three.machines))]
    began_ns = three.net.clock.now_ns()

    say(three.net, server.client(), b"SUB x 1\r\n")  # a change for the other servers
    three.leader()

    assert three.net.clock.now_ns() - began_ns < 600 * NS_PER_MS


def test_a_server_whose_groups_have_ended_is_idle(three: Replicated) -> None:
    three.publish(b"x")
    three.hosts["a"].stop()
    three.servers["a"].wake()
    three.net.run(10 * NS_PER_S)
    assert "a" in idle(three)


def test_a_server_that_stops_replicating_ends_its_connections(three: Replicated) -> None:
    three.publish(b"x")
    lost = three.leader()
    three.hosts[lost].stop()
    three.servers[lost].wake()
    del three.machines[lost]

    assert three.leader() != lost
    three.net.run(NS_PER_S)
    assert three.connections(lost) == {}
    assert len(three.servers[lost].cluster.routes) == 2
    assert not [text for server in three.servers.values() for text in errors(server)]


def dials_in(three: Replicated, ns: int) -> int:
    """Return how often servers connect for replicated groups during `ns` nanoseconds."""
    count = 0

    def counted(take: Callable[[], list[Dial]]) -> list[Dial]:
        nonlocal count
        dials = take()
        count += sum(dial.purpose == CONSENSUS for dial in dials)
        return dials

    for server in three.servers.values():
        mesh = server.cluster._mesh
        mesh.take_dials = partial(counted, mesh.take_dials)  # type: ignore[method-assign]
    three.net.run(ns)
    return count


def test_a_server_that_refuses_connections_is_asked_less_and_less(three: Replicated) -> None:
    three.publish(b"x")
    three.hosts["a"].stop()
    three.servers["a"].wake()
    del three.machines["a"]

    assert dials_in(three, 10 * NS_PER_S) <= 2 * 22
    assert dials_in(three, 10 * NS_PER_S) <= 2 * 20  # attempts are 0.5 s to 0.75 s apart


def test_a_connection_that_lasted_is_made_again_at_once(three: Replicated) -> None:
    three.publish(b"x")
    three.net.run(20 * NS_PER_S)
    dial = three.servers["b"].cluster._mesh._beside[three.servers["a"].node.server_id, CONSENSUS]
    dial.failures = 5
    three.connections("b")[number_of("a")].close("Test")
    three.net.run(200 * NS_PER_MS)

    assert number_of("a") in three.connections("b")


def test_a_server_without_replicated_groups_is_in_the_cluster_all_the_same(three: Replicated) -> None:
    three.net.start("d", "a")

    three.net.run_until(three.net.whole)
    three.net.run(LONG_NS)

    assert number_of("d") not in three.connections("a")


def test_two_servers_of_one_name_refuse_each_other() -> None:
    found = Replicated()
    first = found.start("a")
    second = SimNet.start(found.net, "b", "a")
    second.node.server_name = "a"
    replication = Replication(second.cluster)
    replication.begin(found.hosts["a"])
    found.net.run(LONG_NS)

    assert second.cluster.routes == {}
    wanted = 'two servers have the name "a": give each one its own server_name'
    assert any(wanted in text for text in errors(second) + errors(first))


def test_names_with_one_number_refuse_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "xxh64_intdigest", lambda data: 17)
    found = Replicated()
    found.start("a", group=False)
    found.start("b", "a", group=False)
    found.net.run(LONG_NS)

    assert found.servers["b"].cluster.routes == {}
    wanted = 'the names "a" and "b" have the same number 17'
    both = errors(found.servers["b"]) + errors(found.servers["a"])
    assert any(wanted in text or wanted.replace('"a" and "b"', '"b" and "a"') in text for text in both)


def test_a_damaged_batch_ends_the_connection_and_names_the_field(three: Replicated) -> None:
    three.publish(b"x")
    name = three.leader()
    other = next(each for each in NAMES if each != name)
    connection = three.connections(name)[number_of(other)]

    connection.send_batch([b"\x01\x09" + bytes(6)])
    three.net.run(LONG_NS)

    wanted = "a batch of replicated groups: kind: 9 is not known"
    assert any(wanted in text for text in errors(three.servers[other]))
    three.net.run(NS_PER_S)
    assert number_of(other) in three.connections(name)
    three.publish(b"y")
    three.net.run_until(lambda: three.machines[other].payloads == [b"x", b"y"])


def test_a_batch_on_a_route_for_messages_is_refused(three: Replicated) -> None:
    a, b = three.servers["a"], three.servers["b"]
    route = a.cluster.routes[b.node.server_id]

    route.send_batch(batch.of_fetch(5, 1, 0))
    three.net.run(LONG_NS)

    assert any("on a connection for something else" in text for text in errors(b))


def test_a_batch_to_a_server_without_replicated_groups_is_refused() -> None:
    net = SimNet(seed=3)
    a, b = net.start("a"), net.start("b", "a")
    net.run_until(net.whole)

    a.cluster.routes[b.node.server_id].send_batch(batch.of_fetch(5, 1, 0))
    net.run(LONG_NS)

    assert any("which this server does not have" in text for text in errors(b))


def test_a_request_of_a_worker_is_refused_by_a_server_without_workers(three: Replicated) -> None:
    a, b = three.servers["a"], three.servers["b"]

    assert a.cluster.routes[b.node.server_id].send_request(b"S", None)
    a.wake()
    three.net.run(LONG_NS)

    assert any("this server has no workers that share streams" in text for text in errors(b))
    three.net.run_until(three.net.whole)


def test_a_batch_to_nobody_is_dropped(three: Replicated) -> None:
    replication = three.replications["a"]

    replication.send(17, batch.of_fetch(5, 1, 0))

    assert replication.dropped == 1
    assert replication.pending_size(17) == 0
