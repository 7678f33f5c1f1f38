"""States of consumers in archives: messages that were given up stay unacknowledged, even below the ack floor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support import archive_bytes as made
from tests.support.archive_bytes import Restores
from tests.unit.jetstream.deadfixture import Dead

from pyjs.jetstream.transfer.consumer_states import archived, read_archived, stored_state
from pyjs.subjects.overlap import at_once


def through_an_archive(js: Dead) -> dict[str, Any]:
    """Return the snapshot that a restore makes of the consumer."""
    _, state = at_once(read_archived(archived(js.core(), 4), "c"))
    found: dict[str, Any] = json.loads(at_once(stored_state(state)))
    return found


def test_given_up_messages_below_the_ack_floor_and_their_reasons_are_kept() -> None:
    js = Dead(retention="workqueue")
    js.consumer(max_deliver=2)
    js.fill(4)
    js.api("STREAM.DELETE.D")
    got = js.pull(batch=4)
    js.ack(got[0], b"+TERM bad")
    js.ack(got[1], b"+TERM")
    js.ack(got[2])
    js.ack(got[3])
    assert js.position()[1] == (4, 4)
    found = through_an_archive(js)
    assert (found["floor"], found["spent"]) == ([4, 4], [[1, 1], [2, 1]])
    assert found["terms"] == [[1, "bad"], [2, ""]]


def test_a_restored_work_queue_keeps_what_was_given_up(tmp_path: Path) -> None:
    restores = Restores(tmp_path)
    consumer = made.CONSUMER | {"state": made.CONSUMER["state"] | {"pyjs_given_up": {"1": 1}}}
    answer = restores.restore(made.archive(made.entries(consumer=consumer)), retention="workqueue")
    assert (answer["state"]["first_seq"], answer["state"]["messages"]) == (1, 3)
    restores.node.node.stop()


@pytest.mark.parametrize(
    "fields",
    [
        {"pyjs_given_up": {"1": -1}},
        {"pyjs_given_up": {"1": 2**63}},
        {"pyjs_given_up": [1]},
        {"pyjs_terms": {"x": "y"}},
        {"pyjs_terms": {"1": 1}},
    ],
)
def test_a_wrong_state_is_refused(tmp_path: Path, fields: dict[str, Any]) -> None:
    restores = Restores(tmp_path)
    consumer = made.CONSUMER | {"state": made.CONSUMER["state"] | fields}
    answer = restores.restore(made.archive(made.entries(consumer=consumer)))
    assert "failed to decode consumer" in answer["error"]["description"]
    restores.node.node.stop()


def test_a_reason_in_an_archive_is_one_line_of_bounded_size() -> None:
    state = {
        **made.CONSUMER["state"],
        "pyjs_given_up": {"1": 1},
        "pyjs_terms": {"1": "a\r\nNats-Rollup: all" + "x" * 5000, "9": "of no message"},
    }
    _, read = at_once(read_archived(json.dumps({**made.CONSUMER, "state": state}).encode(), "c"))
    ((seq, reason),) = json.loads(at_once(stored_state(read)))["terms"]
    assert (seq, reason[:18], len(reason)) == (1, "a Nats-Rollup: all", 1024)
