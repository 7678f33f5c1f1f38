"""Names and values of Spark's Kafka source: they are accepted, or the error names the option to use."""

from __future__ import annotations

import re

import pytest
from spark.tests.support.documents import SPARK, quoted, table

from pyjs_spark.errors import OptionError
from pyjs_spark.options.reading import BY_NAME, INSTEAD, Options, check_stream, parse_options
from pyjs_spark.options.values import Position
from pyjs_spark.options.writing import BY_NAME as BY_NAME_OF_WRITING
from pyjs_spark.options.writing import is_of_writing, parse_sink_options


def parsed(**given: str) -> Options:
    return parse_options({"stream": "S", **given})


@pytest.mark.parametrize(
    ("ours", "kafkas"),
    [
        ({"maxRowsPerTrigger": "5"}, {"maxOffsetsPerTrigger": "5"}),
        ({"minRowsPerTrigger": "5"}, {"minOffsetsPerTrigger": "5"}),
        ({"includeHeaders": "map"}, {"includeHeaders": "true"}),
        ({"startingOffsets": '{"S": "latest"}'}, {"startingOffsets": '{"S": -1}'}),
        ({"startingOffsets": '{"S": "earliest"}'}, {"startingOffsets": '{"S": {"0": -2}}'}),
        ({"startingOffsets": '{"S": 7}'}, {"startingOffsets": '{"S": {"0": 7}}'}),
        ({"endingOffsets": '{"S": "latest"}'}, {"endingOffsets": '{"S": -1}'}),
    ],
)
def test_kafkas_way_means_the_same(ours: dict[str, str], kafkas: dict[str, str]) -> None:
    assert parsed(**kafkas) == parsed(**ours)


def test_subscribe_names_the_stream_and_topic_the_subject() -> None:
    assert parse_options({"subscribe": "A,B"}).streams == ("A", "B")
    assert parse_sink_options({"stream": "S", "topic": "a.b"}).subject == "a.b"
    assert is_of_writing({"topic": "a.b"})


def test_times_of_each_stream() -> None:
    found = parsed(startingOffsetsByTimestamp='{"S": 5, "B": {"0": "2026-01-01T00:00:00Z"}}')

    assert found.starting_times == (("B", 1767225600 * 10**9), ("S", 5 * 10**6))
    assert parse_options(
        {"bucket": "B", "includeHistory": "true", "endingOffsetsByTimestamp": '{"B": 5}'}
    ).ending_times == (("KV_B", 5 * 10**6),)


@pytest.mark.parametrize(
    "value", ["5", "{}", "[]", '{"S": {"1": 5}}', '{"S": true}', '{"S": "then"}', '{"S": -1}']
)
def test_times_that_are_none_are_refused(value: str) -> None:
    with pytest.raises(OptionError, match=r'allowed: JSON such as \{"ORDERS": 1795000000000\}'):
        parsed(startingOffsetsByTimestamp=value)


@pytest.mark.parametrize("value", ['{"S": -3}', '{"S": {"0": 5, "1": 6}}', '{"S": {"1": 5}}'])
def test_offsets_that_are_none_are_refused(value: str) -> None:
    with pytest.raises(OptionError, match="option startingOffsets="):
        parsed(startingOffsets=value)
    with pytest.raises(OptionError, match="option endingOffsets="):
        parsed(endingOffsets='{"S": -2}')


@pytest.mark.parametrize("other", ["maxOffsetsPerTrigger", "MAXOFFSETSPERTRIGGER"])
def test_two_names_of_one_option_are_refused(other: str) -> None:
    with pytest.raises(
        OptionError, match=r"(?i)options maxRowsPerTrigger and maxOffsetsPerTrigger have the same"
    ):
        parsed(maxRowsPerTrigger="5", **{other: "5"})
    with pytest.raises(OptionError, match="options subject and topic have the same meaning"):
        parse_sink_options({"stream": "S", "subject": "a", "topic": "b"})


@pytest.mark.parametrize("name", INSTEAD)
def test_names_without_a_meaning_here_say_what_to_write(name: str) -> None:
    with pytest.raises(OptionError, match="is of Kafka: "):
        parsed(**{name: "x"})


def test_a_streaming_read_has_no_end() -> None:
    with pytest.raises(OptionError, match="endingOffsetsByTimestamp is not allowed in a streaming read"):
        check_stream(parsed(endingOffsetsByTimestamp='{"S": 5}'))


def test_a_position_is_a_value() -> None:
    assert parsed(startingOffsets='{"S": -1}').starting_offsets == Position(streams=(("S", "latest"),))


def test_the_document_has_every_name_and_no_other() -> None:
    lines = table(SPARK.read_text(), "Kafka")
    ours = {name for line in lines for name in re.findall(r"`(\w+)`", line[1])}
    known = {*BY_NAME, *BY_NAME_OF_WRITING}

    assert {quoted(line[0]).lower() for line in lines} >= {*INSTEAD} - {"groupidprefix"}
    aliases = {option.alias for option in [*BY_NAME.values(), *BY_NAME_OF_WRITING.values()] if option.alias}
    assert aliases <= {quoted(line[0]) for line in lines}
    assert {name for name in ours if name.lower() not in known} <= {"map", "seq", "ts", "data"}
