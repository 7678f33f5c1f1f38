"""Invalid data of servers, stores and messages: bounded work, and an error of one line."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any

import pytest
from spark.tests.conftest import arrow_or_skip
from spark.tests.nats.test_client_trouble import Say, say

from pyjs_spark.decode.wire import Decoder
from pyjs_spark.errors import ConnectionLost, ProtocolError, SparkError
from pyjs_spark.lake.replay.source import _below
from pyjs_spark.nats.client import LINE_MAX, Reply
from pyjs_spark.read import plan

arrow_or_skip()

from pyjs_spark.kv.objects import described, encoded
from pyjs_spark.read.direct import stored
from pyjs_spark.read.pull import PullRead
from pyjs_spark_fast import wire as fast_wire

__all__ = ["say"]
DECODERS = [Decoder, fast_wire.Decoder]
DEEP = b'{"a":' * 20_000


def pumped(client: Any, kind: Any, wait_s: float = 5.0) -> None:
    """Decode incoming bytes as the deliveries of a pull."""
    decoder = kind(("seq",), "map", 10, 1 << 30)
    decoder.listen(client.subscribe(b"x"), 100, 1)
    decoder.expect(5)
    client.publish(b"a", reply=b"r")
    client.pump(decoder, time.monotonic() + wait_s)


@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize("size", [b"999999999", b"3000000000", b"99999999999999999999"])
def test_a_delivery_of_more_bytes_than_any_message_has_is_refused(say: Say, kind: Any, size: bytes) -> None:
    line = b"MSG s 2 $JS.ACK.S.C.1.1.1.1795000000000000000.5 %b\r\n" % size

    with pytest.raises(ProtocolError, match=r"above 68157440|the server sent b'MSG s 2"):
        pumped(say(line), kind)


@pytest.mark.parametrize("size", [b"999999999", b"99999999999999999999"])
def test_an_answer_of_more_bytes_than_any_message_has_is_refused(say: Say, size: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"above 68157440|the server sent b'MSG "):
        say(b"MSG {inbox} 1 %b\r\n" % size).request("a")


def test_a_server_that_takes_larger_messages_may_send_them(say: Say) -> None:
    client = say(b"MSG {inbox} 1 100000000\r\n", info=b'{"max_payload": 100000000}')

    with pytest.raises(ConnectionLost, match="fell silent inside a message"):
        client.request("a")


@pytest.mark.parametrize("kind", DECODERS)
def test_a_line_without_end_is_refused_while_pulling(say: Say, kind: Any) -> None:
    with pytest.raises(ProtocolError, match="a protocol line of more than"):
        pumped(say(b"MSG " + b"x" * (LINE_MAX + 100)), kind)


def test_a_read_ends_where_the_server_only_sends_pings() -> None:
    decoder = Decoder(("seq",), "map", 10, 1000)
    asked = 0

    def pump(_: object, deadline_s: float) -> Reply | None:
        nonlocal asked
        asked += 1
        assert asked < 100, "the read does not end"
        client.received += 6  # the size of a PING
        time.sleep(max(0.0, deadline_s - time.monotonic()))
        return None

    client = SimpleNamespace(
        received=0, begun=0, pump=pump, settings=SimpleNamespace(timeout_s=0.05), address="here"
    )
    read = object.__new__(PullRead)
    read._client, read._decoder, read._waits = client, decoder, False  # type: ignore[assignment]

    with pytest.raises(ConnectionLost, match=r"nothing came for 0.05 s"):
        read._receive()


@pytest.mark.parametrize("answer", [DEEP, rb'{"streams": ["\ud800"]}'])
def test_an_answer_that_no_text_of_ours_can_hold_is_no_json(say: Say, answer: bytes) -> None:
    with pytest.raises(ProtocolError, match="which is no JSON object"):
        say(b"MSG {inbox} 1 %d\r\n%b\r\n" % (len(answer), answer)).api("STREAM.NAMES")


@pytest.mark.parametrize("seq", [b"99999999999999999999", b"9" * 5000, b"0", b"-1"])
def test_a_stored_message_of_an_impossible_sequence_is_refused(seq: bytes) -> None:
    headers = (
        b"NATS/1.0\r\nNats-Stream: S\r\nNats-Subject: a\r\nNats-Sequence: %b\r\n"
        b"Nats-Time-Stamp: 2026-01-01T00:00:00Z\r\n\r\n" % seq
    )

    with pytest.raises(ProtocolError, match="a direct get was answered with the headers"):
        stored(Reply(1, b"a", b"", headers, b""))


@pytest.mark.parametrize(
    "info",
    [
        {},
        {"config": 5, "state": {}},
        {"config": {"name": "S"}, "state": {"last_seq": "x"}},
        {"config": {"name": "S"}, "state": {"last_seq": None}},
        {"config": {"name": "S"}, "state": {"last_seq": 5}},
    ],
)
def test_a_stream_that_is_not_described_is_told(info: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError, match="the server describes a stream without what is needed"):
        plan.state_of(info)


@pytest.mark.parametrize("name", ["other", "\ud800"])
def test_an_object_whose_name_is_not_that_of_its_subject_is_refused(name: str) -> None:
    message = {
        "data": json.dumps({"name": name}).encode(),
        "seq": 1,
        "ts_ns": 1,
        "subject": f"$O.B.M.{encoded('mine')}",
    }

    with pytest.raises(ProtocolError, match="describes no object"):
        described("B", message)


@pytest.mark.parametrize("path", ["../other.parquet", "date=2026-01-01/../../x", "/etc/x", "s3://bucket/x"])
def test_a_file_outside_of_its_table_is_not_read(path: str) -> None:
    with pytest.raises(SparkError, match="which is not below it"):
        _below(path, "/lake/S")


def test_the_names_of_a_table_may_have_dots() -> None:
    assert _below("date=2026-01-01/part-..1.parquet", "/lake/S") == "date=2026-01-01/part-..1.parquet"
