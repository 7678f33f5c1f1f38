"""Metadata about dead letters: the values that are refused, and the texts of the errors."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.jetstream.deadfixture import PREFIX_KEY, STREAM_KEY
from tests.unit.jetstream.jsfixture import JetStreamFixture


@pytest.fixture
def js() -> JetStreamFixture:
    made = JetStreamFixture()
    made.add("S", subjects=["s.>"])
    made.add("D", subjects=["$DLQ.>", "dead.S.>"])
    return made


def edit(js: JetStreamFixture, name: str = "S", **fields: Any) -> str:
    """Update a stream; return the text of the error without its beginning, or ""."""
    config = js.api(f"STREAM.INFO.{name}")["config"]
    error = js.api(f"STREAM.UPDATE.{name}", {**config, **fields}).get("error")
    if error is None:
        return ""
    assert (error["code"], error["err_code"]) == (400, 20005), error
    text: str = error["description"]
    return text.removeprefix("dead letters: ").removeprefix(f"{STREAM_KEY}: ")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "the stream \"N\" has no subject that covers $DLQ.S.>: add that to its subjects"),
        ({"subjects": ["$DLQ.S.*.>"]}, "has no subject that covers $DLQ.S.>"),
        ({"subjects": ["$DLQ.S.>"], "no_ack": True}, "has no_ack, which does not suit"),
        ({"subjects": ["$DLQ.S.>"], "retention": "interest"}, "retention interest, which drops letters"),
        ({"subjects": ["$DLQ.S.>"], "allow_msg_counter": True}, "has allow_msg_counter"),
        ({"subjects": ["$DLQ.S.>"], "allow_msg_schedules": True, "allow_rollup_hdrs": True}, "allow_msg_schedules"),
        ({"subjects": ["$DLQ.S.>"], "subject_transform": {"src": "$DLQ.>", "dest": "d.>"}}, "a subject transform"),
        ({"subjects": [], "mirror": {"name": "D"}}, "the stream \"N\" is a mirror"),
    ],
)  # fmt: skip
def test_a_stream_that_cannot_take_letters_is_refused(
    js: JetStreamFixture, fields: dict[str, Any], text: str
) -> None:
    js.api("STREAM.DELETE.D")
    js.add("D")
    js.add("N", **{"subjects": ["n"], **fields})
    assert text in edit(js, metadata={STREAM_KEY: "N"})
    assert js.stream("S").config.metadata.get(STREAM_KEY) is None


def test_a_sealed_stream_is_refused(js: JetStreamFixture) -> None:
    assert edit(js, "D", sealed=True) == ""
    assert "has sealed" in edit(js, metadata={STREAM_KEY: "D"})


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({STREAM_KEY: "X"}, 'the stream "X" does not exist: create it first'),
        ({STREAM_KEY: "X" * 100_000}, f'the stream "{"X" * 64}..." does not exist: create it first'),
        ({STREAM_KEY: "S"}, f"{STREAM_KEY} is the stream itself, whose letters would never end: use another stream"),
        ({"_pyjs.dead_letter_streams": "D"}, 'metadata "_pyjs.dead_letter_streams" is unknown: the keys are'),
        ({STREAM_KEY: "D", PREFIX_KEY: "a..b"}, f'{PREFIX_KEY} is "a..b": it is the start of a subject'),
        ({STREAM_KEY: "D", PREFIX_KEY: "a.*"}, f'{PREFIX_KEY} is "a.*"'),
        ({STREAM_KEY: "D", PREFIX_KEY: "$JS.API"}, "and not in $JS, $JSC, $NRG, $SYS"),
        ({STREAM_KEY: "D", PREFIX_KEY: "p" * 256}, "of at most 255 bytes"),
        ({STREAM_KEY: "D", PREFIX_KEY: "other"}, "no subject that covers other.S.>"),
    ],
)  # fmt: skip
def test_wrong_metadata_is_refused(js: JetStreamFixture, metadata: dict[str, str], text: str) -> None:
    assert text in edit(js, metadata=metadata)
    created = js.error("STREAM.CREATE.S2", {"name": "S2", "subjects": ["t"], "metadata": metadata})
    assert created[:2] == (400, 20005)


def test_metadata_of_a_megabyte_is_refused_as_before(js: JetStreamFixture) -> None:
    config = {**js.api("STREAM.INFO.S")["config"], "metadata": {STREAM_KEY: "D" * 1_000_000}}
    assert js.error("STREAM.UPDATE.S", config)[1] == 10052


def test_right_metadata_is_kept_by_edits_of_other_options(js: JetStreamFixture) -> None:
    wanted = {STREAM_KEY: "D", PREFIX_KEY: "dead", "team": "bread"}
    assert edit(js, metadata=wanted) == ""
    assert edit(js, max_msgs=7) == ""
    shown = js.api("STREAM.INFO.S")["config"]["metadata"]
    assert {key: shown[key] for key in wanted} == wanted
    # a stream for letters that was deleted does not stand in the way of other changes
    js.api("STREAM.DELETE.D")
    assert edit(js, max_msgs=8) == ""
    assert edit(js, metadata={STREAM_KEY: "D"}) == 'the stream "D" does not exist: create it first'
    assert edit(js, metadata={}) == ""


def test_circles_are_refused_and_chains_are_not(js: JetStreamFixture) -> None:
    js.add("E", subjects=["e.E.>", "$DLQX"])
    assert edit(js, "E", subjects=["e.D.>"]) == ""
    assert edit(js, "D", metadata={STREAM_KEY: "E", PREFIX_KEY: "e"}) == ""
    assert edit(js, metadata={STREAM_KEY: "D"}) == ""
    assert edit(js, "S", subjects=["s.>", "x.E.>"]) == ""
    text = edit(js, "E", metadata={STREAM_KEY: "S", PREFIX_KEY: "x"})
    assert text == f"{STREAM_KEY} leads in a circle: E -> S -> D -> E: end it at one of these streams"


def test_a_long_chain_is_refused(js: JetStreamFixture) -> None:
    for number in range(70):
        target = f"C{number - 1}" if number else ""
        metadata = {STREAM_KEY: target, PREFIX_KEY: f"p{number}"}
        fields = {"name": f"C{number}", "subjects": [f"p{number + 1}.>"], "metadata": metadata}
        error = js.api(f"STREAM.CREATE.C{number}", fields).get("error")
        if error is not None:
            assert "leads over more than 64 streams: C" in error["description"]
            assert number > 60
            return
    raise AssertionError("no chain was too long")


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"metadata": {STREAM_KEY: "X"}}, 'the stream "X" does not exist'),
        ({"metadata": {STREAM_KEY: "D", PREFIX_KEY: "b"}}, "no subject that covers b.S.>"),
        ({"metadata": {"_pyjs.dead_letter": "D"}}, "is unknown"),
        ({"metadata": {STREAM_KEY: "D"}, "ack_policy": "none"}, "ack policy none gives no message up"),
    ],
)
def test_wrong_metadata_of_a_consumer_is_refused(
    js: JetStreamFixture, config: dict[str, Any], text: str
) -> None:
    made = {"durable_name": "c", "ack_policy": "explicit", **config}
    code, number, found = js.error("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": made})
    assert (code, number) == (400, 20005)
    assert text in found


def test_a_consumer_keeps_its_metadata_although_its_stream_for_letters_is_gone(js: JetStreamFixture) -> None:
    config = {"durable_name": "c", "ack_policy": "explicit", "metadata": {STREAM_KEY: "D"}}
    assert "config" in js.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    js.api("STREAM.DELETE.D")
    changed = js.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": {**config, "max_ack_pending": 7}})
    assert changed["config"]["metadata"][STREAM_KEY] == "D"
