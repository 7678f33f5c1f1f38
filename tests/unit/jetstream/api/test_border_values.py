"""Values at the edge of a field's range: accepted, shown and used as in nats-server 2.15.1, or refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.config.options import JetStreamOptions, Options

S = 1_000_000_000
INT_MAX, UINT_MAX = 2**63 - 1, 2**64 - 1
STREAM_FIELDS = (
    "max_age",
    "duplicate_window",
    "max_msgs",
    "max_bytes",
    "max_msgs_per_subject",
    "max_consumers",
)
CONSUMER_FIELDS = (
    "ack_wait",
    "max_deliver",
    "max_waiting",
    "max_ack_pending",
    "max_batch",
    "max_expires",
    "max_bytes",
    "inactive_threshold",
)
FAR = ("0000-01-01T00:00:00Z", "0001-01-02T00:00:00Z", "1677-09-21T00:12:43Z", "2262-04-11T23:47:17Z")
FAR += ("2300-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z")


@pytest.fixture
def js(tmp_path: Path) -> JetStreamFixture:
    options = Options()
    options.jetstream = JetStreamOptions(enabled=True, store_dir=str(tmp_path))
    return JetStreamFixture(options)


def restarted(js: JetStreamFixture) -> JetStreamFixture:
    again = js.restart()
    assert [text for level, text in again.log.lines if "unexpected failure" in text] == []
    return again


@pytest.mark.parametrize("value", [INT_MAX, 2**62, 2**61 + 1])
@pytest.mark.parametrize("field", STREAM_FIELDS)
@pytest.mark.parametrize("storage", ["memory", "file"])
def test_the_largest_number_of_a_stream_is_kept_and_the_stream_works(
    js: JetStreamFixture, field: str, value: int, storage: str
) -> None:
    more = {"max_age": INT_MAX} if field == "duplicate_window" else {}
    assert js.add("T", subjects=["t"], storage=storage, **{**more, field: value})[field] == value
    for _ in range(2):
        assert js.publish("t", Nats_Msg_Id="one")["seq"] == 1
    js.advance(seconds=60)
    assert js.payloads("T") == [b"x"]
    again = restarted(js)
    if storage == "file":
        assert again.api("STREAM.INFO.T")["config"][field] == value
        assert again.publish("t")["seq"] == 2


@pytest.mark.parametrize("marker_ns", [3 * S // 2, 2**53, 2**62, INT_MAX])
@pytest.mark.parametrize("storage", ["memory", "file"])
def test_a_time_to_live_below_that_of_markers_is_raised_once(
    js: JetStreamFixture, storage: str, marker_ns: int
) -> None:
    js.add("T", subjects=["t"], storage=storage, subject_delete_marker_ttl=marker_ns)
    assert js.publish("t", Nats_TTL="1")["seq"] == 1
    assert js.publish("t", Nats_TTL="1s")["seq"] == 2
    message = js.stream("T").store.get(1)
    assert message is not None
    assert message.headers.startswith(b"NATS/1.0\r\nNats-TTL: ")
    assert js.api("STREAM.INFO.T")["config"]["subject_delete_marker_ttl"] == marker_ns
    restarted(js)


def test_more_headers_of_the_same_name_are_raised_once_too(js: JetStreamFixture) -> None:
    js.add("T", subjects=["t"], subject_delete_marker_ttl=10 * S)
    block = b"NATS/1.0\r\n" + b"Nats-TTL: 1\r\n" * 4_000 + b"\r\n"
    assert json.loads(js.ask("t", b"x", block).payload)["seq"] == 1


@pytest.mark.parametrize("ttl", ["9000000000", "9223372037", str(INT_MAX), "2562047h", f"{INT_MAX}ns"])
@pytest.mark.parametrize("storage", ["memory", "file"])
def test_a_message_that_lives_longer_than_any_clock_stays(
    js: JetStreamFixture, storage: str, ttl: str
) -> None:
    js.add("T", subjects=["t"], storage=storage, allow_msg_ttl=True)
    assert js.publish("t", Nats_TTL=ttl)["seq"] == 1
    js.advance(seconds=60)
    assert js.publish("t")["seq"] == 2
    assert js.state("T")["messages"] == 2
    again = restarted(js)
    if storage == "file":
        assert again.publish("t")["seq"] == 3


@pytest.mark.parametrize("ttl", ["9223372036854775808", "0", "-1", "1.5", "+5", "9" * 5_000 + "h"])
def test_a_time_to_live_that_is_none_is_refused(js: JetStreamFixture, ttl: str) -> None:
    js.add("T", subjects=["t"], allow_msg_ttl=True)
    assert js.refused("t", Nats_TTL=ttl) == (400, 10165, "invalid per-message TTL")


@pytest.mark.parametrize("ttl", [str(2**64), f"{2**64}{'0' * 5_000}"])
def test_a_time_to_live_of_which_64_bits_are_nothing_counts_as_none(js: JetStreamFixture, ttl: str) -> None:
    js.add("T", subjects=["t"], allow_msg_ttl=True)
    assert js.publish("t", Nats_TTL=ttl)["seq"] == 1
    js.advance(seconds=60)
    assert js.payloads("T") == [b"x"]


@pytest.mark.parametrize("storage", ["memory", "file"])
def test_sequences_that_have_run_out_do_not_begin_again(js: JetStreamFixture, storage: str) -> None:
    js.add("T", subjects=["t"], storage=storage, first_seq=UINT_MAX - 2)
    js.add("U", subjects=["u"], storage=storage, first_seq=UINT_MAX)
    no_room = (503, 10077, "no sequence is left")
    assert [js.publish("t")["seq"] for _ in range(2)] == [UINT_MAX - 2, UINT_MAX - 1]
    assert js.refused("t") == js.refused("u") == no_room
    assert js.state("T")["messages"] == 2
    assert js.api("STREAM.PURGE.T")["purged"] == 2
    assert js.refused("t") == no_room
    again = restarted(js)
    if storage == "file":
        assert again.refused("t") == again.refused("u") == no_room


@pytest.mark.parametrize("value", [INT_MAX, 2**62, 2**32])
@pytest.mark.parametrize("field", CONSUMER_FIELDS)
def test_the_largest_number_of_a_consumer_is_kept_and_the_consumer_works(
    js: JetStreamFixture, field: str, value: int
) -> None:
    js.add("T", subjects=["t"], storage="file")
    config = {"durable_name": "c", "ack_policy": "explicit", field: value}
    answer = js.api("CONSUMER.CREATE.T.c", {"stream_name": "T", "config": config})
    assert answer["config"][field] == value
    js.publish("t")
    reply = js.ask("$JS.API.CONSUMER.MSG.NEXT.T.c", b"1").reply
    js.advance(seconds=20)
    assert js.api("CONSUMER.INFO.T.c")["num_ack_pending"] == 1
    again = restarted(js)
    assert again.api("CONSUMER.INFO.T.c")["config"][field] == value
    assert again.ask(reply.decode(), b"+ACK").payload == b""


def test_the_largest_waits_of_a_push_consumer_work(js: JetStreamFixture) -> None:
    js.add("T", subjects=["t"])
    config = {"name": "c", "ack_policy": "explicit", "deliver_subject": "d", "backoff": [INT_MAX, INT_MAX]}
    config |= {"idle_heartbeat": INT_MAX, "flow_control": True, "rate_limit_bps": UINT_MAX}
    answer = js.api("CONSUMER.CREATE.T.c", {"stream_name": "T", "config": config})
    assert answer["config"]["rate_limit_bps"] == UINT_MAX
    js.user.send(b"SUB d 7\r\n")
    js.publish("t")
    js.advance(seconds=60)
    assert js.api("CONSUMER.INFO.T.c")["num_redelivered"] == 0


@pytest.mark.parametrize("until", FAR)
def test_a_pause_ends_in_any_of_ten_thousand_years(js: JetStreamFixture, until: str) -> None:
    js.add("T", subjects=["t"], storage="file")
    config = {"durable_name": "c", "ack_policy": "explicit", "pause_until": until}
    answer = js.api("CONSUMER.CREATE.T.c", {"stream_name": "T", "config": config})
    assert answer["config"]["pause_until"] == until
    paused = until > "2200"
    answer = js.api("CONSUMER.PAUSE.T.c", {"pause_until": until})
    assert (answer["paused"], answer["pause_until"]) == (paused, until)
    assert answer.get("pause_remaining", 0) <= INT_MAX
    again = restarted(js)
    assert again.api("CONSUMER.INFO.T.c").get("paused", False) == paused


@pytest.mark.parametrize("start", FAR)
def test_a_start_in_any_of_ten_thousand_years_is_kept(js: JetStreamFixture, start: str) -> None:
    js.add("O", subjects=["t"], allow_direct=True)
    js.publish("t")
    answer = js.add("T", storage="file", sources=[{"name": "O", "opt_start_time": start}])
    assert answer["sources"][0]["opt_start_time"] == start
    config = {"durable_name": "c", "deliver_policy": "by_start_time", "opt_start_time": start}
    answer = js.api("CONSUMER.CREATE.T.c", {"stream_name": "T", "config": config})
    assert answer["config"]["opt_start_time"] == start
    assert "message" in js.api("STREAM.MSG.GET.O", {"start_time": start}) or start[:4] == "1677"
    for field in ("start_time", "up_to_time"):
        body = {field: start, "batch": 1, "multi_last": ["t"] if field == "up_to_time" else None}
        js.user.send(b"SUB i.* i\r\n")
        payload = json.dumps(body).encode()
        js.user.send(b"PUB $JS.API.DIRECT.GET.O i.1 %d\r\n%b\r\n" % (len(payload), payload))
        assert js.user.frames()
    again = restarted(js)
    shown = again.api("STREAM.INFO.T")["config"]["sources"][0]["opt_start_time"]
    assert (shown, again.api("CONSUMER.INFO.T.c")["config"]["opt_start_time"]) == (start, start)


@pytest.mark.parametrize(
    "body",
    [
        {"batch": INT_MAX, "expires": INT_MAX, "idle_heartbeat": INT_MAX // 2},
        {"batch": -INT_MAX - 1, "expires": S},
        {"batch": 2, "expires": 2, "idle_heartbeat": 1},
        {"batch": 2, "expires": S, "idle_heartbeat": -1},
        {"batch": 2, "expires": -1},
        {"batch": 1, "max_bytes": INT_MAX, "min_pending": INT_MAX, "expires": S},
        {"batch": UINT_MAX},
        {"batch": 1, "priority": UINT_MAX},
    ],
)
def test_a_pull_with_any_numbers_costs_no_more_than_its_answers(
    js: JetStreamFixture, body: dict[str, int]
) -> None:
    js.add("T", subjects=["t"])
    config = {"name": "c", "durable_name": "c", "ack_policy": "explicit"}
    js.api("CONSUMER.CREATE.T.c", {"stream_name": "T", "config": config})
    payload = json.dumps(body).encode()
    js.user.send(b"SUB i.* i\r\nPUB $JS.API.CONSUMER.MSG.NEXT.T.c i.1 %d\r\n%b\r\n" % (len(payload), payload))
    js.advance(milliseconds=20)
    assert len(js.user.frames()) <= 20
    assert js.api("CONSUMER.INFO.T.c")["num_waiting"] in (0, 1)
    assert [text for _, text in js.log.lines if "unexpected failure" in text] == []


def test_a_request_of_the_turn_in_which_its_consumer_expires_is_answered(js: JetStreamFixture) -> None:
    js.add("T", subjects=["t"])
    config = {"name": "c", "ack_policy": "explicit", "inactive_threshold": S}
    js.api("CONSUMER.CREATE.T.c", {"stream_name": "T", "config": config})
    js.user.send(b"SUB i.* i\r\n")
    js.user.take()
    js.clock.advance(60 * S)
    js.user.send(b"PUB $JS.API.CONSUMER.MSG.NEXT.T.c i.1 1\r\n5\r\n")
    assert [frame.headers for frame in js.user.frames()] == [b"NATS/1.0 409 Consumer Deleted\r\n\r\n"]


@pytest.mark.parametrize(
    "delay", [b"-NAK " + b"1ns" * 300_000, b'-NAK {"delay":%d}' % INT_MAX, b"-NAK 2562047h"]
)
def test_the_longest_delay_of_a_nak_is_read_at_once_and_never_over(
    js: JetStreamFixture, delay: bytes
) -> None:
    js.add("T", subjects=["t"])
    config = {"durable_name": "c", "ack_policy": "explicit"}
    js.api("CONSUMER.CREATE.T.c", {"stream_name": "T", "config": config})
    js.publish("t")
    reply = js.ask("$JS.API.CONSUMER.MSG.NEXT.T.c", b"1").reply
    js.ask(reply.decode(), delay)
    assert js.api("CONSUMER.INFO.T.c")["num_ack_pending"] == 1
    if b"ns" not in delay:
        js.advance(seconds=60)
        assert js.api("CONSUMER.INFO.T.c")["num_redelivered"] == 0


@pytest.mark.parametrize("value", [-1, -2, -INT_MAX - 1])
def test_a_limit_of_the_stream_below_zero_is_that_of_its_consumers(js: JetStreamFixture, value: int) -> None:
    js.add("T", subjects=["t"], consumer_limits={"max_ack_pending": value, "inactive_threshold": INT_MAX})
    config = {"name": "c", "ack_policy": "explicit"}
    answer = js.api("CONSUMER.CREATE.T.c", {"stream_name": "T", "config": config})["config"]
    assert (answer["max_ack_pending"], answer["inactive_threshold"]) == (value, INT_MAX)


def test_a_stream_with_a_subject_of_very_many_tokens_can_go(js: JetStreamFixture) -> None:
    for subject in (".".join(["t"] * 150_000), "t." + ".".join(["*"] * 150_000)):
        assert js.add("T", subjects=[subject])["subjects"] == [subject]
        js.user.send(b"PUB %b 1\r\nx\r\n" % ".".join(["t"] * 1_000).encode())
        assert js.api("STREAM.DELETE.T")["success"]
