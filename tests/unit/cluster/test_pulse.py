"""Heartbeats between servers on a simulated network: their intervals, and when a silent server is noticed."""

from __future__ import annotations

from struct import Struct

import pytest
from tests.support.simnet import SimNet, SimServer, Wire, say, three

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.cluster.pulse import BEAT_NS, EARLIER, IDLE_BEAT_NS, Pace, Pulse, decode
from pyjs.cluster.route import Route

BODY = Struct("<8xHH")
FRAME = Struct(
    "<I4xB3x8xHH"
)  # the header of a frame (pyjs/wire/route_frames.pxd), and the body of a heartbeat
FRAME_PONG = 5
ACTIVE, IDLE = (100, 100), (300, 300)


class Watched(SimNet):
    """A network that records the heartbeats."""

    def __init__(self) -> None:
        super().__init__(seed=1)
        self.beats: list[tuple[int, str, str, tuple[int, int]]] = []  # time, sender, receiver, contents

    def deliver(self, wire: Wire, data: bytes | None) -> None:
        if data is not None and len(data) == FRAME.size:
            size, kind, interval_ms, wanted_ms = FRAME.unpack(data)
            if (size, kind) == (BODY.size, FRAME_PONG):
                names = wire.owner.name, wire.other.owner.name
                self.beats.append((self.clock.now_ns(), *names, (interval_ms, wanted_ms)))
        super().deliver(wire, data)

    def record(self, ns: int) -> None:
        """Run for a time, and keep the heartbeats of only this time."""
        self.beats.clear()
        self.run(ns)

    def contents(self, sender: str) -> set[tuple[int, int]]:
        """Return the contents of the recorded heartbeats of a server."""
        return {content for _, name, _, content in self.beats if name == sender}

    def times(self, sender: str, receiver: str) -> list[int]:
        """Return the times in ms of the recorded heartbeats of one server to another."""
        return [ns // NS_PER_MS for ns, *names, _ in self.beats if names == [sender, receiver]]


class EarlierPace(Pace):
    """The contents of a heartbeat of an earlier version."""

    def encode(self) -> bytes:
        return bytes(8)


class EarlierPulse(Pulse):
    """The heartbeats of an earlier version, which has one interval and does not read the body."""

    def came(self, connection: Route, body: bytes) -> None:
        super().came(connection, bytes(8))

    def _next_pace(self) -> Pace:
        return EarlierPace()


@pytest.fixture
def net() -> Watched:
    return Watched()


def idle_servers(net: Watched) -> tuple[SimServer, SimServer, SimServer]:
    """Return three servers that have exchanged only heartbeats for a while."""
    servers = three(net)
    net.run(4 * NS_PER_S)
    assert all(server.cluster.pulse.is_idle for server in servers)
    return servers


def silences(server: SimServer) -> list[str]:
    return [line for _, line in server.log.lines if "no heartbeat" in line]


def subscribe(net: SimNet, server: SimServer, subject: bytes) -> None:
    say(net, server.client(), b"SUB %b 1\r\n" % subject)


# -- intervals -------------------------------------------------------------------------------------------------


def test_servers_that_have_just_met_send_a_heartbeat_every_100_ms(net: Watched) -> None:
    three(net)
    net.record(NS_PER_S)
    for sender in "abc":
        assert net.contents(sender) == {ACTIVE}
        assert 9 <= len(net.times(sender, "b" if sender == "a" else "a")) <= 11


def test_idle_servers_send_a_heartbeat_every_300_ms_at_the_same_time(net: Watched) -> None:
    servers = idle_servers(net)
    net.record(3 * NS_PER_S)
    for sender, receiver in ("ab", "bc", "ca"):
        assert net.contents(sender) == {IDLE}
        assert 9 <= len(net.times(sender, receiver)) <= 11
    firsts = [net.times(sender, receiver) for sender, receiver in ("ab", "bc", "ca")]
    assert all(max(each) - min(each) <= 1 for each in zip(*firsts, strict=True))
    assert not any(map(silences, servers))


def test_a_message_between_two_servers_hastens_the_heartbeats_of_all_at_once(net: Watched) -> None:
    a, b, _ = idle_servers(net)
    net.record(0)
    subscribe(net, b, b"x")
    for sender in "abc":
        assert {interval for interval, _ in net.contents(sender)} == {100}
    net.record(NS_PER_S)
    assert 9 <= len(net.times("c", "a")) <= 11
    assert not silences(a)


def test_two_seconds_after_the_last_message_the_servers_are_idle_again(net: Watched) -> None:
    _, b, _ = idle_servers(net)
    subscribe(net, b, b"x")
    net.run(1800 * NS_PER_MS)
    net.record(100 * NS_PER_MS)
    assert {*net.contents("a"), *net.contents("b"), *net.contents("c")} == {ACTIVE}
    net.run(500 * NS_PER_MS)
    net.record(NS_PER_S)
    assert {*net.contents("a"), *net.contents("b"), *net.contents("c")} == {IDLE}


def test_messages_that_stay_on_one_server_hasten_nothing(net: Watched) -> None:
    a, _, _ = idle_servers(net)
    client = a.client()
    net.run(5 * NS_PER_S)
    net.record(0)
    for _ in range(10):
        say(net, client, b"PUB x 0\r\n\r\n")
        net.run(200 * NS_PER_MS)
    assert net.contents("a") == {IDLE}


def test_an_idle_server_that_others_ask_for_heartbeats_wants_none_itself(net: Watched) -> None:
    a, b, c = three(net)
    client = a.client()
    subscribe(net, b, b"x")
    net.run(4 * NS_PER_S)
    net.record(0)
    say(net, client, b"PUB x 0\r\n\r\n")
    net.run(NS_PER_S)
    assert net.contents("a") == net.contents("b") == {ACTIVE}
    assert net.contents("c") == {(100, 300)}
    assert c.cluster.pulse.is_idle


def test_an_interval_outside_the_known_range_becomes_the_nearest_known_one() -> None:
    assert decode(BODY.pack(0, 65535)) == Pace(BEAT_NS, IDLE_BEAT_NS)
    assert decode(Pace(IDLE_BEAT_NS, BEAT_NS).encode()) == Pace(IDLE_BEAT_NS, BEAT_NS)


# -- silence ---------------------------------------------------------------------------------------------------


def test_a_stopped_server_is_noticed_within_350_ms_while_there_are_messages(net: Watched) -> None:
    a, b, _ = idle_servers(net)
    subscribe(net, b, b"x")
    net.pause("c")
    net.run(300 * NS_PER_MS)
    assert not silences(a)
    net.run(51 * NS_PER_MS)
    assert silences(a)


def test_a_server_that_stopped_while_idle_is_noticed_within_950_ms_without_messages(net: Watched) -> None:
    a, b, _ = idle_servers(net)
    net.pause("c")
    net.run(600 * NS_PER_MS)
    assert not silences(a)
    assert not silences(b)
    net.run(351 * NS_PER_MS)
    assert silences(a)
    assert silences(b)


def test_a_server_that_stopped_while_idle_is_noticed_350_ms_after_the_first_message(net: Watched) -> None:
    a, b, _ = idle_servers(net)
    net.pause("c")
    net.run(100 * NS_PER_MS)
    subscribe(net, b, b"x")
    net.run(320 * NS_PER_MS)
    assert not silences(a)
    assert not silences(b)
    net.run(40 * NS_PER_MS)
    assert silences(a)
    assert silences(b)


def test_a_silent_server_that_runs_again_is_heard_and_answers(net: Watched) -> None:
    a, _, c = idle_servers(net)
    net.pause("c")
    net.run(1200 * NS_PER_MS)
    net.resume("c")
    net.run(400 * NS_PER_MS)
    assert any("the heartbeat is back" in line for _, line in a.log.lines)
    assert not silences(c)
    assert not any(route.silent for route in a.cluster.routes.values())


@pytest.mark.parametrize("paused_ms", range(100, 1700, 200))
def test_a_server_that_was_stopped_itself_blames_no_other(net: Watched, paused_ms: int) -> None:
    a, _, _ = idle_servers(net)
    net.run(paused_ms * NS_PER_MS // 7)
    net.pause("a")
    net.run(paused_ms * NS_PER_MS)
    net.resume("a")
    net.run(NS_PER_S)
    assert not silences(a)
    assert not any(route.silent for route in a.cluster.routes.values())


def test_a_stopped_server_does_not_become_heard_because_the_others_become_idle(net: Watched) -> None:
    a, _, _ = idle_servers(net)
    net.pause("c")
    net.run(4 * NS_PER_S)
    lines = [line for _, line in a.log.lines if "heartbeat" in line]
    assert len(lines) == 2
    assert "the route is closed" in lines[1]


def test_a_server_that_ends_sends_no_more_heartbeats(net: Watched) -> None:
    a, _, _ = idle_servers(net)
    a.cluster.pulse.stop()
    net.record(0)
    subscribe(net, a, b"x")
    net.run(1800 * NS_PER_MS)  # after 2 s the others close their routes, and connect again
    assert not net.times("a", "b")


def test_an_idle_server_without_routes_has_no_timer_for_heartbeats(net: Watched) -> None:
    a, _, _ = idle_servers(net)
    net.kill("b")
    net.kill("c")
    net.run(5 * NS_PER_S)
    assert not a.cluster.pulse.connections
    net.record(NS_PER_S)
    assert not net.beats


# -- earlier versions ------------------------------------------------------------------------------------------


def with_an_earlier_version(net: Watched) -> tuple[SimServer, SimServer, SimServer]:
    """Return three servers, the last of which is of a version with one interval."""
    a = net.start("a", "10.0.0.2", "10.0.0.3")
    b, c = net.start("b", "a", "10.0.0.3"), net.start("c", "a", "b")
    c.cluster.pulse = EarlierPulse(c.cluster)
    net.run_until(net.whole)
    net.run(5 * NS_PER_S)
    return a, b, c


def test_idle_servers_send_an_earlier_version_a_heartbeat_every_100_ms(net: Watched) -> None:
    servers = with_an_earlier_version(net)
    net.record(2 * NS_PER_S)
    assert net.contents("a") == net.contents("b") == {(100, 300)}
    assert 18 <= len(net.times("a", "c")) <= 22
    assert not any(map(silences, servers))


def test_servers_that_an_earlier_version_leaves_become_idle(net: Watched) -> None:
    with_an_earlier_version(net)
    net.kill("c")
    net.run(3 * NS_PER_S)
    net.record(NS_PER_S)
    assert net.contents("a") == {IDLE}


@pytest.mark.parametrize("stopped", ["a", "c"])
def test_a_stopped_server_is_noticed_within_350_ms_among_several_versions(net: Watched, stopped: str) -> None:
    a, b, c = with_an_earlier_version(net)
    net.pause(stopped)
    net.run(351 * NS_PER_MS)
    assert silences(b)
    assert silences(a if stopped == "c" else c)


def test_a_heartbeat_without_contents_changes_nothing(net: Watched) -> None:
    a, b, _ = idle_servers(net)
    pulse = a.cluster.pulse
    pulse.came(pulse.connections[b.node.server_id], bytes(8))
    assert Pace(BEAT_NS, BEAT_NS) == EARLIER
    net.record(2 * NS_PER_S)
    assert net.contents("a") == {IDLE}
