"""Objects that end leave no reference cycles: the collector examines long-lived objects only once."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import pairwise

from tests.support.simnet import SimNet, say, three
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.server.system import collector

NS = 1_000_000_000


def use_everything(js: JetStreamFixture) -> None:
    """Create streams, consumers and connections of all kinds, use them, and close them."""
    js.add("B", subjects=["load.>"], storage="file", max_age=5 * NS, allow_direct=True)
    for i in range(5):
        make_consumer(js, f"c{i}", filter_subject=f"load.{i}")
    make_consumer(js, "pushed", deliver_subject="x", flow_control=True, idle_heartbeat=NS)
    make_consumer(js, "abandoned", inactive_threshold=NS)
    client = js.client()
    client.send(b"SUB x 1\r\nSUB x.> 2 \r\nPUB $JS.API.CONSUMER.MSG.NEXT.B.c1 x 1\r\n5\r\n")
    for i in range(5):
        js.publish(f"load.{i}")
    js.api("STREAM.INFO.NOPE")
    js.api("CONSUMER.LIST.B")
    client.session.close("Client Closed")
    js.turn()
    for i in range(5):
        js.api(f"CONSUMER.DELETE.B.c{i}")
    js.advance(seconds=20)
    make_consumer(js, "stays")
    make_consumer(js, "pushes", deliver_subject="y")
    js.api("STREAM.DELETE.B")


def make_consumer(js: JetStreamFixture, name: str, **config: object) -> None:
    fields = {"name": name, "ack_policy": "explicit", **config}
    answer = js.api(f"CONSUMER.CREATE.B.{name}", {"stream_name": "B", "config": fields})
    assert "error" not in answer, answer


def cycles_of(run: Callable[[], None]) -> int:
    """Return the number of objects that `run` leaves to the cyclic garbage collector."""
    gc.collect()
    gc.disable()
    try:
        run()
        return gc.collect()
    finally:
        gc.enable()


def test_streams_consumers_and_sessions_that_end_leave_no_cycles() -> None:
    # given
    js = JetStreamFixture()
    use_everything(js)
    # when, then
    assert cycles_of(lambda: use_everything(js)) == 0


def test_mirrors_that_end_leave_no_cycles() -> None:
    # given
    js = JetStreamFixture()
    js.add("ORIGIN", subjects=["o.>"], allow_direct=True)
    use_mirror(js)
    # when, then
    assert cycles_of(lambda: use_mirror(js)) == 0


def use_mirror(js: JetStreamFixture) -> None:
    js.add("M", mirror={"name": "ORIGIN"}, mirror_direct=True)
    js.publish("o.1")
    js.advance(seconds=1)
    js.api("STREAM.DELETE.M")
    js.advance(seconds=1)


def test_routes_that_end_leave_no_cycles() -> None:
    # given
    net = SimNet(seed=1)
    servers = three(net)
    client = servers[0].client()
    say(net, client, b"SUB a 1\r\n")
    part_and_meet(net)
    # when, then
    assert cycles_of(lambda: part_and_meet(net)) == 0


def part_and_meet(net: SimNet) -> None:
    net.cut("a", "b")
    net.run(3 * NS)
    assert not net.whole()
    net.heal()
    net.run_until(net.whole)


def test_a_start_is_not_collected_and_its_objects_are_never_examined_again() -> None:
    # given
    thresholds = gc.get_threshold()
    collections = sum(each["collections"] for each in gc.get_stats())
    try:
        # when
        collector.collect_seldom()
        kept = [[] for _ in range(100_000)]
        # then
        assert sum(each["collections"] for each in gc.get_stats()) == collections
        collector.keep_survivors()
        assert not any(each is kept[0] for each in gc.get_objects())
    finally:
        gc.callbacks.remove(collector._freeze)
        gc.set_threshold(*thresholds)


def test_a_full_collection_is_the_last_for_those_who_survive_it() -> None:
    # given
    thresholds = gc.get_threshold()
    collector.keep_survivors()
    collector.keep_survivors()
    frozen = gc.get_freeze_count()
    kept = [[] for _ in range(1000)]
    try:
        # when
        gc.collect()
        # then
        assert gc.get_freeze_count() > frozen + len(kept)
        assert not any(each is kept[0] for each in gc.get_objects())
    finally:
        gc.callbacks.remove(collector._freeze)
        gc.freeze()  # as in tests/conftest.py
        gc.set_threshold(*thresholds)
    assert collector._freeze not in gc.callbacks


def test_full_collections_come_so_often_that_each_has_little_to_look_at() -> None:
    # given
    seen: list[int] = []
    thresholds = gc.get_threshold()

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == collector.FULL:
            seen.append(len(gc.get_objects()))

    collector.keep_survivors()
    gc.callbacks.append(note)
    try:
        gc.collect()
        # when
        kept = [[number] for number in range(300_000)]
        # then
        assert len(kept) == 300_000
        assert len(seen) > 5
        # Python waits until new objects are a quarter of those found before, so the first collections may find many.
        assert all(found < max(20_000, before / 2) for before, found in pairwise(seen[1:]))
        assert seen[-1] < 20_000
    finally:
        gc.callbacks.remove(note)
        gc.callbacks.remove(collector._freeze)
        gc.freeze()  # as in tests/conftest.py
        gc.set_threshold(*thresholds)
