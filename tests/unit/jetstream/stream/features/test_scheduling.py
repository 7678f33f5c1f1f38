"""Streams with schedules: when they fire, when they stop, and their state after a restart."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.jetstream.stream.features.headers import value_of

S = 1_000_000_000
START = 1_700_000_000 * S  # the start of the virtual clock: 2023-11-14T22:13:20Z


@pytest.fixture
def js() -> JetStreamFixture:
    return JetStreamFixture()


def add(js: JetStreamFixture, name: str = "S", **config: Any) -> None:
    js.add(name, **{"subjects": [f"{name.lower()}.>"], "allow_msg_schedules": True, **config})


def schedule(js: JetStreamFixture, pattern: str, at: str = "s.at", to: str = "s.to", **headers: str) -> int:
    more = {"Nats_Schedule": pattern, "Nats_Schedule_Target": to, **headers}
    ack = js.publish(at, b"tick", **more)
    assert "error" not in ack, ack
    return int(ack["seq"])


def products(js: JetStreamFixture, name: str = "S") -> list[tuple[float, bytes, bytes]]:
    """Return seconds since the start, subject and next time of the products of schedules, in order."""
    store = js.stream(name).store
    found = [store.get(seq) for seq in range(store.first_seq, store.last_seq + 1)]
    return [
        ((each.ts - START) / S, each.subject, value_of(each.headers, b"Nats-Schedule-Next"))
        for each in found
        if each is not None and value_of(each.headers, b"Nats-Scheduler")
    ]


def seconds(js: JetStreamFixture, name: str = "S") -> list[float]:
    return [round(at, 2) for at, _, _ in products(js, name)]


def test_an_interval_fires_at_its_whole_seconds(js: JetStreamFixture) -> None:
    add(js)
    js.advance(milliseconds=300)
    schedule(js, "@every 2s")
    js.advance(seconds=7)
    assert products(js) == [
        (2, b"s.to", b"2023-11-14T22:13:24Z"),
        (4, b"s.to", b"2023-11-14T22:13:26Z"),
        (6, b"s.to", b"2023-11-14T22:13:28Z"),
    ]


def test_a_time_fires_once_and_the_schedule_is_gone(js: JetStreamFixture) -> None:
    add(js)
    schedule(js, "@at 2023-11-14T22:13:25.25Z")
    js.advance(seconds=60)
    assert products(js) == [(5.25, b"s.to", b"purge")]
    assert js.state("S")["messages"] == 1


@pytest.mark.parametrize("when", ["1970-01-01T00:00:00Z", "1969-07-20T20:17:40Z", "0001-01-02T00:00:00Z"])
def test_a_time_long_ago_fires_at_once(js: JetStreamFixture, when: str) -> None:
    add(js)
    schedule(js, f"@at {when}")
    schedule(js, "@every 1s", "s.b")
    js.advance(seconds=1)
    assert seconds(js) == [0, 1]


def test_a_time_beyond_the_range_of_the_clock_neither_fires_nor_keeps_the_server_busy(
    js: JetStreamFixture,
) -> None:
    add(js)
    js.clock.step_wall(-3600 * S)
    js.turn()
    schedule(js, "@at 9999-12-31T23:59:59Z")
    js.advance(seconds=1)
    assert products(js) == []
    deadline_ns = js.node.next_deadline_ns()
    assert deadline_ns is not None
    assert deadline_ns - js.clock.now_ns() > S // 10


def test_cron_fires_in_its_zone(js: JetStreamFixture) -> None:
    add(js)
    schedule(js, "0 14 * * * *", Nats_Schedule_Time_Zone="Asia/Kathmandu")
    js.advance(seconds=3600)
    assert products(js) == [(940, b"s.to", b"2023-11-15T05:14:00+05:45")]


def test_a_later_schedule_of_the_subject_replaces_the_first(js: JetStreamFixture) -> None:
    add(js)
    schedule(js, "@every 2s")
    schedule(js, "@every 5s")
    js.advance(seconds=11)
    assert seconds(js) == [5, 10]


def test_a_plain_message_of_the_subject_ends_the_schedule(js: JetStreamFixture) -> None:
    add(js)
    schedule(js, "@every 2s")
    js.publish("s.at", b"no more")
    js.advance(seconds=5)
    assert products(js) == []


def test_a_product_on_the_subject_of_another_schedule_does_not_end_it(js: JetStreamFixture) -> None:
    add(js)
    schedule(js, "@every 2s", "s.a", "s.b")
    schedule(js, "@every 3s", "s.b", "s.to")
    js.advance(seconds=7)
    assert [(round(at, 2), subject) for at, subject, _ in products(js)] == [
        (2, b"s.b"), (3, b"s.to"), (4, b"s.b"), (6, b"s.b"), (6, b"s.to"),
    ]  # fmt: skip


@pytest.mark.parametrize("how", ["purge", "purge subject", "delete", "end"])
def test_a_removed_schedule_does_not_fire(js: JetStreamFixture, how: str) -> None:
    add(js)
    seq = schedule(js, "@every 2s")
    if how == "purge":
        js.api("STREAM.PURGE.S")
    elif how == "purge subject":
        js.api("STREAM.PURGE.S", {"filter": "s.at"})
    elif how == "delete":
        js.api("STREAM.MSG.DELETE.S", {"seq": seq})
    else:
        js.publish("s.x", Nats_Schedule_Next="purge", Nats_Scheduler="s.at")
    js.advance(seconds=5)
    assert [each for each in products(js) if each[1] == b"s.to"] == []


def hpub(subject: bytes, *lines: bytes) -> bytes:
    headers = b"NATS/1.0\r\n%b\r\n\r\n" % b"\r\n".join(lines)
    return b"HPUB %b %d %d\r\n%b\r\n" % (subject, len(headers), len(headers), headers)


def test_a_schedule_that_ends_in_the_turn_of_its_publish_does_not_fire(js: JetStreamFixture) -> None:
    add(js)
    due = b"Nats-Schedule: @at 2020-01-01T00:00:00Z"
    js.user.send(
        hpub(b"s.at", due, b"Nats-Schedule-Target: s.to")
        + hpub(b"s.x", b"Nats-Schedule-Next: purge", b"Nats-Scheduler: s.at")
    )
    js.advance(seconds=1)
    assert [subject for _, subject, _ in products(js)] == [b"s.x"]


def test_a_product_that_rolls_up_the_subject_of_another_schedule_ends_it(js: JetStreamFixture) -> None:
    add(js)
    schedule(js, "@at 2023-11-14T22:13:25Z", "s.a", "s.b", Nats_Schedule_Rollup="sub")
    schedule(js, "@at 2023-11-14T22:13:25Z", "s.b", "s.c")
    js.advance(seconds=10)
    assert [subject for _, subject, _ in products(js)] == [b"s.b"]


def test_a_sealed_stream_fires_nothing(js: JetStreamFixture) -> None:
    add(js)
    schedule(js, "@every 2s")
    js.api("STREAM.UPDATE.S", {"name": "S", "storage": "memory", "subjects": ["s.>"], "allow_msg_schedules": True,
                               "sealed": True})  # fmt: skip
    js.advance(seconds=5)
    assert products(js) == []


def test_a_workqueue_loses_the_schedule_with_its_acknowledgement(js: JetStreamFixture) -> None:
    add(js, retention="workqueue")
    schedule(js, "@every 2s")
    js.api(
        "CONSUMER.CREATE.S.c", {"stream_name": "S", "config": {"durable_name": "c", "ack_policy": "explicit"}}
    )
    delivery = js.ask("$JS.API.CONSUMER.MSG.NEXT.S.c", b"1")
    assert delivery.reply
    js.user.send(b"PUB %b 4\r\n+ACK\r\n" % delivery.reply)
    js.advance(seconds=5)
    assert js.state("S")["messages"] == 0


def test_the_source_gives_headers_and_payload_of_the_moment(js: JetStreamFixture) -> None:
    add(js)
    schedule(js, "@every 2s", Nats_Schedule_Source="s.data")
    js.advance(seconds=3)
    js.publish("s.data", b"new", Own="1")
    js.advance(seconds=2)
    last = js.stream("S").store.get(js.stream("S").store.last_seq)
    assert last is not None
    assert last.payload == b"new"
    assert value_of(last.headers, b"Own") == b"1"
    assert js.payloads("S") == [b"tick", b"tick", b"new", b"new"]


def test_products_may_expire_and_roll_up(js: JetStreamFixture) -> None:
    add(js, allow_msg_ttl=True)
    schedule(js, "@every 2s", Nats_Schedule_TTL="3s", Nats_Schedule_Rollup="sub")
    js.advance(seconds=4)
    assert seconds(js) == [4]
    js.api("STREAM.PURGE.S", {"filter": "s.at"})
    js.advance(seconds=4)
    assert js.state("S")["messages"] == 0


def test_the_ttl_of_a_product_is_at_least_that_of_markers(js: JetStreamFixture) -> None:
    add(js, allow_msg_ttl=True, subject_delete_marker_ttl=60 * S)
    schedule(js, "@every 2s", Nats_Schedule_TTL="3s")
    js.advance(seconds=2)
    last = js.stream("S").store.get(2)
    assert last is not None
    assert value_of(last.headers, b"Nats-TTL") == b"60"


def test_products_are_transformed_and_too_large_ones_lost(js: JetStreamFixture) -> None:
    add(js, subject_transform={"src": "s.to", "dest": "s.moved"}, max_msg_size=250)
    schedule(js, "@every 2s")
    js.publish("s.data", b"x" * 200)
    schedule(js, "@every 2s", "s.b", Nats_Schedule_Source="s.data")
    js.advance(seconds=5)
    assert [subject for _, subject, _ in products(js)] == [b"s.moved", b"s.moved"]


def test_a_product_that_finds_no_room_is_stored_later(js: JetStreamFixture) -> None:
    js.options.jetstream.max_memory = 4096
    js.node.jetstream.apply_options()  # type: ignore[union-attr]
    add(js)
    js.add("FULL", subjects=["full"])
    schedule(js, "@every 10s")
    while "error" not in js.publish("full", b"x" * 512):
        pass
    js.advance(seconds=15)
    assert products(js) == []
    js.api("STREAM.PURGE.FULL")
    js.advance(seconds=1)
    assert len(products(js)) == 1
    js.advance(seconds=10)
    assert len(products(js)) == 2


def test_many_schedules_fire_over_many_turns_each_once(js: JetStreamFixture) -> None:
    add(js)
    for number in range(450):
        schedule(js, "@at 2023-11-14T22:13:30Z", f"s.at.{number}", f"s.to.{number}")
    js.advance(seconds=10)
    assert [subject for _, subject, _ in products(js)] == [b"s.to.%d" % number for number in range(450)]
    assert js.state("S")["messages"] == 450


def test_entries_of_replaced_schedules_are_discarded(js: JetStreamFixture) -> None:
    add(js)
    headers = b"NATS/1.0\r\nNats-Schedule: @every 292h\r\nNats-Schedule-Target: s.to\r\n\r\n"
    for _ in range(5000):
        js.user.send(b"HPUB s.at %d %d\r\n%b\r\n" % (len(headers), len(headers), headers))
    assert js.state("S")["messages"] == 1
    assert len(js.stream("S").special.scheduling) < 4200


def test_a_clock_set_forward_fires_at_once(js: JetStreamFixture) -> None:
    add(js)
    schedule(js, "@at 2023-11-14T23:13:20Z")
    schedule(js, "@every 600s", "s.b")
    js.clock.step_wall(3600 * S)
    js.advance(milliseconds=100)
    assert [following for _, _, following in products(js)] == [b"2023-11-14T23:23:20Z", b"purge"]


def test_a_clock_set_back_fires_at_the_wall_time(js: JetStreamFixture) -> None:
    add(js)
    schedule(js, "@every 2s")
    js.clock.step_wall(-3600 * S)
    js.advance(seconds=3600)
    assert products(js) == []
    js.advance(seconds=3)
    assert len(products(js)) == 1


@pytest.mark.parametrize("storage", ["file"])
def test_a_restart_goes_on_where_products_tell_it(js: JetStreamFixture, storage: str) -> None:
    add(js, storage=storage)
    schedule(js, "@every 10s")
    schedule(js, "@at 2023-11-14T22:13:45Z", "s.once")
    js.advance(seconds=13)
    again = js.restart()
    again.advance(seconds=13)
    assert seconds(again) == [10, 20, 25]


def test_a_time_that_passed_meanwhile_fires_at_the_start(js: JetStreamFixture) -> None:
    add(js, storage="file")
    schedule(js, "@at 2023-11-14T22:13:25Z", "s.once")
    schedule(js, "@every 10s")
    js.advance(seconds=1)
    schedule(js, "@every 10s", "s.c")
    js.advance(seconds=11)
    js.node.stop()
    again = JetStreamFixture(js.options, now_ns=START + 100 * S)
    again.directory = js.directory
    again.advance(milliseconds=100)
    assert seconds(again) == [5, 10, 11, 100, 100]
    again.advance(seconds=11)
    assert seconds(again) == [5, 10, 11, 100, 100, 110, 110]


def test_an_older_product_does_not_move_a_new_schedule(js: JetStreamFixture) -> None:
    add(js, storage="file")
    schedule(js, "@every 10s")
    js.advance(seconds=11)
    schedule(js, "@every 30s")
    again = js.restart()
    again.advance(seconds=31)
    assert seconds(again) == [10, 41]


def test_a_kill_between_product_and_removal_does_not_fire_again(js: JetStreamFixture) -> None:
    add(js, storage="file")
    schedule(js, "@at 2023-11-14T22:13:25Z", "s.once")
    made = b"NATS/1.0\r\nNats-Scheduler: s.once\r\nNats-Schedule-Next: purge\r\n\r\n"
    js.stream("S").store.store(b"s.to", made, b"tick", START + 5 * S)
    js.stream("S").commit_now()
    assert js.state("S")["messages"] == 2

    again = js.restart()

    again.advance(seconds=10)
    assert seconds(again) == [5]
    assert again.state("S")["messages"] == 1


def test_a_promoted_mirror_fires_what_it_copied(js: JetStreamFixture) -> None:
    add(js)
    js.add("M", mirror={"name": "S"})
    schedule(js, "@every 10s")
    js.advance(seconds=1)
    js.api("STREAM.DELETE.S")
    answer = js.api(
        "STREAM.UPDATE.M",
        {"name": "M", "storage": "memory", "subjects": ["s.>"], "allow_msg_schedules": True},
    )
    assert "error" not in answer, answer
    js.advance(seconds=12)
    assert seconds(js, "M") == [10]
