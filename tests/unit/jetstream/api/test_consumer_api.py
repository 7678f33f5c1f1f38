"""CONSUMER.* requests: the configurations that result, and the texts of errors.

Expected answers are those of nats-server 2.15.1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.jetstream.consumerfixture import ConsumerFixture

NS = 1_000_000_000
EXPLICIT = {"ack_policy": "explicit"}


@pytest.fixture
def js() -> ConsumerFixture:
    return ConsumerFixture()


def create(js: ConsumerFixture, name: str = "c", stream: str = "S", **request: Any) -> dict[str, Any]:
    config = request.pop("config", {})
    return js.api(f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config, **request})


def refusal(js: ConsumerFixture, name: str = "c", stream: str = "S", **request: Any) -> tuple[int, str]:
    error = create(js, name, stream, **request)["error"]
    return error["err_code"], error["description"]


def test_an_empty_configuration_gets_these_defaults(js: ConsumerFixture) -> None:
    # when
    answer = js.api("CONSUMER.CREATE.S", {"stream_name": "S", "config": {}})
    # then
    assert list(answer["config"].items()) == [
        ("deliver_policy", "all"),
        ("ack_policy", "none"),
        ("max_deliver", -1),
        ("replay_policy", "instant"),
        ("max_waiting", 512),
        ("inactive_threshold", 5 * NS),
        ("num_replicas", 0),
        ("metadata", {"_nats.level": "5", "_nats.req.level": "0", "_nats.ver": "2.15.1"}),
    ]
    assert len(answer["name"]) == 8
    assert list(answer) == [
        *("stream_name", "name", "created", "config", "delivered", "ack_floor", "num_ack_pending"),
        *("num_redelivered", "num_waiting", "num_pending", "ts"),
    ]


def test_a_durable_gets_these_defaults(js: ConsumerFixture) -> None:
    # when
    body = {"stream_name": "S", "config": {"durable_name": "d", **EXPLICIT}}
    answer = js.api("CONSUMER.DURABLE.CREATE.S.d", body)
    # then
    shown = {key: value for key, value in answer["config"].items() if key != "metadata"}
    assert shown == {
        "durable_name": "d",
        "name": "d",
        "deliver_policy": "all",
        "ack_policy": "explicit",
        "ack_wait": 30 * NS,
        "max_deliver": -1,
        "replay_policy": "instant",
        "max_waiting": 512,
        "max_ack_pending": 1000,
        "num_replicas": 0,
    }


REFUSED = [
    ({"description": "d" * 5000}, 10107),
    ({"ack_wait": -1}, 10183),
    ({"backoff": [-1]}, 10184),
    ({"backoff": [NS] * 3, "max_deliver": 2}, 10116),
    ({"deliver_subject": "a.*"}, 10079),
    ({"deliver_subject": "a..b"}, 10112),
    ({"deliver_subject": "s.x"}, 10081),
    ({"deliver_subject": "d", "max_waiting": 5}, 10080),
    ({"deliver_subject": "d", "max_ack_pending": 5}, 10082),
    ({"deliver_subject": "d", "idle_heartbeat": 1000}, 10083),
    ({"deliver_subject": "d", "flow_control": True}, 10108),
    ({"flow_control": True}, 10089),
    ({"idle_heartbeat": NS}, 10088),
    ({"rate_limit_bps": 5}, 10086),
    ({"max_expires": 5}, 10115),
    ({"direct": True}, 10090),
    ({"filter_subject": "s.a", "filter_subjects": ["s.b"]}, 10136),
    ({"filter_subjects": ["s.a", ""]}, 10139),
    ({"filter_subjects": ["s.a", "s.*"]}, 10138),
    ({"filter_subject": "s..a"}, 10052),
    ({"filter_subjects": ["s..a"]}, 10052),
    ({"deliver_policy": "by_start_sequence"}, 10094),
    (
        {"deliver_policy": "by_start_sequence", "opt_start_seq": 1, "opt_start_time": "2024-01-01T00:00:00Z"},
        10094,
    ),
    ({"deliver_policy": "by_start_time"}, 10094),
    (
        {"deliver_policy": "by_start_time", "opt_start_time": "2024-01-01T00:00:00Z", "opt_start_seq": 5},
        10094,
    ),
    ({"deliver_policy": "new", "opt_start_seq": 5}, 10094),
    ({"deliver_policy": "last", "opt_start_time": "2024-01-01T00:00:00Z"}, 10094),
    ({"deliver_policy": "last_per_subject"}, 10094),
    ({"deliver_policy": "zz"}, 10025),
    ({"ack_policy": "zz"}, 10025),
    ({"priority_policy": "zz"}, 10025),
    ({"foo": 1}, 10025),
    ({"sample_freq": "x%"}, 10095),
    ({"sample_freq": "-3"}, 10095),
    ({"num_replicas": -1}, 10133),
    ({"num_replicas": 3}, 10074),
    ({"metadata": {"a": "b" * 140000}}, 10135),
    ({"priority_groups": ["a"]}, 10196),
    ({"priority_timeout": 5}, 10197),
    ({"priority_policy": "overflow"}, 10159),
    ({"priority_policy": "overflow", "priority_groups": [""]}, 10161),
    ({"priority_policy": "overflow", "priority_groups": ["a b"]}, 10162),
    ({"priority_policy": "overflow", "priority_groups": ["a"], "deliver_subject": "d"}, 10178),
    ({"ack_policy": "flow_control"}, 10218),
    ({"ack_policy": "flow_control", "deliver_subject": "d", "max_ack_pending": -1}, 10220),
    ({"ack_policy": "flow_control", "deliver_subject": "d", "ack_wait": 5}, 10221),
    ({"ack_policy": "flow_control", "deliver_subject": "d", "max_deliver": 5}, 10222),
    ({"durable_name": "other"}, 10017),
]


@pytest.mark.parametrize(("config", "err_code"), REFUSED, ids=[f"{c}"[:60] for c, _ in REFUSED])
def test_configurations_that_are_refused(js: ConsumerFixture, config: dict[str, Any], err_code: int) -> None:
    assert refusal(js, config=config)[0] == err_code


def test_names_that_are_refused(js: ConsumerFixture) -> None:
    # given
    long = "y" * 256
    # then
    assert refusal(js, "a/b") == (10127, "Consumer name can not contain path separators")
    assert refusal(js, long, config={"durable_name": long})[0] == 10102
    body = {"stream_name": "S", "config": {"name": "a.b"}}
    assert js.error("CONSUMER.CREATE.S", body) == (
        500,
        10052,
        "consumer name can not contain '.', '*', '>', '\\', '/'",
    )
    assert js.error("CONSUMER.CREATE.S", {"stream_name": "S", "config": {"durable_name": "d"}})[1] == 10020
    assert js.error("CONSUMER.DURABLE.CREATE.S.d", {"stream_name": "S", "config": {}})[1] == 10018
    body = {"stream_name": "S", "config": {"durable_name": "x"}}
    assert js.error("CONSUMER.DURABLE.CREATE.S.d", body)[1] == 10017


def test_subject_and_body_must_agree(js: ConsumerFixture) -> None:
    assert js.error("CONSUMER.CREATE.S", {"stream_name": "T"})[1] == 10056
    assert js.error("CONSUMER.CREATE.T", {"stream_name": "T"})[1] == 10059
    both = {"stream_name": "S", "config": {"filter_subject": "s.b"}}
    assert js.error("CONSUMER.CREATE.S.f.s.a", both)[1] == 10131
    many = {"stream_name": "S", "config": {"filter_subjects": ["s.b"]}}
    assert js.error("CONSUMER.CREATE.S.f.s.a", many)[1] == 10137
    right = {"stream_name": "S", "config": {"filter_subject": "s.a"}}
    assert js.api("CONSUMER.CREATE.S.f.s.a", right)["config"]["filter_subject"] == "s.a"


def test_nonsense_is_corrected_or_refused_when_pedantic(js: ConsumerFixture) -> None:
    # given
    nonsense = {"max_batch": -5, "max_bytes": -3, "max_waiting": -1, "max_ack_pending": -4, "max_deliver": -7}
    # when
    shown = create(js, config={**nonsense, **EXPLICIT})["config"]
    # then
    assert (shown["max_waiting"], shown["max_ack_pending"], shown["max_deliver"]) == (512, -1, -1)
    assert "max_batch" not in shown
    for name, text in (
        ("max_deliver", "max_deliver must be set to -1"),
        ("max_ack_pending", "max_ack_pending must be set to -1"),
        ("max_batch", "max_batch must not be negative"),
    ):
        assert refusal(js, pedantic=True, config={name: -5}) == (10157, f"pedantic mode: {text}")
    words = "pedantic mode: first backoff value has to equal batch AckWait"
    assert refusal(js, pedantic=True, config={"backoff": [5], "ack_wait": 7, **EXPLICIT}) == (10157, words)


def test_actions_say_whether_the_consumer_may_be_there(js: ConsumerFixture) -> None:
    # given
    config = {"durable_name": "c", **EXPLICIT}
    # then
    assert refusal(js, action="update", config=config) == (10149, "consumer does not exist")
    assert create(js, action="create", config=config)["name"] == "c"
    assert create(js, action="create", config=config)["name"] == "c"
    other = {**config, "description": "other"}
    assert refusal(js, action="create", config=other) == (10148, "consumer already exists")
    assert create(js, action="update", config=other)["config"]["description"] == "other"
    assert refusal(js, action="zz") == (10025, 'invalid JSON: unknown consumer action: "zz"')


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"deliver_policy": "new"}, "deliver policy can not be updated"),
        ({"mem_storage": True}, "storage type can not be updated"),
        ({"ack_policy": "all"}, "ack policy can not be updated"),
        ({"replay_policy": "original"}, "replay policy can not be updated"),
        ({"deliver_subject": "x"}, "can not update pull consumer to push based"),
        ({"max_waiting": 7}, "max waiting can not be updated"),
    ],
)
def test_what_an_update_can_not_change(js: ConsumerFixture, change: dict[str, Any], text: str) -> None:
    # given
    js.consumer()
    # when, then
    assert refusal(js, config={"durable_name": "c", **EXPLICIT, **change}) == (10012, text)


def test_what_an_update_can_not_change_of_a_push_consumer(js: ConsumerFixture) -> None:
    # given
    config = {"durable_name": "c", "deliver_subject": "dd", **EXPLICIT}
    create(js, config=config)
    # when, then
    pull = {**config, "deliver_subject": "", "max_waiting": 0}
    assert refusal(js, config=pull) == (10012, "can not update push consumer to pull based")
    js.inbox.send(b"SUB dd 5\r\n")
    assert refusal(js, config={**config, "deliver_subject": "ee"}) == (10013, "consumer name already in use")


def test_limits_of_the_stream_bind_its_consumers(js: ConsumerFixture) -> None:
    # given
    limits = {"max_ack_pending": 10, "inactive_threshold": 10 * NS}
    js.add("L", subjects=["l.>"], consumer_limits=limits, max_consumers=1)
    # then
    assert refusal(js, stream="L", config={"max_ack_pending": 11, **EXPLICIT}) == (
        10121,
        "consumer max ack pending exceeds system limit of 10",
    )
    assert refusal(js, stream="L", config={"inactive_threshold": 11 * NS}) == (
        10153,
        "consumer inactive threshold exceeds system limit of 10s",
    )
    shown = create(js, stream="L", config=EXPLICIT)["config"]
    assert (shown["max_ack_pending"], shown["inactive_threshold"]) == (10, 10 * NS)
    assert refusal(js, "d", stream="L", config=EXPLICIT) == (10026, "maximum consumers limit reached")


def test_consumers_of_a_workqueue_share_nothing(js: ConsumerFixture) -> None:
    # given
    js.add("W", subjects=["w.>"], retention="workqueue")
    # then
    assert refusal(js, stream="W")[0] == 10084
    assert refusal(js, stream="W", config={"deliver_subject": "x"})[0] == 10098
    assert refusal(js, stream="W", config={"deliver_policy": "new", **EXPLICIT})[0] == 10101
    create(js, "w1", stream="W", config={"filter_subject": "w.a", **EXPLICIT})
    assert refusal(js, stream="W", config=EXPLICIT)[0] == 10099
    assert refusal(js, stream="W", config={"filter_subject": "w.*", **EXPLICIT})[0] == 10100
    create(js, "w2", stream="W", config={"filter_subject": "w.b", **EXPLICIT})
    assert refusal(js, "w1", stream="W", config={"filter_subject": "w.b", **EXPLICIT})[0] == 10100


def test_names_and_lists_are_sorted_and_paged(js: ConsumerFixture) -> None:
    # given
    for name in ("b", "a", "c"):
        js.consumer(name)
    # then
    assert js.api("CONSUMER.NAMES.S") == {
        "total": 3,
        "offset": 0,
        "limit": 1024,
        "consumers": ["a", "b", "c"],
    }
    assert js.api("CONSUMER.NAMES.S", {"offset": 2})["consumers"] == ["c"]
    page = js.api("CONSUMER.LIST.S", {"offset": 7})
    assert (page["total"], page["offset"], page["consumers"]) == (3, 3, [])
    listed = js.api("CONSUMER.LIST.S")["consumers"]
    assert [each["config"]["metadata"] for each in listed] == 3 * [{"_nats.req.level": "0"}]
    assert js.api("CONSUMER.NAMES.T") == {
        "error": {"code": 404, "err_code": 10059, "description": "stream not found"},
        "total": 0,
        "offset": 0,
        "limit": 0,
        "consumers": [],
    }


def test_unknown_consumers_are_not_found(js: ConsumerFixture) -> None:
    for endpoint in ("INFO", "DELETE", "PAUSE"):
        assert js.error(f"CONSUMER.{endpoint}.S.nope") == (404, 10014, "consumer not found")
    assert js.ask("$JS.API.CONSUMER.MSG.NEXT.S.nope").headers.startswith(b"NATS/1.0 503\r\n")


def test_info_and_delete_take_no_body(js: ConsumerFixture) -> None:
    # given
    js.consumer()
    # then
    assert js.error("CONSUMER.INFO.S.c", {"a": 1})[1] == 10038
    assert js.error("CONSUMER.DELETE.S.c", {"a": 1})[1] == 10038
    assert js.api("CONSUMER.DELETE.S.c") == {"success": True}


def test_pause_and_resume(js: ConsumerFixture) -> None:
    # given
    js.consumer()
    # when
    paused = js.api("CONSUMER.PAUSE.S.c", {"pause_until": "2099-01-01T00:00:00Z"})
    info = js.info()
    resumed = js.api("CONSUMER.PAUSE.S.c")
    # then
    assert (paused["paused"], paused["pause_until"]) == (True, "2099-01-01T00:00:00Z")
    assert (info["paused"], info["pause_remaining"]) == (True, paused["pause_remaining"])
    assert info["config"]["metadata"]["_nats.req.level"] == "1"
    assert resumed == {"paused": False, "pause_until": "0001-01-01T00:00:00Z"}
    assert "paused" not in js.info()


def test_coming_and_going_is_told(js: ConsumerFixture) -> None:
    # given
    js.inbox.send(b"SUB $JS.EVENT.ADVISORY.CONSUMER.> 5\r\n")
    # when
    js.consumer()
    js.api("CONSUMER.DELETE.S.c")
    # then
    subjects = [frame.subject for frame in js.inbox.frames()]
    assert subjects == [
        b"$JS.EVENT.ADVISORY.CONSUMER.CREATED.S.c",
        b"$JS.EVENT.ADVISORY.CONSUMER.DELETED.S.c",
    ]


@pytest.mark.parametrize(
    ("config", "first", "pending"),
    [
        ({}, 1, 6),
        ({"deliver_policy": "last"}, 6, 1),
        ({"deliver_policy": "last", "filter_subject": "s.0"}, 5, 1),
        ({"deliver_policy": "new"}, None, 0),
        ({"deliver_policy": "by_start_sequence", "opt_start_seq": 3}, 3, 4),
        ({"deliver_policy": "by_start_sequence", "opt_start_seq": 30}, None, 0),
        ({"deliver_policy": "by_start_time", "opt_start_time": "2020-01-01T00:00:00Z"}, 1, 6),
        ({"deliver_policy": "by_start_time", "opt_start_time": "2099-01-01T00:00:00Z"}, None, 0),
        ({"deliver_policy": "last_per_subject", "filter_subject": "s.*"}, 5, 2),
        ({"deliver_policy": "last_per_subject", "filter_subject": "s.zz"}, None, 0),
    ],
)
def test_deliver_policies(
    js: ConsumerFixture, config: dict[str, Any], first: int | None, pending: int
) -> None:
    # given
    for number in range(6):
        js.fill(1, f"s.{number % 2}")
    # when
    info = js.consumer(**config)
    got = js.pull(batch=1, no_wait=True)
    # then
    assert info["num_pending"] == pending
    assert [message.seq for message in got] == ([] if first is None else [first])


def test_a_long_listing_takes_several_turns_and_others_are_served_between_them(js: ConsumerFixture) -> None:
    # given
    for i in range(100):
        create(js, f"c{i:02d}", config=EXPLICIT)
    asker, other = js.client(), js.client()
    asker.send(b"SUB _I.a 1\r\n")
    # when
    asker.session.receive_data(b"PUB $JS.API.CONSUMER.LIST.S _I.a 0\r\n\r\n")
    js.node.turn(js.clock.now_ns())
    # then
    assert asker.take() == b""
    assert js.node.has_work
    other.session.receive_data(b"PING\r\n")
    js.node.turn(js.clock.now_ns())
    assert other.take() == b"PONG\r\n"
    js.turn()
    listed = json.loads(asker.frames()[0].payload)
    assert [each["name"] for each in listed["consumers"]] == [f"c{i:02d}" for i in range(100)]


def test_a_listing_that_fails_midway_is_reported_and_ends(js: ConsumerFixture) -> None:
    def broken() -> Iterator[None]:
        yield
        raise ZeroDivisionError("halfway")

    js.node.turn_state.go_on(broken())
    js.turn()
    assert not js.node.has_work
    assert "ZeroDivisionError: halfway" in js.log.lines[-1][1]
