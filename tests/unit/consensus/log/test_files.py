"""Files of the node log: names, and the bytes of headers and seals."""

from __future__ import annotations

from random import Random

import pytest
from tests.sim.disk import SimDisk

from pyjs.consensus.log.files import (
    BOOT_ID,
    HEADER,
    UNKNOWN_MACHINE,
    Header,
    LogFile,
    Seal,
    UnknownLog,
    file_id,
    header_in,
    is_nothing,
    log_name,
    machine_of,
    number_in,
    seal_in,
)
from pyjs.consensus.log.records import CHECK, hash_of

ONE = Header(4096, 77, 3, 2, 10, 9, 5)


def test_a_header_comes_back_and_any_other_byte_makes_it_none() -> None:
    data = ONE.encode()
    assert header_in(data + b"more", "f") == ONE
    for at in range(len(data)):
        assert header_in(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :], "f") is None
    assert header_in(data[:-1], "f") is None


def test_a_header_of_another_version_is_refused_with_the_version_that_reads_it() -> None:
    data = bytearray(ONE.encode())
    data[8], data[10], data[11] = 2, 1, 7
    data[-8:] = CHECK.pack(hash_of(bytes(data[:-8])))
    with pytest.raises(UnknownLog, match=r"^f has format 2, this version reads 1: use pyjs-server 1\.7$"):
        header_in(bytes(data), "f")


def test_bytes_with_a_right_checksum_and_another_magic_are_no_header() -> None:
    data = bytearray(ONE.encode())
    data[0] ^= 1
    data[-8:] = CHECK.pack(hash_of(bytes(data[:-8])))
    assert header_in(bytes(data), "f") is None


def test_a_start_of_the_machine_is_a_number_of_its_own() -> None:
    disk = SimDisk(Random(1))
    assert machine_of(disk) == UNKNOWN_MACHINE
    found = set()
    disk.make_dirs(BOOT_ID.rpartition("/")[0])
    for text in (b"5f1c", b"5f1d"):
        fd = disk.open_file(BOOT_ID, create=True)
        disk.write_at(fd, text, 0)
        found.add(machine_of(disk))
        assert machine_of(disk) in found

    assert len(found) == 2
    assert all(UNKNOWN_MACHINE < one < 1 << 32 for one in found)


def test_a_seal_is_of_one_file() -> None:
    seal = Seal(5, 600, 8, 4, 2)
    data = seal.encode(77)
    assert seal_in(data + bytes(80), 77) == seal
    assert seal_in(data, 78) is None
    assert seal_in(data[:20], 77) is None
    assert seal_in(bytes(56), 77) is None


def test_zeros_and_older_headers_are_what_was_there_before_a_header() -> None:
    assert is_nothing(bytes(HEADER.size), 4, "f")
    assert is_nothing(ONE.encode(), 4, "f")
    assert not is_nothing(ONE.encode(), 3, "f")
    assert not is_nothing(b"x" * HEADER.size, 4, "f")


def test_numbers_are_in_names() -> None:
    assert number_in(log_name(17)) == 17
    assert [number_in(name) for name in ("17.log", "0000001x.log", "00000017", "fresh.spare")] == [0, 0, 0, 0]


def test_no_byte_of_a_mark_is_zero() -> None:
    ids = {file_id(incarnation, number) for incarnation in range(50) for number in range(50)}
    assert len(ids) == 2500
    assert all(0 not in (each & 0xFFFFFFFF).to_bytes(4, "little") for each in ids)


def test_records_end_before_the_sector_of_the_seal() -> None:
    assert LogFile(ONE, "f").end == 4096 - 640
