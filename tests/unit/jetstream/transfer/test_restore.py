"""A restore creates a complete stream or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import archive_bytes as made
from tests.support.archive_bytes import Restores

from pyjs.archive.entries import END, encode

END_ENTRY = encode(END.name, END.ts, END.seq, END.headers, END.payload)


@pytest.fixture
def restores(tmp_path: Path) -> Iterator[Restores]:
    found = Restores(tmp_path)
    yield found
    found.node.node.stop()


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_a_restored_stream_has_messages_consumers_and_their_state(restores: Restores, storage: str) -> None:
    # when
    answer = restores.restore(made.archive(), storage=storage)
    # then
    assert answer["type"] == "io.nats.jetstream.api.v1.stream_create_response"
    assert (answer["state"]["messages"], answer["state"]["last_seq"]) == (3, 3)
    info = restores.ask("CONSUMER.INFO.S.c")
    assert info["delivered"]["stream_seq"] == 2
    assert info["ack_floor"] == {"consumer_seq": 1, "stream_seq": 1}
    assert (info["num_ack_pending"], info["num_redelivered"], info["num_pending"]) == (1, 1, 1)


def test_a_restored_file_stream_is_there_after_a_restart(restores: Restores) -> None:
    # given
    restores.restore(made.archive(), storage="file")
    # when
    restores.node.node.stop()
    restores.start()
    # then
    assert made.names(restores.client) == ["S"]
    assert restores.ask("CONSUMER.INFO.S.c")["num_ack_pending"] == 1


def test_an_existing_name_is_refused(restores: Restores) -> None:
    # given
    restores.restore(made.archive())
    # when
    answer = restores.restore(made.archive())
    # then
    assert (answer["error"]["err_code"], answer["error"]["code"]) == (10130, 400)


def test_sequences_of_deleted_last_messages_are_not_used_again(restores: Restores) -> None:
    # given
    state = made.STATE | {"last_seq": 9}
    # when
    answer = restores.restore(made.archive(made.entries(state)), storage="file")
    # then
    assert answer["state"]["last_seq"] == 9


def test_an_empty_stream_keeps_its_sequences(restores: Restores) -> None:
    # given
    state = {"first_seq": 11, "last_seq": 10, "bytes": 0, "consumer_count": 0}
    parts = [made.entries(state)[0], END_ENTRY]
    # when
    answer = restores.restore(made.archive(parts), storage="file")
    # then
    assert (answer["state"]["first_seq"], answer["state"]["last_seq"]) == (11, 10)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([], "backup was truncated"),
        (made.entries()[:-1], "backup was truncated"),
        (made.entries()[1:], "expected state.json first"),
        ([*made.entries()[:2], made.entries()[3], *made.entries()[2:]], "out of order"),
        ([*made.entries()[:3], made.entries()[2], END_ENTRY], "out of order"),
        ([*made.entries(), made.entries()[2]], "goes on after its end"),
        (made.entries({"first_seq": 1 << 63, "last_seq": 3}), "error in state.json"),
        (made.entries({"first_seq": -1}), "error in state.json"),
        (made.entries(made.STATE | {"consumer_count": 2}), "expected consumer"),
        ([*made.entries()[:2], encode(b"s.>", 1, 4, b"", b"")], "has no valid subject"),
        ([*made.entries()[:2], encode(b"s.a", 1, 4, b"junk", b"")], "has no valid headers"),
        ([*made.entries()[:2], encode(b"s.a", -5, 4, b"", b"")], "has the time -5"),
        ([*made.entries()[:2], encode(b"s.a", 1, 1 << 63, b"", b"")], "claims the sequence"),
        (
            [*made.entries()[:2], b"\x01\x02\x04\x00" + b"\xff" * 8 + b"\x7f" + b"a"],
            "claims 9223372036854775807 bytes",
        ),
        ([*made.entries()[:2], b"\xff" * 10], "number of more than"),
        (made.entries(consumer={"config": {}, "state": {}}), "failed to decode consumer"),
        (
            made.entries(consumer=made.CONSUMER | {"config": {"durable_name": "d"}}),
            "configuration of another one",
        ),
    ],
)
def test_an_invalid_archive_is_refused_and_leaves_nothing(
    restores: Restores, parts: list[bytes], text: str
) -> None:
    # when
    answer = restores.restore(made.archive(parts), storage="file")
    # then
    assert text in answer["error"]["description"]
    assert made.names(restores.client) == []
    assert restores.left() == []


def test_a_message_above_max_msg_size_is_refused(restores: Restores) -> None:
    answer = restores.restore(made.archive(), max_msg_size=3)
    assert "exceeds maximum message size" in answer["error"]["description"]


def test_a_restore_beyond_the_limit_of_the_server_is_refused(tmp_path: Path) -> None:
    # given
    restores = Restores(tmp_path)
    restores.options.jetstream.max_storage = 50
    restores.node.node.stop()
    restores.start()
    # when
    answer = restores.restore(made.archive(), storage="file")
    # then
    assert answer["error"]["err_code"] == 10047
    assert restores.left() == []
    restores.node.node.stop()


def test_a_silent_client_leaves_nothing(restores: Restores) -> None:
    # given
    config = {"name": "S", "subjects": ["s.>"]}
    subject = restores.ask("STREAM.RESTORE.S", {"config": config})["deliver_subject"].encode()
    assert restores.client.request(subject, made.archive()).payload == b""
    # when
    restores.node.advance(seconds=6)
    # then
    assert restores.left() == []
    assert made.names(restores.client) == []
    restores.client.send(b"PUB %b _INBOX.x 0\r\n\r\n" % subject)
    assert b"503" in restores.client.take()


def test_a_stop_during_a_restore_leaves_nothing(restores: Restores) -> None:
    # given
    config = {"name": "S", "subjects": ["s.>"]}
    subject = restores.ask("STREAM.RESTORE.S", {"config": config})["deliver_subject"].encode()
    restores.client.request(subject, made.archive())
    assert [name.startswith(".deleting-") for name in restores.left() if name.startswith(".")]
    # when
    restores.node.node.stop()
    restores.start()
    # then
    assert made.names(restores.client) == []
    assert restores.left() == []
