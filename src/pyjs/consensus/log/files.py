"""Files of the node log: names, headers and seals.

    file   = header | record* | unused | seal | header
    header = "PYJSRLOG" | version u16 | needs u8 u8 | machine u32 | size u64 | id u64 | number u64 | boot u64
             | first u64 | synced u64 | check u64
    seal   = "PYJSSEAL" | last u64 | end u64 | group u64 | next u64 | boot u64 | check u64

Both copies of the header are equal. `NNNNNNNN.log` is a file of the log, `NNNNNNNN.spare` a file that will be
reused, `fresh.tmp` a file that is being created. Unused bytes may have any value: records of another file are
not valid, because the seed of every check is the id of the file, which is never reused.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from pyjs.base.errors import PyjsError
from pyjs.consensus.log.records import CHECK, MARK_SET, hash_of

if TYPE_CHECKING:
    from pyjs.base.disk import Disk

MAGIC = b"PYJSRLOG"
SEAL_MAGIC = b"PYJSSEAL"
VERSION = 1
NEEDS = (0, 1)  # the first version of pyjs-server that reads VERSION
HEADER = Struct("<8sHBBI7Q")
SEAL = Struct("<8s6Q")
FIRST_AT = HEADER.size  # offset of the first record
TAIL_SIZE = 128  # the seal and the second header, at the end of the file
GUARD_SIZE = 512  # bytes between records and seal, so that no sector contains both
LOG, SPARE, FRESH, TEMPORARY = ".log", ".spare", "fresh.spare", "fresh.tmp"
UNKNOWN_MACHINE = 1  # used for the start of a machine that cannot be identified; never equal to another start
BOOT_ID = "/proc/sys/kernel/random/boot_id"
# in the store directory; never the name of an account's directory, where dots are escaped
DIRECTORY = ".raft"


class UnknownLog(PyjsError):
    """Raised if the log has a format that this server cannot read."""

    def __init__(self, path: str, version: int, needs: str) -> None:
        super().__init__(
            f"{path} has format {version}, this version reads {VERSION}: use pyjs-server {needs}"
        )


class Header(NamedTuple):
    """The header of a log file."""

    size: int  # size of the file in bytes
    id: int  # seed of every check in the file
    number: int  # number in the name of the file
    boot: int  # number of starts of the node
    first: int  # number of the first record
    synced: int  # records up to this number were durable when the header was written
    machine: int = (
        0  # boot of the machine in whose memory unsynced records are safe; 0: no node relies on them
    )

    def encode(self) -> bytes:
        """Return the bytes of the header."""
        *fields, machine = self
        data = HEADER.pack(MAGIC, VERSION, *NEEDS, machine, *fields, 0)[: -CHECK.size]
        return data + CHECK.pack(hash_of(data))


class Seal(NamedTuple):
    """The seal of a log file. It is written when the next file is durable, or when the log is closed."""

    last: int  # number of the last record
    end: int  # offset after the last record
    group: int  # group of the last record; 0: that record is a census
    next: int  # number of the next file; 0: the log was closed
    boot: int  # of the next file; of this file if the log was closed

    def encode(self, file_id: int) -> bytes:
        """Return the bytes of the seal."""
        data = SEAL.pack(SEAL_MAGIC, *self, 0)[: -CHECK.size]
        return data + CHECK.pack(hash_of(data, file_id))


class LogFile:
    """One file of the log."""

    def __init__(self, header: Header, path: str) -> None:
        self.id = header.id
        self.number = header.number
        self.header = header
        self.path = path
        self.size = header.size
        self.end = header.size - TAIL_SIZE - GUARD_SIZE  # end of the space for records
        self.fd = -1
        self.groups: set[int] = set()  # groups that may still need records in this file
        self.crowded: set[int] = set()  # groups with so many records here that they are compacted, not copied
        self.written = 0  # offset after the last written record
        # when the record with this number is durable, the file becomes free; 0: the file is needed
        self.free_at = 0


def machine_of(disk: Disk) -> int:
    """Return a 32-bit number that identifies this boot of the machine, or UNKNOWN_MACHINE if there is no boot id."""
    try:
        return hash_of(disk.read_file(BOOT_ID)) & 0xFFFFFFFC | 2
    except OSError:
        return UNKNOWN_MACHINE


def file_id(incarnation: int, number: int) -> int:
    """Return the id of the log file `number`; `incarnation` is unique to the process that creates the file."""
    return hash_of(CHECK.pack(number), incarnation) | MARK_SET


def log_name(number: int) -> str:
    """Return the name of the log file with this number."""
    return f"{number:08d}{LOG}"


def number_in(name: str, suffix: str = LOG) -> int:
    """Return the number in a file name, or 0 if the name is not eight digits followed by `suffix`."""
    digits = name.removesuffix(suffix)
    return int(digits) if digits != name and len(digits) == 8 and digits.isascii() and digits.isdigit() else 0


def header_in(data: bytes, path: str) -> Header | None:
    """Return the header in `data`, or None if these bytes are not an intact header.

    Raises:
        UnknownLog: another version wrote the file.
    """
    if len(data) < HEADER.size or CHECK.unpack_from(data, HEADER.size - CHECK.size)[0] != hash_of(
        data[: HEADER.size - CHECK.size]
    ):
        return None
    magic, version, major, minor, machine, *fields, _ = HEADER.unpack(data[: HEADER.size])
    if magic != MAGIC:
        return None
    if version != VERSION:
        raise UnknownLog(path, version, f"{major}.{minor}")
    return Header._make([*fields, machine])


def seal_in(data: bytes, file_id: int) -> Seal | None:
    """Return the seal in `data`, or None if these bytes are not an intact seal of the file."""
    if len(data) < SEAL.size or data[: len(SEAL_MAGIC)] != SEAL_MAGIC:
        return None
    _, *fields, check = SEAL.unpack(data[: SEAL.size])
    return Seal(*fields) if check == hash_of(data[: SEAL.size - CHECK.size], file_id) else None


def is_nothing(data: bytes, number: int, path: str) -> bool:
    """Return whether `data` is only zeros or the header of an older file, so that the file has no header yet."""
    old = header_in(data, path)
    return not data.strip(b"\0") or (old is not None and old.number != number)
