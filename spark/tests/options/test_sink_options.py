"""Options of a write: the permitted ones, and that all others are refused."""

from __future__ import annotations

import pytest

from pyjs_spark.errors import OptionError
from pyjs_spark.nats.settings import ConnectSettings
from pyjs_spark.options.writing import SinkOptions, is_of_writing, parse_sink_options


def test_a_stream_is_enough() -> None:
    assert parse_sink_options({"stream": "OUT"}) == SinkOptions("OUT")


def test_options_of_sparks_own_are_left_to_spark() -> None:
    assert parse_sink_options({"stream": "OUT", "checkpointLocation": "/x", "queryname": "q"}) == SinkOptions(
        "OUT"
    )


def test_every_option_has_its_place() -> None:
    said = {
        "stream": "OUT", "servers": "nats://h:1", "subject": "a.b", "msgIdColumn": "key", "sinkId": "copy-1",
        "delivery": "ExactlyOnce", "progressBucket": "b", "expectedStream": "true", "maxInFlight": "10",
        "ackTimeout": "5s", "retries": "0",
    }  # fmt: skip

    assert parse_sink_options({name.lower(): value for name, value in said.items()}) == SinkOptions(
        stream="OUT",
        connect=ConnectSettings(("nats://h:1",)),
        subject="a.b",
        msg_id_column="key",
        sink_id="copy-1",
        progress_bucket="b",
        expected_stream=True,
        max_in_flight=10,
        ack_timeout_s=5.0,
        retries=0,
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "option stream is missing: name the stream to write to"),
        ({"stream": "A,B"}, "stream=A,B is not allowed; allowed: the name of one stream"),
        ({"stream": "A*"}, "the name of one stream"),
        (
            {"subject": "a.*"},
            "subject=a.* is not allowed; allowed: one subject without wildcards .* it has the wildcard",
        ),
        ({"subject": "a b"}, "a space or a control character"),
        ({"sinkId": "a.b"}, "sinkId=a.b is not allowed; allowed: up to 200 letters"),
        ({"delivery": "once"}, "delivery=once is not allowed; allowed: exactlyOnce or atLeastOnce"),
        ({"msgId": "column"}, "allowed: auto or header"),
        ({"maxInFlight": "0"}, "allowed: a whole number from 1 to 1000000"),
        ({"msgId": "header", "msgIdColumn": "x"}, "options msgIdColumn and msgId=header name two places"),
        ({"delivery": "atLeastOnce", "sinkId": "x"}, "option sinkId has no use with delivery=atLeastOnce"),
        ({"delivery": "atLeastOnce", "progressBucket": "x"}, "option progressBucket has no use"),
        ({"startingOffsets": "latest"}, "option startingOffsets is for reading; leave it out of a write"),
        ({"path": "/x"}, "option path: a write goes to a stream; call save"),
        ({"maxInFlite": "3"}, "option maxInFlite is unknown; did you mean maxInFlight"),
        ({"qqqqq": "3"}, "option qqqqq is unknown; there are ackTimeout, apiPrefix"),
        ({"password": "x"}, "option password is given without user"),
    ],
)
def test_what_is_wrong_is_told(given: dict[str, str], said: str) -> None:
    base = {} if not given else {"stream": "OUT"}
    with pytest.raises(OptionError, match=said):
        parse_sink_options({**base, **given})


def test_options_of_writing_are_known_as_such() -> None:
    assert is_of_writing({"stream": "A", "SINKID": "x"})
    assert is_of_writing({"stream": "A", "checkpointlocation": "/x"})
    assert is_of_writing({"stream": "A", "maxinflite": "1"})
    assert not is_of_writing({"stream": "A", "subjekts": "x"})
    assert not is_of_writing({"stream": "A", "servers": "x", "subjects": "y"})
