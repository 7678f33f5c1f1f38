"""Segments that cannot be opened because clients use all descriptors: no message counts as missing."""

from __future__ import annotations

import json

import pytest
from tests.support.bulk import decode
from tests.unit.jetstream.consumer.test_consumer_recovery import Crowded

NS = 1_000_000_000
NOT_NOW = (503, 10023, "insufficient resources")


@pytest.fixture
def js() -> Crowded:
    """A server without free file descriptors; it has a stream of several segments, none of them mapped."""
    js = Crowded()
    config = js.api("STREAM.INFO.S")["config"]
    assert "error" not in js.api("STREAM.UPDATE.S", config | {"allow_direct": True})
    for seq in (5, 6):  # the messages of the open segment
        js.api("STREAM.MSG.DELETE.S", {"seq": seq, "no_erase": True})
    js.stream("S").store.maps.drop_maps()
    js.disk.none = True
    return js


def status(js: Crowded, subject: str, body: object = b"") -> str:
    return js.ask(subject, body).headers.split(b"\r\n")[0].decode()


@pytest.mark.parametrize(
    "request_", [{"seq": 1}, {"last_by_subj": "s.a"}, {"last_by_subj": "s.*"}, {"next_by_subj": "s.>"}]
)
def test_a_get_says_that_it_is_for_want_of_resources(js: Crowded, request_: dict[str, object]) -> None:
    assert js.error("STREAM.MSG.GET.S", request_) == NOT_NOW
    js.disk.none = False
    assert js.api("STREAM.MSG.GET.S", request_)["message"]["subject"] == "s.a"


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        ("S", {"seq": 1}),
        ("S", {"last_by_subj": "s.a"}),
        ("S", {"batch": 3, "seq": 1}),
        ("S", {"multi_last": ["s.a"]}),
        ("S.s.a", b""),
    ],
)
def test_a_direct_get_says_that_it_is_for_want_of_resources(
    js: Crowded, subject: str, body: dict[str, object] | bytes
) -> None:
    assert status(js, f"$JS.API.DIRECT.GET.{subject}", body) == "NATS/1.0 500 Insufficient Resources"


def test_a_bulk_read_says_that_it_is_for_want_of_resources(js: Crowded) -> None:
    answer = json.loads(js.ask("$JS.API.PYJS.BULK.READ.S").payload)
    assert (answer["error"]["code"], answer["error"]["err_code"]) == NOT_NOW[:2]
    js.disk.none = False
    assert decode(js.ask("$JS.API.PYJS.BULK.READ.S").payload).entries[0].seq == 1


def test_nothing_is_counted_as_lost(js: Crowded) -> None:
    js.error("STREAM.MSG.GET.S", {"seq": 1})
    assert js.stream("S").store.lost is None
    assert js.stream("S").store.msgs == 4


def test_the_last_sequence_of_a_subject_is_known_without_reading(js: Crowded) -> None:
    headers = {
        "Nats_Expected_Last_Subject_Sequence": "0",
        "Nats_Expected_Last_Subject_Sequence_Subject": "s.*",
    }
    refused = js.refused("s.b", **headers)
    assert refused == (400, 10071, "wrong last sequence: 4")


def test_a_consumer_of_the_last_message_begins_there(js: Crowded) -> None:
    # without a filter, it starts at the deleted message
    js.consumer(deliver_policy="last", filter_subject="s.>")
    js.disk.none = False
    assert [m.seq for m in js.pull(batch=9, no_wait=True)] == [4]


def test_deliveries_survive_a_purge_of_others(js: Crowded) -> None:
    # given
    js.disk.none = False
    js.consumer(ack_wait=NS)
    assert len(js.pull(batch=4)) == 4
    js.stream("S").store.maps.drop_maps()
    js.disk.none = True
    # when
    js.api("STREAM.PURGE.S", {"seq": 3})
    # then
    assert js.info()["num_ack_pending"] == 2
    js.disk.none = False
    js.advance(seconds=2)
    assert [m.seq for m in js.pull(batch=9, no_wait=True)] == [3, 4]


def test_a_message_that_is_due_and_leaves_a_marker_expires_later() -> None:
    # given
    js = Crowded()
    js.add(
        "M",
        subjects=["m"],
        storage="file",
        max_bytes=1 << 18,
        allow_msg_ttl=True,
        subject_delete_marker_ttl=NS,
    )
    js.publish("m", b"%030000d" % 1, Nats_TTL="1s")
    for number in range(3):
        js.publish("m", b"%030000d" % number)
    store = js.stream("M").store
    store.maps.drop_maps()
    js.disk.none = True
    js.advance(seconds=2)
    assert store.first_seq == 1
    # when
    js.disk.none = False
    js.advance(seconds=2)
    # then
    assert store.first_seq == 2
