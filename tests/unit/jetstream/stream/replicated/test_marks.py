"""The applied entries that a store reports: after a crash, a full disk, a stop, or in another group."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.disk import FaultyDisk, LossyDisk
from tests.unit.jetstream.stream.replicated.payloads import message, payload_of
from tests.unit.jetstream.stream.replicated.replicas import Keeper, Loopback, Member, config

from pyjs.base.disk import OsDisk
from pyjs.base.log import ListLog
from pyjs.jetstream.config.choices import FILE
from pyjs.jetstream.config.stream import StreamConfig
from pyjs.jetstream.stream.replicated import operations
from pyjs.jetstream.stream.replicated.payload import operation
from pyjs.jetstream.stream.replicated.replica import Replica
from pyjs.store.file.store import FileStore

S = 1_000_000_000
BIG = bytes(25_000)


def applied(member: Member, payload: bytes) -> None:
    """Apply a payload as the next entry, and write its effects."""
    index = member.replica.index + 1
    member.replica.apply(index, 1, index * S, payload)
    member.stream.commit()


def opened(directory: Path | str, disk: OsDisk | None = None, **options: Any) -> Member:
    """Return a member with its files in a directory."""
    return Member(Loopback(), config(storage=FILE, **options), str(directory), disk)


def file_store(member: Member) -> FileStore:
    """Return the file store of a member."""
    assert isinstance(member.store, FileStore)
    return member.store


def test_a_removal_stays_when_a_later_long_purge_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "STEP", 2)
    member = opened(tmp_path / "a")
    gone = payload_of([message(b"s.gone", [], BIG)])
    applied(member, payload_of([message(b"s.kept", [], b"1"), message(b"s.kept", [], b"2")]))
    applied(member, gone)
    applied(member, gone)
    applied(member, gone)  # from here on in the second segment, which records the removal
    applied(member, operations.delete(2, erase=False))
    for _ in range(4):
        applied(member, gone)
    assert len(file_store(member).segment_paths()) == 4
    member.replica.apply(10, 1, 10 * S, operations.purge(b"s.gone", 0, 0))
    (chore,) = member.stream.turn.take("chores")
    steps = 0
    while chore.go_on():
        member.stream.commit()
        file_store(member).sync_now()
        steps += 1
        died = tmp_path / f"{steps}"
        shutil.copytree(tmp_path / "a", died)
        again = opened(died)
        assert (again.store.applied_index, again.store.get(2)) == (9, None)
    assert steps > 2


def stopped_in_a_purge(directory: Path) -> tuple[int, bytes]:
    """Stop a store during a purge; return the number of its open segment and the stored index of it."""
    member = opened(directory)
    applied(member, payload_of([message(b"s.kept", [], b"0")]))
    for _ in range(3):
        applied(member, payload_of([message(b"s.gone", [], bytes(20_000))]))
    applied(member, payload_of([message(b"s.kept", [], BIG)]))  # in the second segment
    member.replica.apply(6, 1, 6 * S, operations.purge(b"s.gone", 0, 0))
    (chore,) = member.stream.turn.take("chores")
    assert chore.go_on()
    tails: list[tuple[int, bytes]] = []
    file_store(member).close(tails)
    return tails[0]


def test_a_stored_index_of_a_segment_that_is_cut_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "STEP", 2)
    tail = stopped_in_a_purge(tmp_path)
    log = opened(tmp_path / "other").js.engine.shared.log
    again = FileStore(OsDisk(), str(tmp_path), log, 65536, 7, stored_tail=tail, replicated=True)
    assert (again.applied_index, again.msgs, again.last_seq, again.lost) == (5, 5, 5, None)


def test_an_entry_that_could_not_be_written_is_not_durable(tmp_path: Path) -> None:
    disk = FaultyDisk(error=errno.ENOSPC, forever=True)
    member = opened(tmp_path, disk)
    applied(member, payload_of([message(b"s.a", [], b"1")]))
    disk.at = disk.calls
    applied(member, payload_of([message(b"s.a", [], b"2")]))
    assert member.replica.stopped is not None
    disk.at = -1
    file_store(member).sync_now()
    assert file_store(member).synced_index == 1
    assert not file_store(member).try_resume()
    assert opened(tmp_path).store.applied_index == 1


def copied(member: Member, to: Path) -> Path:
    """Return a directory with the files of a member, as a kill would leave them."""
    return Path(shutil.copytree(member.directory, to))


def test_marks_of_another_group_cut_nothing_off(tmp_path: Path) -> None:
    first = opened(tmp_path / "first")
    applied(first, payload_of([message(b"s.a", [], b"1")]))
    log = first.js.engine.shared.log
    alone = FileStore(OsDisk(), str(copied(first, tmp_path / "a")), log, 65536, 7)
    alone.store(b"s.b", b"", b"2", 2 * S)
    alone.flush()
    again = FileStore(
        OsDisk(), str(shutil.copytree(tmp_path / "a", tmp_path / "b")), log, 65536, 7, replicated=2
    )
    assert (again.applied_index, again.last_seq, again.lost) == (0, 2, None)


def test_a_stream_that_is_replicated_again_is_cut_at_the_marks_of_its_new_group(tmp_path: Path) -> None:
    first = opened(tmp_path / "a")
    applied(first, payload_of([message(b"s.a", [], b"1")]))
    log = first.js.engine.shared.log
    store = FileStore(OsDisk(), str(copied(first, tmp_path / "b")), log, 65536, 7, replicated=2)
    store.store(b"s.a", b"", b"a part of entry 1", 2 * S)
    store.flush()
    again = FileStore(
        OsDisk(), str(shutil.copytree(tmp_path / "b", tmp_path / "c")), log, 65536, 7, replicated=2
    )
    assert (again.applied_index, again.last_seq, again.group) == (0, 1, 2)


def test_a_clean_store_knows_that_its_entries_are_durable(tmp_path: Path) -> None:
    member = opened(tmp_path)
    applied(member, payload_of([message(b"s.a", [], b"1")]))
    member.store.close()
    again = file_store(opened(tmp_path))
    again.sync_now()
    assert again.synced_index == 1


def with_id(msg_id: str, subject: bytes = b"s.a") -> bytes:
    """Return the payload of one message with an id."""
    return payload_of([message(subject, [f"Nats-Msg-Id: {msg_id}"], b"x")])


def test_ids_of_messages_that_no_consumer_wants_outlive_a_restart(tmp_path: Path) -> None:
    member = opened(tmp_path / "a", retention="interest", allow_atomic=True)
    applied(member, with_id("1"))
    applied(member, payload_of([message(b"s.a", [], b"x")]))
    inside = [message(b"s.b", ["Nats-Msg-Id: 2"], b"x"), message(b"s.c", ["Nats-Msg-Id: 3"], b"x")]
    batch = operation("batch", b"".join(inside), b"b")
    applied(member, batch)
    applied(member, with_id("1"))
    assert (member.store.last_seq, member.store.msgs) == (4, 0)
    again = opened(copied(member, tmp_path / "b"), retention="interest", allow_atomic=True)
    assert again.state() == member.state()
    assert [msg_id for _, _, msg_id in again.state()["ids"]] == [b"1", b"2", b"3"]


def test_an_id_whose_message_was_gone_before_it_was_erased_stays(tmp_path: Path) -> None:
    member = opened(tmp_path / "a")
    applied(member, with_id("1"))
    applied(member, operations.delete(1, erase=False))
    applied(member, operations.delete(1, erase=True))
    again = opened(copied(member, tmp_path / "b"))
    assert again.state()["ids"] == member.state()["ids"] == [(1, S, b"1")]


def test_a_longer_window_does_not_bring_ids_back(tmp_path: Path) -> None:
    member = opened(tmp_path / "a", duplicate_window_ns=2 * S)
    for number in range(1, 9):
        applied(member, with_id(f"{number}"))
    for _ in range(3):
        applied(member, payload_of([message(b"s.a", [], b"x")]))  # no id is looked up meanwhile
    applied(member, operations.configure(config(storage=FILE, duplicate_window_ns=100 * S)))
    applied(member, with_id("last"))
    again = opened(copied(member, tmp_path / "b"), duplicate_window_ns=100 * S)
    for each in (member, again):
        assert [msg_id for _, _, msg_id in each.state()["ids"]] == [b"last"]
        applied(each, with_id("8"))
        assert each.store.last_seq == 13


def run_jobs(member: Member) -> None:
    """Run the jobs that a node gives to threads, and the chores that wait for them."""
    turn = member.stream.turn
    while turn.jobs or turn.chores:
        for job in turn.take("jobs"):
            job.run()
            job.finish(None)
        for chore in turn.take("chores"):
            if chore.go_on():
                turn.chores.append(chore)


def test_a_configuration_is_not_durable_before_the_entries_that_precede_it(tmp_path: Path) -> None:
    disk = LossyDisk()
    member = opened(tmp_path, disk)
    synced: list[int] = []

    def keep(of: StreamConfig) -> Iterator[None]:
        synced.append(file_store(member).synced_index)
        yield None

    member.replica = Replica(member.stream, Loopback(), Keeper(keep))
    for number in range(3):
        applied(member, with_id(f"{number}"))
    applied(member, operations.configure(config(storage=FILE, max_msgs=2)))
    run_jobs(member)
    assert synced == [3]
    assert member.store.msgs == 2


def test_a_configuration_is_not_kept_when_the_entries_before_it_cannot_be_synced(tmp_path: Path) -> None:
    disk = FaultyDisk(error=errno.EIO, forever=True)
    member = opened(tmp_path, disk)
    kept: list[StreamConfig] = []

    def keep(of: StreamConfig) -> Iterator[None]:
        kept.append(of)
        yield None

    member.replica = Replica(member.stream, Loopback(), Keeper(keep))
    applied(member, with_id("1"))
    member.replica.apply(2, 1, 2 * S, operations.configure(config(storage=FILE, max_msgs=2)))
    disk.at = disk.calls
    run_jobs(member)
    assert (kept, member.replica.stopped) == ([], member.store.error)
    assert member.stream.config.max_msgs == -1


def test_a_configuration_that_came_before_its_entry_evicts_nothing_until_then(tmp_path: Path) -> None:
    member = opened(tmp_path / "a")
    for number in range(8):
        applied(member, payload_of([message(b"s.a" if number > 4 else b"s.%d" % number, [], b"x")]))
    limits = {"max_msgs": 3, "max_msgs_per_subject": 1}
    again = opened(copied(member, tmp_path / "b"), **limits)  # killed after it had stored the configuration
    again.stream.note_change()
    again.turn()
    for each in (member, again):
        applied(each, operations.configure(config(storage=FILE, **limits)))
        run_jobs(each)
    assert again.state() == member.state()


def test_an_empty_stream_that_becomes_single_and_is_replicated_again_opens_after_a_stop(
    tmp_path: Path,
) -> None:
    def marked(store: FileStore) -> None:
        store.begin_copied_entry()
        store.end_copied_entry(5, 1, 5 * S, 0, b"")
        store.close()

    def store(group: int = 0) -> FileStore:
        return FileStore(OsDisk(), str(tmp_path), ListLog(), incarnation=7, replicated=group)

    first = store()
    first.replicate(3)
    marked(first)
    again = store()
    again.replicate(4)
    marked(again)
    found = store(4)
    assert (found.first_seq, found.last_seq, found.applied_index) == (0, 0, 5)
    found.close()
