"""A consumer's state is never ahead of what was stored, and is only behind it if that is reported."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import xxhash
from tests.support.disk import Crash, FaultyDisk, UnreadableDisk, damaged
from tests.unit.store.format.test_meta import hex_block

from pyjs.base.disk import OsDisk
from pyjs.base.errors import CorruptRecord
from pyjs.store.format import meta
from pyjs.store.format.meta import KIND_STATE, UnknownFormat, encode
from pyjs.store.open_files import OpenFiles
from pyjs.store.state.consumer_state import ConsumerStateFile, OpenLogs

DELTAS = [b"one", b"", b"three" * 20]


def fresh(directory: Path, disk: OsDisk | None = None) -> ConsumerStateFile:
    return ConsumerStateFile(disk or OsDisk(), str(directory))


def filled(directory: Path, snapshot: bytes = b"state", generations: int = 1) -> ConsumerStateFile:
    file = fresh(directory)
    for _ in range(generations):
        file.snapshot(snapshot)
    for delta in DELTAS:
        file.append(delta)
    return file


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_the_example_of_the_document_is_decoded_by_hand(tmp_path: Path) -> None:
    data = hex_block("### Example of a consumer's log")
    head, entry = data[:-18], data[-18:]
    assert head == encode(KIND_STATE, 1, {"state": b"{}"})
    assert entry[:4] == (2).to_bytes(4, "little")  # size
    assert entry[4:8] == bytes(4)
    assert entry[16:] == b"\x06\x09"  # delta: nak of message 9
    seed = int.from_bytes(head[-8:], "little")
    assert entry[8:16] == xxhash.xxh64_intdigest(entry[:4] + entry[16:], seed).to_bytes(8, "little")
    file = fresh(tmp_path)
    file.snapshot(b"{}")
    file.append(b"\x06\x09")
    assert (tmp_path / "log.1").read_bytes() == data
    assert (tmp_path / "snap.1").read_bytes() == head


def test_snapshot_and_deltas_come_back_and_go_on(tmp_path: Path) -> None:
    filled(tmp_path)
    again = fresh(tmp_path)
    assert again.load() == (b"state", DELTAS, [])
    again.append(b"four")
    assert fresh(tmp_path).load() == (b"state", [*DELTAS, b"four"], [])


def test_the_size_of_the_deltas_is_known(tmp_path: Path) -> None:
    file = fresh(tmp_path)
    file.snapshot(b"state")
    assert file.deltas_size == 0
    file.append(b"12345")
    assert file.deltas_size == 21
    again = fresh(tmp_path)
    again.load()
    assert again.deltas_size == 21


def test_a_new_snapshot_replaces_everything(tmp_path: Path) -> None:
    file = filled(tmp_path)
    file.snapshot(b"later")
    assert names(tmp_path) == ["log.2", "snap.2"]
    assert fresh(tmp_path).load() == (b"later", [], [])


def test_an_append_costs_one_write(tmp_path: Path) -> None:
    disk = FaultyDisk()
    file = fresh(tmp_path, disk)
    file.snapshot(b"state")
    file.append(b"first")
    calls = disk.calls
    file.append(b"second")
    assert disk.calls == calls + 1


@pytest.mark.parametrize("name", ["snap.1", "log.1"])
def test_a_lack_of_descriptors_is_no_damage(tmp_path: Path, name: str) -> None:
    class NoneLeft(OsDisk):
        def read_file(self, path: str) -> bytes:
            if path.endswith(name):
                raise OSError(errno.EMFILE, "Too many open files", path)
            return super().read_file(path)

    filled(tmp_path)

    with pytest.raises(OSError, match="Too many open files"):
        fresh(tmp_path, NoneLeft()).load()

    assert fresh(tmp_path).load() == (b"state", DELTAS, [])


def test_nothing_kept_is_absence(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fresh(tmp_path).load()
    (tmp_path / "snap.x").touch()
    (tmp_path / "snap.99999999999999999999").touch()
    with pytest.raises(FileNotFoundError):
        fresh(tmp_path).load()


@pytest.mark.parametrize("name", ["snap.2", "log.2"])
def test_any_damage_of_one_file_keeps_the_snapshot_and_a_head_of_the_deltas(
    tmp_path: Path, name: str
) -> None:
    filled(tmp_path, generations=2)
    whole = (tmp_path / name).read_bytes()
    for what, data in damaged(whole):
        (tmp_path / name).write_bytes(data)
        snapshot, deltas, problems = fresh(tmp_path).load()
        assert snapshot == b"state", what
        assert deltas == DELTAS[: len(deltas)], what
        assert name != "snap.2" or deltas == DELTAS
        assert problems or data == whole[: len(data)], what


@pytest.mark.parametrize("name", ["snap.1", "log.1"])
def test_a_missing_file_keeps_the_snapshot(tmp_path: Path, name: str) -> None:
    filled(tmp_path)
    (tmp_path / name).unlink()
    snapshot, deltas, problems = fresh(tmp_path).load()
    assert (snapshot, deltas) == (b"state", DELTAS if name == "snap.1" else [])
    assert problems == [f"{tmp_path}/{name} at 0: it is missing"]


def test_after_damage_a_snapshot_begins_a_clean_generation(tmp_path: Path) -> None:
    filled(tmp_path)
    data = (tmp_path / "log.1").read_bytes()
    (tmp_path / "log.1").write_bytes(data[:-3])
    file = fresh(tmp_path)
    snapshot, deltas, problems = file.load()
    assert (snapshot, deltas) == (b"state", DELTAS[:2])
    assert "bytes do not fit and are not used" in problems[0]
    file.snapshot(b"mended")
    file.append(b"next")
    assert fresh(tmp_path).load() == (b"mended", [b"next"], [])


def test_deltas_of_another_snapshot_never_fit(tmp_path: Path) -> None:
    for directory, snapshot in ((tmp_path / "a", b"state"), (tmp_path / "b", b"other")):
        directory.mkdir()
        filled(directory, snapshot)
    (tmp_path / "a/log.1").write_bytes((tmp_path / "b/log.1").read_bytes())
    snapshot, deltas, problems = fresh(tmp_path / "a").load()
    assert (snapshot, deltas, len(problems)) == (b"state", [], 1)


def test_a_file_of_another_generation_is_not_believed(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "snap.1").rename(tmp_path / "snap.5")
    snapshot, deltas, problems = fresh(tmp_path).load()
    assert (snapshot, deltas) == (b"state", DELTAS)
    assert "holds no snapshot of generation 5" in " ".join(problems)


def test_a_state_without_a_whole_snapshot_is_an_error_and_is_set_aside(tmp_path: Path) -> None:
    filled(tmp_path)
    for name in ("snap.1", "log.1"):
        (tmp_path / name).write_bytes(b"damaged")
    file = fresh(tmp_path)
    with pytest.raises(CorruptRecord, match=r"snap.1 at 0"):
        file.load()
    file.set_aside()
    assert names(tmp_path) == [".damaged-log.1", ".damaged-snap.1"]
    with pytest.raises(CorruptRecord, match="set aside"):
        fresh(tmp_path).load()
    file.snapshot(b"anew")
    assert names(tmp_path) == [".damaged-log.1", ".damaged-snap.1", "log.2", "snap.2"]
    assert fresh(tmp_path).load() == (b"anew", [], [])


def test_a_failing_disk_is_no_damage(tmp_path: Path) -> None:
    filled(tmp_path)
    assert fresh(tmp_path, UnreadableDisk("snap.1")).load()[:2] == (b"state", DELTAS)
    with pytest.raises(OSError, match="EIO"):
        fresh(tmp_path, UnreadableDisk("snap.1", "log.1")).load()


def test_a_newer_format_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(meta, "VERSION", 2)
        filled(tmp_path)
    with pytest.raises(UnknownFormat):
        fresh(tmp_path).load()


def test_a_crash_at_any_call_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    counting = FaultyDisk()
    file = fresh(tmp_path, counting)
    file.snapshot(b"state")
    first = counting.calls
    file.append(b"delta")
    file.snapshot(b"later")
    for at in range(first, counting.calls):
        directory = tmp_path / str(at)
        directory.mkdir()
        file = fresh(directory, FaultyDisk(at))
        file.snapshot(b"state")
        with pytest.raises(Crash):
            _append_and_snapshot(file)
        again = fresh(directory)
        assert again.load()[:2] in [(b"state", []), (b"state", [b"delta"]), (b"later", [])]
        again.snapshot(b"after")
        assert fresh(directory).load() == (b"after", [], [])
        assert len([name for name in names(directory) if name != "snap.tmp"]) == 2


def test_an_error_at_any_call_loses_nothing_that_was_kept(tmp_path: Path) -> None:
    counting = FaultyDisk()
    file = fresh(tmp_path, counting)
    file.snapshot(b"state")
    file.append(b"delta")
    first = counting.calls
    file.snapshot(b"later")
    for at in range(first, counting.calls):
        directory = tmp_path / str(at)
        directory.mkdir()
        file = fresh(directory, FaultyDisk(at, errno.EIO))
        file.snapshot(b"state")
        file.append(b"delta")
        with pytest.raises(OSError, match="EIO"):
            file.snapshot(b"later")
        assert fresh(directory).load()[:2] in [(b"state", [b"delta"]), (b"later", [])]
        file.snapshot(b"again")
        assert fresh(directory).load() == (b"again", [], [])


def test_a_snapshot_behind_unsynced_deltas_has_the_name_of_the_directory_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    disk = OsDisk()
    monkeypatch.setattr(disk, "sync_dir", synced.append)
    file = ConsumerStateFile(disk, str(tmp_path / "c"), first=b"first")
    file.begun()
    file.append(b"delta")

    file.snapshot(b"state")

    assert str(tmp_path) in synced


def test_few_logs_are_open_at_a_time(tmp_path: Path) -> None:
    disk = OsDisk()
    logs = OpenLogs(disk, OpenFiles(disk, 2))
    files = []
    for name in "abc":
        (tmp_path / name).mkdir()
        files.append(ConsumerStateFile(disk, f"{tmp_path}/{name}", logs))
        files[-1].snapshot(b"")
    for _ in range(3):
        for file in files:
            file.append(b"x")
    assert [fresh(tmp_path / name).load()[1] for name in "abc"] == [[b"x"] * 3] * 3
    logs.files.close_below(str(tmp_path))
    logs.files.close_below(str(tmp_path))
    files[0].append(b"y")
    assert fresh(tmp_path / "a").load()[1] == [b"x", b"x", b"x", b"y"]


def _append_and_snapshot(file: ConsumerStateFile) -> None:
    file.append(b"delta")
    file.snapshot(b"later")
