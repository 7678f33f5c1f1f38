"""Bytes of removed messages: which are overwritten, which remain, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.store.encodings import ENCODINGS, image_of, upkeep
from tests.unit.store.file_state import INCARNATION
from tests.unit.store.segment_files import message_record, segment_of

from pyjs.base.disk import OsDisk
from pyjs.base.log import ListLog
from pyjs.store.file.store import FileStore
from pyjs.store.format.image import encode_file
from pyjs.store.format.outer_header import CODEC_MASK, read_outer_header
from pyjs.store.segment.scan import scan_segment

SECRET = b"the secret" * 20
COUNT = 9
UNFINISHED = 4  # the flag of a message whose batch continues with the next one


class WritesDisk(OsDisk):
    """Records all writes in order."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        self.written.append(bytes(data))
        super().write_at(fd, data, offset)


def filled(directory: Path, encoding: str = "plain", disk: OsDisk | None = None) -> FileStore:
    """Return a store of nine messages in several segments; the fifth, in a sealed segment, is the secret."""
    key, codec = ENCODINGS[encoding]
    store = FileStore(disk or OsDisk(), str(directory), ListLog(), 1000, INCARNATION, key)
    store.compactor.set_codec(codec)
    for seq in range(1, COUNT + 1):
        store.store(b"s", b"", SECRET if seq == 5 else b"payload %d " % seq * 20, 1000 + seq)
    store.flush()
    store.sync_now()
    upkeep(store)
    return store


def payloads(store: FileStore) -> list[int]:
    messages = [store.get(seq) for seq in range(1, store.last_seq + 1)]
    return [
        message.seq for message in messages if message and message.payload[:7] in (b"payload", SECRET[:7])
    ]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_bytes_of_one_message_go_and_no_others(tmp_path: Path, encoding: str) -> None:
    store = filled(tmp_path, encoding)

    store.drop_seq(5, erase=True)

    assert payloads(store) == [1, 2, 3, 4, 6, 7, 8, 9]
    store.close()
    images = [image_of(OsDisk(), path, ENCODINGS[encoding][0]) for path in tmp_path.glob("*.seg")]
    assert not any(SECRET[:10] in image for image in images)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_start_finds_no_damage_in_an_erased_message(tmp_path: Path, encoding: str) -> None:
    store = filled(tmp_path, encoding)
    store.drop_seq(5, erase=True)
    store.close()

    again = FileStore(OsDisk(), str(tmp_path), ListLog(), 1000, INCARNATION, ENCODINGS[encoding][0])

    assert payloads(again) == [1, 2, 3, 4, 6, 7, 8, 9]
    assert again.lost is None
    again.release()


def test_the_checksum_of_an_erased_message_stays_for_the_next_one(tmp_path: Path) -> None:
    store = filled(tmp_path)
    path = next(path for path in sorted(tmp_path.glob("*.seg")) if SECRET in path.read_bytes())
    before = scan_segment(path.read_bytes())

    store.drop_seq(5, erase=True)

    after = scan_segment(path.read_bytes())
    assert (after.problems, after.n, after.chain) == ([], before.n, before.chain)
    store.release()


def test_the_removal_is_in_a_file_before_a_byte_is_overwritten(tmp_path: Path) -> None:
    disk = WritesDisk()
    store = filled(tmp_path, disk=disk)
    disk.written.clear()

    store.drop_seq(5, erase=True)

    removal = next(at for at, data in enumerate(disk.written) if (5).to_bytes(8, "little") in data)
    zeros = disk.written.index(bytes(len(SECRET)))
    assert removal < zeros
    store.release()


def test_a_message_that_is_only_staged_is_overwritten_in_the_file(tmp_path: Path) -> None:
    disk = WritesDisk()
    store = filled(tmp_path, disk=disk)
    seq = store.store(b"s", b"", SECRET, 2000)
    disk.written.clear()

    store.drop_seq(seq, erase=True)

    assert disk.written[-1] == bytes(len(SECRET))
    store.release()
    assert not any(
        SECRET in path.read_bytes() for path in tmp_path.glob("*.seg") if path.name != "00000002.seg"
    )


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_of_a_record_with_term_and_index_only_the_body_is_overwritten(tmp_path: Path, encoding: str) -> None:
    # given
    key, codec = ENCODINGS[encoding]
    records = [message_record(seq, 1000 + seq, b"s", b"", SECRET, term=b"t" * 16) for seq in (1, 2)]
    path = tmp_path / "00000001.seg"
    _, parts = encode_file(segment_of(1, *records, incarnation=INCARNATION), codec, key, b"")
    path.write_bytes(b"".join(parts))
    store = FileStore(OsDisk(), str(tmp_path), ListLog(), 1000, INCARNATION, key)
    # when
    store.drop_seq(1, erase=True)
    store.close()
    # then
    image = image_of(OsDisk(), path, key)
    assert image.count(SECRET) == 1
    assert image.count(b"t" * 16 + b"s") == 2
    again = FileStore(OsDisk(), str(tmp_path), ListLog(), 1000, INCARNATION, key)
    assert [message and message.payload for message in (again.get(1), again.get(2))] == [None, SECRET]
    assert again.lost is None
    again.release()


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("term", [b"", b"t" * 16])
def test_a_file_that_is_cut_in_a_batch_with_an_erased_message_has_nothing_of_it(
    tmp_path: Path, encoding: str, term: bytes
) -> None:
    # given: the messages 2 to 5 are a batch
    key, codec = ENCODINGS[encoding]
    flags = [0, UNFINISHED, UNFINISHED, UNFINISHED, 0, 0]
    records = [
        message_record(seq, 1000, b"s", b"", b"x" * 50, term, flag) for seq, flag in enumerate(flags, 1)
    ]
    whole = segment_of(1, *records, incarnation=INCARNATION)
    path = tmp_path / "00000001.seg"
    path.write_bytes(b"".join(encode_file(whole, codec, key, b"")[1]))
    store = FileStore(OsDisk(), str(tmp_path), ListLog(), 1000, INCARNATION, key)
    # when
    for seq in (2, 4):
        store.drop_seq(seq, erase=True)
    store.close()
    # then
    image = image_of(OsDisk(), path, key)
    sizes = range(64, len(whole) + 1)
    assert {scan_segment(image[:size]).messages for size in sizes} == {0, 1, 5, 6}


def test_a_compressed_segment_is_its_image_until_it_is_compressed_again(tmp_path: Path) -> None:
    store = filled(tmp_path, "zstd")
    path = tmp_path / "00000002.seg"

    def encoding() -> int:
        found = read_outer_header(path.read_bytes()[:64], str(path))
        return 0 if found is None else found.flags & CODEC_MASK

    assert encoding()
    store.drop_seq(5, erase=True)
    assert not encoding()

    upkeep(store)

    assert encoding()
    assert payloads(store) == [1, 2, 3, 4, 6, 7, 8, 9]
    store.release()
