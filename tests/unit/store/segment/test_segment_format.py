"""The segment format compared with its document: the bytes typed there, decoded by hand here."""

from __future__ import annotations

import hmac
import struct
from pathlib import Path

import xxhash
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from pyjs.base.disk import OsDisk
from pyjs.base.log import ListLog
from pyjs.store.file.store import FileStore
from pyjs.store.format.record import checksum_of

DOCUMENT = Path(__file__).parents[4] / "docs" / "storage-format.md"


def example() -> bytes:
    """Return the bytes of the example segment in the document."""
    text = DOCUMENT.read_text().partition("### Example of a segment")[2]
    return bytes.fromhex(text.split("```")[1])


def test_the_documented_bytes_decode_by_the_documented_layout() -> None:
    data = example()
    magic, version, major, minor, flags, base, _, number, _, incarnation, _, checksum = struct.unpack_from(
        "<8sHBBIQqIIQQQ", data
    )
    assert (magic, version, major, minor) == (b"PYJSSEG\n", 3, 0, 1)
    assert (flags, base, number, incarnation) == (0, 1, 1, 7)
    assert checksum == xxhash.xxh64_intdigest(data[:56])
    length, kind, record_flags, subject_len, seq, ts, header_len, check = struct.unpack_from(
        "<IBBHQqII", data, 64
    )
    assert (kind, record_flags, subject_len, seq, header_len) == (1, 0, 3, 1, 0)
    assert ts == 1_700_000_000_000_000_000
    record = data[64 : 64 + length]
    assert record[32:35] == b"a.b"
    assert record[35:-8] == b"hi"
    own = xxhash.xxh64_intdigest(record[32:-8], xxhash.xxh64_intdigest(record[:28]))
    assert check == own & 0xFFFFFFFF
    assert struct.unpack("<Q", record[-8:])[0] == xxhash.xxh64_intdigest(struct.pack("<Q", own), checksum)


def test_the_store_reads_and_writes_the_documented_bytes(tmp_path: Path) -> None:
    (tmp_path / "00000001.seg").write_bytes(example())
    log = ListLog()
    store = FileStore(OsDisk(), str(tmp_path), log, 1 << 20, 7)
    message = store.get(1)
    store.close()
    assert message is not None
    assert (message.subject, message.headers, message.payload) == (b"a.b", b"", b"hi")
    assert log.lines == []
    assert (tmp_path / "00000001.seg").read_bytes() == example()


def test_our_xxh64_is_the_published_one() -> None:
    data = bytes(range(256)) * 3
    for size in range(300):
        for seed in (0, 1, 2**63 + 12345):
            assert checksum_of(data[:size], seed) == xxhash.xxh64_intdigest(data[:size], seed)


def test_every_flipped_byte_costs_at_most_its_record_and_is_reported(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    store = FileStore(OsDisk(), str(whole), ListLog(), 1 << 20, 7)
    for number in range(6):
        store.store(b"s.%d" % number, b"", b"payload-%d" % number, 1000 + number)
    store.close()
    data = (whole / "00000001.seg").read_bytes()
    for at in range(64, len(data)):
        directory = tmp_path / str(at)
        directory.mkdir()
        (directory / "00000001.seg").write_bytes(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :])
        log = ListLog()
        damaged = FileStore(OsDisk(), str(directory), log, 1 << 20, 7)
        kept = {seq: damaged.get(seq) for seq in range(1, 7)}
        lost = [seq for seq, message in kept.items() if message is None]
        assert len(lost) <= 1, at
        assert bool(lost) == bool(damaged.examiner.losses.msgs), at
        assert not lost or log.lines, at
        assert all(m is None or m.payload == b"payload-%d" % (seq - 1) for seq, m in kept.items()), at
        assert damaged.store(b"next", b"", b"", 9999) == 7, at
        damaged.close()


def test_damage_that_ends_in_a_checksum_costs_nothing_behind_it(tmp_path: Path) -> None:
    """The next record lacks the checksum to which it is chained; its own check proves that it is undamaged."""
    whole = tmp_path / "whole"
    store = FileStore(OsDisk(), str(whole), ListLog(), 1 << 20, 7)
    for number in range(6):
        store.store(b"s.%d" % number, b"", b"payload-%d" % number, 1000 + number)
    store.close()
    data = (whole / "00000001.seg").read_bytes()
    place = data.index(b"payload-2")
    end = place + len(b"payload-2") + 8
    for last in range(place + 4, end + 1):
        directory = tmp_path / str(last)
        directory.mkdir()
        (directory / "00000001.seg").write_bytes(data[:place] + bytes(last - place) + data[last:])
        log = ListLog()
        damaged = FileStore(OsDisk(), str(directory), log, 1 << 20, 7)
        for _ in range(2):
            assert [seq for seq in range(1, 7) if damaged.get(seq) is None] == [3], last
        assert damaged.examiner.losses.msgs == 1
        damaged.close()


def test_a_damaged_check_is_told_and_costs_nothing(tmp_path: Path) -> None:
    store = FileStore(OsDisk(), str(tmp_path), ListLog(), 1 << 20, 7)
    for number in range(3):
        store.store(b"s", b"", b"payload-%d" % number, 1000 + number)
    store.close()
    data = bytearray((tmp_path / "00000001.seg").read_bytes())
    check = 64 + struct.unpack_from("<I", data, 64)[0] + 28
    data[check : check + 4] = bytes(4)
    (tmp_path / "00000001.seg").write_bytes(data)
    log = ListLog()
    again = FileStore(OsDisk(), str(tmp_path), log, 1 << 20, 7)
    assert [again.get(seq) is not None for seq in (1, 2, 3)] == [True, True, True]
    again.close()
    assert any("check" in text for _, text in log.lines)


def test_the_documented_encrypted_bytes_decode_by_the_documented_layout() -> None:
    text = DOCUMENT.read_text().partition("### Example of an encrypted segment")[2]
    data = bytes.fromhex(text.split("```")[1])
    fields = struct.unpack_from("<8sHBBIQ8sIIQ8sQ", data)
    magic, version, major, minor, flags, base, first, number, body_at, incarnation, second, checksum = fields
    assert (magic, version, major, minor) == (b"PYJSSEG\n", 3, 0, 1)
    assert (flags, base, number, body_at, incarnation) == (1, 1, 1, 64, 7)
    assert checksum == xxhash.xxh64_intdigest(data[:56])
    data_key, nonce = bytes(range(32)), first + second
    assert nonce[:12] == bytes(range(0xA0, 0xAC))
    assert nonce[12:] == hmac.digest(data_key, b"pyjs mark" + nonce[:12], "sha256")[:4]
    stream = Cipher(ChaCha20(hmac.digest(data_key, b"pyjs file" + nonce, "sha256"), bytes(16)), None)
    assert stream.encryptor().update(data[64:-1]) == example()
    assert data[-1:] == b"\xff"
