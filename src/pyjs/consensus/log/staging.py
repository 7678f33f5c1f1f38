"""Records that wait for the next write; their numbers and places are already assigned.

Invariants: synced < number of each record; the records of a change are in one file; a file begins with a
census of all groups; within a file a census follows about every CENSUS_EVERY bytes, and lists the groups with
records since the previous census.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.consensus.log.files import FIRST_AT, GUARD_SIZE, TAIL_SIZE, Header, LogFile, Seal, file_id, log_name
from pyjs.consensus.log.records import (
    CENSUS,
    CHECK,
    DAMAGED_FLAG,
    HEAD,
    MARK_BITS,
    PAIR,
    RECORD_SIZE_MIN,
    encode_census,
    hash_of,
)

if TYPE_CHECKING:
    from pyjs.consensus.log.group import StoredGroup
    from pyjs.consensus.log.shelf import Shelf

CENSUS_EVERY = 1 << 20
NO_HARD = (0, 0, 0)


class Staging:
    """The end of the log, with the staged records."""

    def __init__(
        self, shelf: Shelf, groups: dict[int, StoredGroup], incarnation: int, file_size: int
    ) -> None:
        self._shelf = shelf
        self._groups = groups
        self._incarnation = incarnation
        self._file_size = file_size
        self.boot = 0
        self.machine = 0  # machine for the headers of new files, see Header
        self.is_in_doubt = False  # whether groups that are not in the log may have been lost
        self.number = 1  # number of the next record
        self.synced = 0  # records up to this number are durable
        self.claimed = 0  # the value of `synced` in the last staged record
        self.before = 0  # group of the last record; 0: that record is a census
        self.at = 0  # offset of the next record in the newest file
        self._chunks: list[tuple[LogFile, int, list[bytes]]] = []  # file, offset, parts
        self._parts: list[bytes] = []  # parts of the last chunk
        # group -> seq, of groups with records since the last census; 0: removed
        self._touched: dict[int, int] = {}
        self._census_number = 0  # number of the record with the last census
        self._census_due_at = 0  # offset in the file at which the next census is due

    @property
    def is_empty(self) -> bool:
        """Return whether no record is staged."""
        return not self._chunks

    def reserve(self, size: int) -> LogFile:
        """Make room for the records of a change; return their file."""
        file = self._shelf.newest
        if self.at + size > file.end:
            return self.begin_file(size, file.number + 1)
        if self.at >= self._census_due_at:
            census = encode_census(self._census_number, self._touched.items())
            if self.at + size + RECORD_SIZE_MIN + len(census) <= file.end:
                self._stage_census(census)
        return file

    def begin_file(self, size: int, number: int) -> LogFile:
        """Begin another file with room for `size` bytes."""
        files = self._shelf.files
        seal = self.seal(number) if files else None
        needed = (
            FIRST_AT
            + RECORD_SIZE_MIN
            + CHECK.size
            + PAIR.size * len(self._groups)
            + size
            + GUARD_SIZE
            + TAIL_SIZE
        )
        size = max(self._file_size, needed)
        id_of_file = file_id(self._incarnation, number)
        header = Header(size, id_of_file, number, self.boot, self.number, self.synced, self.machine)
        file = LogFile(header, f"{self._shelf.directory}/{log_name(number)}")
        self._shelf.add(file, seal)
        self._parts = [header.encode()]
        self._chunks.append((file, 0, self._parts))
        self.at = FIRST_AT
        self._stage_all()
        return file

    def _stage_all(self) -> None:
        body = encode_census(0, [(group.number, group.seq) for group in self._groups.values()])
        self._stage_census(body, DAMAGED_FLAG if self.is_in_doubt else 0)

    def end_doubt(self) -> None:
        """Stage a census that lists all groups: it proves that no other group exists."""
        self.is_in_doubt = False
        size = RECORD_SIZE_MIN + CHECK.size + PAIR.size * len(self._groups)
        if self.at + size > self._shelf.newest.end:
            self.begin_file(0, self._shelf.newest.number + 1)
        else:
            self._stage_all()

    def seal(self, next_file: int) -> Seal:
        """Return the seal of the newest file at its present end; `next_file` is 0 if the log is closed."""
        return Seal(self.number - 1, self.at, self.before, next_file, self.boot)

    def stage_census(self) -> None:
        """Stage a list of the groups with records since the last census.

        Like every record, it also has the number of the last durable record.
        """
        size = RECORD_SIZE_MIN + CHECK.size + PAIR.size * len(self._touched)
        if self.at + size > self._shelf.newest.end:
            self.begin_file(0, self._shelf.newest.number + 1)
        else:
            self._stage_census(encode_census(self._census_number, self._touched.items()))

    def _stage_census(self, body: bytes, flags: int = 0) -> None:
        self._put(CENSUS, flags, 0, 0, 0, NO_HARD, 0, 0, body, b"")
        self._touched = {}
        self._census_number = self.number - 1
        self._census_due_at = self.at + CENSUS_EVERY

    def stage(
        self,
        group: StoredGroup,
        kind: int,
        flags: int,
        index: int,
        body: bytes = b"",
        payload: bytes = b"",
        entry_term: int = 0,
        entry_kind: int = 0,
    ) -> None:
        """Stage a record; `reserve` must have made room for it."""
        seq = group.seq = group.seq + 1
        group.written_commit = group.hard[2]
        self._touched[group.number] = seq
        self._put(kind, flags, entry_kind, group.number, seq, group.hard, index, entry_term, body, payload)

    def forget(self, group: int) -> None:
        """Forget a removed group."""
        self._touched[group] = 0

    def _put(
        self,
        kind: int,
        flags: int,
        entry_kind: int,
        group: int,
        seq: int,
        hard: tuple[int, int, int],
        index: int,
        entry_term: int,
        body: bytes,
        payload: bytes,
    ) -> None:
        file = self._shelf.newest
        number, synced, file_id, body_size = self.number, self.synced, file.id, len(body)
        size = RECORD_SIZE_MIN + body_size + len(payload)
        assert synced < number
        assert self.at + size <= file.end
        if not self._chunks:
            self._parts = []
            self._chunks.append((file, self.at, self._parts))
        checked = (
            HEAD.pack(
                file_id & MARK_BITS, size, kind, flags, entry_kind, body_size, number, synced, self.before,
                group, seq,                 *hard, index, entry_term, hash_of(payload),
            )
            + body
        )  # fmt: skip
        self._parts += (checked, CHECK.pack(hash_of(checked, file_id)), payload)
        self.number = number + 1
        self.before = group
        self.claimed = synced
        self.at += size

    def write(self) -> None:
        """Write all staged records.

        Raises:
            OSError: the records were not written, or only some of them.
        """
        chunks, self._chunks = self._chunks, []
        for file, offset, parts in chunks:
            if parts:
                self._shelf.write(file, offset, b"".join(parts))
