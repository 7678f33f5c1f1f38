"""Stores that are encrypted or compressed: the cost of damage, and that no part of a key stream is used twice."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from random import Random

import pytest
from tests.support.disk import Crash, FaultyDisk, crash_is_printed
from tests.unit.store.encodings import ENCODINGS, image_of, plain_index, upkeep
from tests.unit.store.file_state import INCARNATION, state_of
from tests.unit.store.segment_files import index_of, without_erasures

from pyjs.base.disk import OsDisk
from pyjs.base.log import ListLog
from pyjs.store.file.store import FileStore
from pyjs.store.format.outer_header import CODEC_ZSTD, read_outer_header

SEGMENT_SIZE = 40_000
ENCODED = pytest.mark.parametrize("name", [name for name in ENCODINGS if name != "plain"])
ENCRYPTED = pytest.mark.parametrize("name", ["chacha", "aes", "chacha and zstd"])


def open_store(
    directory: Path,
    name: str,
    disk: OsDisk | None = None,
    log: ListLog | None = None,
    size: int = SEGMENT_SIZE,
) -> FileStore:
    key, codec = ENCODINGS[name]
    store = FileStore(disk or OsDisk(), str(directory), log or ListLog(), size, INCARNATION, key)
    store.writer.set_meta(b"the metadata")
    store.compactor.set_codec(codec)
    return store


SUBJECTS = [b"s.%d" % number for number in range(11)]


def fill(store: FileStore, first: int = 0, count: int = 500) -> None:
    for number in range(first, first + count):
        store.store(SUBJECTS[number % 11], b"", b"plain-%04d" % number + b"x" * 200, 1000 + number)
    store.flush()
    store.sync_now()


def encodings(directory: Path) -> list[int]:
    found = [read_outer_header(path.read_bytes()[:64], path.name) for path in sorted(directory.glob("*.seg"))]
    return [0 if outer is None else outer.flags for outer in found]


def without_segments(state: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in state.items() if key not in ("segments", "lost")}


@ENCODED
def test_sealed_segments_get_the_form_that_the_stream_wants(tmp_path: Path, name: str) -> None:
    key, codec = ENCODINGS[name]
    cipher = key.algorithm if key is not None else 0
    store = open_store(tmp_path, name)
    fill(store)
    expected = state_of(store)
    assert upkeep(store) == (3 if codec else 0)
    assert encodings(tmp_path) == [cipher | codec] * 3 + [cipher]
    assert state_of(store) == expected
    store.close()
    again = open_store(tmp_path, name)
    assert state_of(again) == expected
    again.close()
    for path in tmp_path.glob("*.seg"):
        index = plain_index(path.with_suffix(".idx"), key)
        assert without_erasures(index) == without_erasures(index_of(image_of(OsDisk(), path, key)))


@ENCRYPTED
def test_nothing_plain_is_in_any_file(tmp_path: Path, name: str) -> None:
    store = open_store(tmp_path, name)
    fill(store)
    store.drop_seq(7, True)
    upkeep(store)
    store.close()
    for path in tmp_path.iterdir():
        data = path.read_bytes()
        assert b"plain-" not in data, path
        assert not all(name in data for name in SUBJECTS), path  # a single name may occur by chance
        assert b"x" * 16 not in data, path


@ENCODED
def test_plain_segments_are_brought_into_the_form(tmp_path: Path, name: str) -> None:
    store = open_store(tmp_path, "plain")
    fill(store)
    for seq in range(1, 160):  # most messages of the first segment are removed
        if seq % 10:
            store.drop_seq(seq)
    store.flush()
    expected = state_of(store)
    store.close()
    key, codec = ENCODINGS[name]
    store = open_store(tmp_path, name)
    assert state_of(store) == expected
    store.writer.start_over()
    fill(store, 500, 3)
    expected = state_of(store)
    assert upkeep(store) == 4
    cipher = key.algorithm if key is not None else 0
    assert encodings(tmp_path)[:3] == [cipher | codec] * 3
    assert encodings(tmp_path)[-1] == cipher
    assert state_of(store) == expected
    for path in tmp_path.glob("*.idx"):
        data = path.read_bytes()
        assert key is None or not all(name in data for name in SUBJECTS)
    store.release()
    again = open_store(tmp_path, name)
    assert state_of(again) == expected
    again.release()


@ENCODED
def test_a_damaged_byte_anywhere_costs_its_record_or_its_chunk(tmp_path: Path, name: str) -> None:
    store = open_store(tmp_path / "whole", name, size=1 << 20)
    fill(store, count=1200)
    store.writer.start_over()
    upkeep(store)
    payloads = {seq: message.payload for seq in range(1, 1201) if (message := store.get(seq))}
    store.close()
    segment = (tmp_path / "whole/00000001.seg").read_bytes()
    spots = [*range(0, 200, 9), *range(200, len(segment), len(segment) // 40), len(segment) - 1]
    per_chunk = 65_536 // 250 + 2
    for at in spots:
        directory = tmp_path / str(at)
        shutil.copytree(tmp_path / "whole", directory)
        damaged = segment[:at] + bytes([segment[at] ^ 0x41]) + segment[at + 1 :]
        (directory / "00000001.seg").write_bytes(damaged)
        for index in (True, False):
            if not index:
                (directory / "00000001.idx").unlink(missing_ok=True)
            log = ListLog()
            store = open_store(directory, name, log=log, size=1 << 20)
            kept = {seq: store.get(seq) for seq in payloads}
            lost = [seq for seq, message in kept.items() if message is None]
            assert len(lost) <= (per_chunk if ENCODINGS[name][1] else 1), (at, lost)
            assert not lost or (log.lines and store.examiner.losses.msgs == len(lost)), at
            assert all(m is None or m.payload == payloads[seq] for seq, m in kept.items()), at
            store.release()
        shutil.rmtree(directory)


@ENCODED
def test_an_erased_message_is_nowhere_and_its_neighbours_are(tmp_path: Path, name: str) -> None:
    key, codec = ENCODINGS[name]
    store = open_store(tmp_path, name)
    fill(store)
    upkeep(store)
    for seq in (1, 100, 150, 499, 500):
        assert store.get(seq) is not None
        assert store.drop_seq(seq, True)
    store.flush()
    expected = state_of(store)
    # the segment is written plain for now, although it is configured to be compressed
    assert encodings(tmp_path)[0] & 0xFF00 == 0
    for path in tmp_path.glob("*.seg"):
        assert b"plain-0000x" not in image_of(OsDisk(), path, key)
        assert b"plain-0099x" not in image_of(OsDisk(), path, key)
    upkeep(store)
    assert encodings(tmp_path)[0] & 0xFF00 == codec
    assert state_of(store) == expected
    store.release()
    log = ListLog()
    again = open_store(tmp_path, name, log=log)
    assert state_of(again) == expected
    assert log.lines == []
    again.release()


@crash_is_printed
@ENCODED
def test_a_crash_at_any_call_of_upkeep_leaves_every_message(tmp_path: Path, name: str) -> None:
    template = open_store(tmp_path / "template", "plain")
    fill(template)
    for seq in range(1, 140):
        template.drop_seq(seq)
    template.flush()
    expected = without_segments(state_of(template))
    template.close()
    disk, call = FaultyDisk(), -1
    while disk.calls > disk.at:
        call += 1
        directory = tmp_path / str(call)
        shutil.copytree(tmp_path / "template", directory)
        disk = FaultyDisk(call)
        try:
            store = open_store(directory, name, disk)
            store.writer.start_over()
            while (job := store.begin_upkeep()) is not None:
                store.finish_upkeep(job())
                store.sync_now()
        except Crash:
            pass
        again = open_store(directory, name)
        assert without_segments(state_of(again)) == expected, call
        assert again.examiner.losses.msgs == 0
        again.release()
        shutil.rmtree(directory)
    assert call > 20


class Watched(OsDisk):
    """Checks the writes to encrypted segments: a place may only be written again with the same bytes."""

    def __init__(self) -> None:
        self.paths: dict[int, str] = {}
        self.first: dict[str, dict[int, int]] = {}
        self.full = False

    def open_file(self, path: str, *, create: bool = False) -> int:
        fd = super().open_file(path, create=create)
        self.paths[fd] = path
        return fd

    def allocate(self, fd: int, offset: int, size: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "full")
        super().allocate(fd, offset, size)

    def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        path = self.paths[fd]
        if path.endswith(".seg"):
            seen = self.first.setdefault(path, {})
            whole = bytes(data)
            end = len(whole) - (whole[-1:] == b"\xff")  # the next write overwrites the mark at the end
            if any(whole) and len(whole) > 1:  # zeros, and the flag of an erased message, reveal nothing
                for at in range(end):
                    known = seen.setdefault(offset + at, whole[at])
                    assert known == whole[at], f"{path} at {offset + at} is encrypted twice"
            if self.full:
                super().write_at(fd, whole[: len(whole) // 2], offset)
                raise OSError(errno.ENOSPC, "full")
        super().write_at(fd, data, offset)

    def rename(self, old: str, new: str) -> None:
        self.first.pop(new, None)
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        self.first.pop(path, None)
        super().unlink(path)


@pytest.mark.parametrize("seed", range(4))
@ENCRYPTED
def test_no_place_is_encrypted_twice_whatever_happens(tmp_path: Path, name: str, seed: int) -> None:
    random, disk, generation, now = Random(seed), Watched(), 0, 1000
    store = open_store(tmp_path / "0", name, disk)
    kept: dict[int, bytes] = {}
    for _ in range(150):
        what = random.choice(
            ("store", "store", "store", "erase", "restart", "kill", "tear", "fail", "upkeep")
        )
        if what == "store":
            for _ in range(random.randrange(1, 30)):
                now += 1
                payload = random.randbytes(random.randrange(400))
                kept[store.store(b"s.%d" % random.randrange(5), b"", payload, now)] = payload
            store.flush()
        elif what == "erase" and kept:
            seq = random.choice(list(kept))
            assert store.drop_seq(seq, True)
            del kept[seq]
            store.flush()
        elif what == "fail":
            disk.full = True
            now += 1
            store.store(b"s", b"", random.randbytes(3000), now)
            with pytest.raises(Exception, match=r"full|No space"):
                store.flush()
            disk.full = False
            assert store.try_resume()
        elif what == "upkeep":
            store.sync_now()
            upkeep(store)
        elif what in ("restart", "kill", "tear"):
            if what == "restart":
                store.close()
            else:
                store.release()
            generation += 1
            shutil.copytree(tmp_path / str(generation - 1), tmp_path / str(generation))
            segments = sorted((tmp_path / str(generation)).glob("*.seg"))
            if what == "tear" and segments:
                with open(segments[-1], "r+b") as file:
                    size = len(file.read().rstrip(b"\0"))
                    file.seek(size)
                    file.write(random.randbytes(30))
            for path in list(disk.first):
                disk.first[path.replace(f"/{generation - 1}/", f"/{generation}/")] = disk.first.pop(path)
            store = open_store(tmp_path / str(generation), name, disk)
        found = {seq: message.payload for seq in kept if (message := store.get(seq)) is not None}
        assert found == kept, what
    store.close()


@ENCRYPTED
def test_reading_holds_few_views(tmp_path: Path, name: str) -> None:
    store = open_store(tmp_path, name, size=4000)
    fill(store)
    upkeep(store)
    for _ in range(2):
        for seq in range(1, 501):
            message = store.get(seq)
            assert message is not None
            assert message.payload.startswith(b"plain-%04d" % (seq - 1))
    store.close()


def test_a_codec_that_is_taken_back_leaves_what_is_compressed(tmp_path: Path) -> None:
    store = open_store(tmp_path, "zstd")
    fill(store)
    upkeep(store)
    store.compactor.set_codec(0)
    fill(store, 500)
    expected = state_of(store)
    assert upkeep(store) == 0
    assert encodings(tmp_path) == [CODEC_ZSTD] * 3 + [0] * 4
    store.close()
    again = open_store(tmp_path, "plain")
    assert state_of(again) == expected
    again.close()


@ENCRYPTED
def test_segments_that_starts_left_are_whole_and_are_kept_in_the_form_that_is_wanted(
    tmp_path: Path, name: str
) -> None:
    key, codec = ENCODINGS[name]
    assert key is not None
    directory = tmp_path / "0"
    directory.mkdir()
    log = ListLog()
    for start in range(1, 5):  # each process continues in a new segment, and is killed
        store = open_store(directory, name, log=log)
        upkeep(store)
        fill(store, start * 20, 20)
        directory = shutil.copytree(directory, tmp_path / str(start))
        store.release()
    store = open_store(directory, name, log=log)
    upkeep(store)
    assert encodings(directory) == [key.algorithm | codec] * 4
    assert (store.msgs, store.lost) == (80, None)
    assert [line for line in log.lines if line[0] in ("WRN", "ERR")] == []
    store.close()


@ENCRYPTED
def test_a_killed_start_with_a_new_key_loses_nothing_of_the_plain_end(tmp_path: Path, name: str) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    store = open_store(before, "plain")
    fill(store, 0, 20)
    store.close()
    log = ListLog()
    store = open_store(before, name, log=log)
    fill(store, 20, 20)
    shutil.copytree(before, after)  # as after a kill, before any upkeep
    store.release()
    store = open_store(after, name, log=log)
    upkeep(store)
    assert (store.msgs, store.lost) == (40, None)
    assert 0 not in encodings(after)
    assert [line for line in log.lines if line[0] in ("WRN", "ERR")] == []
    store.close()


class BadPage(OsDisk):
    """Has one page in the first segment that cannot be read."""

    def __init__(self, page: int) -> None:
        self._page = page
        self._first = -1  # descriptor of the segment

    def open_read_only(self, path: str) -> int:
        fd = super().open_read_only(path)
        self._first = fd if path.endswith("00000001.seg") else self._first
        return fd

    def close_file(self, fd: int) -> None:
        self._first = -1 if fd == self._first else self._first
        super().close_file(fd)

    def read_at(self, fd: int, size: int, offset: int) -> bytes:
        if fd == self._first and offset < (self._page + 1) * 4096 and offset + size > self._page * 4096:
            raise OSError(errno.EIO, "Input/output error")
        return super().read_at(fd, size, offset)


@ENCODED
@pytest.mark.parametrize("sealed", [False, True])
def test_a_page_that_cannot_be_read_keeps_no_store_from_being_opened(
    tmp_path: Path, name: str, sealed: bool
) -> None:
    store = open_store(tmp_path, name, size=400_000)
    fill(store)
    if sealed:
        store.writer.leave_tail()
        upkeep(store)
    size = (tmp_path / "00000001.seg").stat().st_size
    store.release()
    for page in range(1, size // 4096 + (0 if sealed else 1)):
        directory = shutil.copytree(tmp_path, tmp_path / f"copy-{page}")
        for path in directory.glob("*.idx"):
            path.unlink()
        again = open_store(directory, name, BadPage(page))
        assert again.msgs + again.examiner.losses.msgs == 500 or again.examiner.losses.bytes, page
        if not ENCODINGS[name][1]:
            assert again.msgs >= 450
        again.release()
        shutil.rmtree(directory)
