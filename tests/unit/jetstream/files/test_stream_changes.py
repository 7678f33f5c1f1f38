"""Streams created, changed and deleted by the metadata writer: their visibility meanwhile, and files after a kill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.jetstream.manage.test_purging import StoredFixture
from tests.unit.jetstream.test_long_requests import API

from pyjs.base.disk import OsDisk
from pyjs.jetstream.files.stream_changes import StreamCreation
from pyjs.store.sync_set import SyncSet


@pytest.fixture
def js(tmp_path: Path) -> StoredFixture:
    return StoredFixture(tmp_path)


def config(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "subjects": [f"{name}.>"], "storage": "file", **more}


def answers(js: StoredFixture, *requests: tuple[str, object]) -> list[dict[str, Any]]:
    """Send all requests at once; return their answers in the order of the requests."""
    asker = js.asker()
    for number, (endpoint, body) in enumerate(requests):
        js.ask_later(asker, API + endpoint, body, b"_I.%d" % number)
    js.turns_until_idle()
    found = {frame.subject: json.loads(frame.payload) for frame in asker.frames()}
    return [found[b"_I.%d" % number] for number in range(len(requests))]


def test_requests_at_once_share_a_batch_of_syncs(js: StoredFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    js.api("STREAM.CREATE.first", config("first"))
    syncs: list[str] = []
    for name in ("sync_file", "sync_dir", "sync_filesystem"):
        monkeypatch.setattr(OsDisk, name, lambda disk, what, name=name: syncs.append(name))
    found = answers(js, *((f"STREAM.CREATE.s{n}", config(f"s{n}")) for n in range(50)))
    assert all(each["did_create"] for each in found)
    assert len([name for name in syncs if name != "sync_dir"]) <= 4
    assert len(syncs) <= 60  # one per new store for its directory entry, later


def test_a_stream_is_answered_and_there_when_it_is_durable(js: StoredFixture) -> None:
    js.hold_jobs = True
    asker = js.asker()
    js.ask_later(asker, API + "STREAM.CREATE.S", config("S"))
    js.one_turn()
    assert (asker.frames(), list(js.engine.streams)) == ([], [])
    js.hold_jobs = False
    js.turns_until_idle()
    assert json.loads(asker.frames()[0].payload)["did_create"]
    assert list(js.engine.streams) == ["S"]


def test_subjects_of_a_stream_that_is_being_made_are_taken(js: StoredFixture) -> None:
    first, second = answers(
        js, ("STREAM.CREATE.S", config("S")), ("STREAM.CREATE.T", config("T", subjects=["S.x"]))
    )
    assert first["did_create"]
    assert second["error"]["err_code"] == 10065


def test_bytes_of_a_stream_that_is_being_made_are_reserved(js: StoredFixture) -> None:
    js.engine.usage["file"].max = 150
    found = answers(js, *((f"STREAM.CREATE.{n}", config(n, max_bytes=100)) for n in ("A", "B")))
    assert [each.get("error", {}).get("err_code") for each in found] == [None, 10047]
    assert js.engine.usage["file"].reserved == 100


def test_streams_that_are_being_made_count(js: StoredFixture) -> None:
    js.engine.limits.max_streams = 1
    found = answers(js, *((f"STREAM.CREATE.{n}", config(n)) for n in ("A", "B")))
    assert [each.get("error", {}).get("err_code") for each in found] == [None, 10027]


def test_what_a_failed_creation_had_reserved_is_given_back(
    js: StoredFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: object) -> None:
        raise OSError(28, "No space left on device")

    js.api("STREAM.CREATE.first", config("first"))
    monkeypatch.setattr(OsDisk, "write_at", fails)
    (failed,) = answers(js, ("STREAM.CREATE.S", config("S", max_bytes=100)))
    assert failed["error"]["err_code"] == 10049
    assert js.engine.usage["file"].reserved == 0
    assert not (js.root / "$G/streams/S").exists()
    monkeypatch.undo()
    assert js.api("STREAM.CREATE.T", config("T", subjects=["S.>"]))["did_create"]


def test_one_stream_is_made_deleted_and_made_again_at_once(js: StoredFixture) -> None:
    create, delete = ("STREAM.CREATE.S", config("S")), ("STREAM.DELETE.S", b"")
    found = answers(js, create, delete, create, delete, create)
    assert all(each.get("did_create") or each.get("success") for each in found)
    assert js.kill().state("S")["messages"] == 0


def test_a_kill_after_a_deletion_leaves_nothing_to_be_found(js: StoredFixture) -> None:
    answers(js, ("STREAM.CREATE.S", config("S")), ("STREAM.DELETE.S", b""))
    again = js.kill()
    assert list(again.engine.streams) == []
    assert list((js.root / "$G/streams").iterdir()) == []


def test_a_kill_before_a_creation_is_durable_leaves_nothing(js: StoredFixture) -> None:
    js.api("STREAM.CREATE.first", config("first"))
    change = StreamCreation(f"{js.root}/$G/streams/S", b"", True)
    with SyncSet(OsDisk(), str(js.root)) as dirty:
        change.write(OsDisk(), dirty)
    again = js.kill()
    assert list(again.engine.streams) == ["first"]
    assert [line for level, line in again.log.lines if level == "ERR"] == []
    assert [path.name for path in (js.root / "$G/streams").iterdir()] == ["first"]
