"""Records that wait for the next write; their numbers and places are already assigned.

Invariants: synced < number of each record; the records of a change are in one file; a file begins with a
census of all groups; within a file a census follows about every CENSUS_EVERY bytes, and lists the groups with
records since the previous census.

Compiled because each replicated entry is staged on three servers (benchmarks/: r3-sync-1).
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memset

from enum import Enum

from pyjs.consensus.log.files import FIRST_AT, GUARD_SIZE, TAIL_SIZE, Header, LogFile, Seal, file_id, log_name
from pyjs.consensus.log.records import (
    CENSUS, CHECK, DAMAGED_FLAG, ENTRY, HEAD, MORE, PAIR, WRITE, encode_census, hash_of,
)

cdef enum:
    SHIFT = 40                  # group.FILE_SHIFT
    CHECK_SIZE = 8
    RECORD_SIZE_MIN = sizeof(Head) + CHECK_SIZE
    FILES_MAX = 1 << 24         # so that the number of a file fits in a place
    SIZE_MAX = 0x7fffffff       # bytes of a record, more than a batch of another server can have

CENSUS_EVERY = 1 << 20
cdef uint64_t MARK_BITS = 0xFFFFFFFF
cdef uint64_t NO_PAYLOAD = hash_of(b"")
cdef int KIND_WRITE = WRITE, KIND_CENSUS = CENSUS, FLAG_ENTRY = ENTRY, FLAG_MORE = MORE

assert sizeof(Head) == HEAD.size


class Staged(Enum):
    """What was staged: a record, nothing, or nothing although there is a new commit index."""

    RECORD = "record"
    COMMIT = "commit"
    NOTHING = "nothing"


STAGED, COMMIT, NOTHING = Staged.RECORD, Staged.COMMIT, Staged.NOTHING


cdef class Staging:
    def __init__(self, shelf, dict groups not None, incarnation, file_size) -> None:
        self.shelf = shelf
        self.groups = groups
        self.incarnation = incarnation
        self.file_size = file_size
        self.boot = self.machine = 0
        self.number = 1
        self.chunks, self.parts, self.touched = [], [], {}

    @property
    def is_empty(self) -> bool:
        """Return whether no record is staged."""
        return not self.chunks

    def reserve(self, uint64_t size) -> LogFile:
        """Ensure that the newest file has room for `size` bytes of records, and return this file.

        Begin a new file if necessary, and stage a census if one is due.
        """
        file = self.newest()
        if self.at + size > self.file_end:
            return self.begin_file(size, self.file_number + 1)
        if self.at >= self.census_due_at:
            census = encode_census(self.census_number, self.touched.items())
            if self.at + size + RECORD_SIZE_MIN + <uint64_t> len(census) <= self.file_end:
                self.add_census(census)
        return file

    cdef newest(self):
        """Return the newest file."""
        file = self.shelf.newest
        if file is not self.file:
            self.file, self.file_end, self.file_id, self.file_number = file, file.end, file.id, file.number
        return file

    def begin_file(self, size: int, number: int) -> LogFile:
        """Begin another file with room for `size` bytes of records, stage its census, and return the file."""
        files = self.shelf.files
        seal = self.seal(number) if files else None
        needed = (
            FIRST_AT
            + RECORD_SIZE_MIN
            + CHECK.size
            + PAIR.size * len(self.groups)
            + size
            + GUARD_SIZE
            + TAIL_SIZE
        )
        size = max(self.file_size, needed)
        id_of_file = file_id(self.incarnation, number)
        header = Header(size, id_of_file, number, self.boot, self.number, self.synced, self.machine)
        file = LogFile(header, f"{self.shelf.directory}/{log_name(number)}")
        self.shelf.add(file, seal)
        self.parts = [header.encode()]
        self.chunks.append((file, 0, self.parts))
        self.at = FIRST_AT
        self.stage_all()
        return file

    cdef stage_all(self):
        """Stage a census of all groups."""
        body = encode_census(0, [(group.number, group.seq) for group in self.groups.values()])
        self.add_census(body, DAMAGED_FLAG if self.is_in_doubt else 0)

    def end_doubt(self) -> None:
        """Stage a census that lists all groups, which proves that no other group exists."""
        self.is_in_doubt = False
        size = RECORD_SIZE_MIN + CHECK.size + PAIR.size * len(self.groups)
        if self.at + size > self.shelf.newest.end:
            self.begin_file(0, self.shelf.newest.number + 1)
        else:
            self.stage_all()

    def seal(self, next_file: int) -> Seal:
        """Return the seal of the newest file at its present end; `next_file` is 0 if the log is closed."""
        return Seal(self.number - 1, self.at, self.before, next_file, self.boot)

    def stage_census(self) -> None:
        """Stage a list of the groups with records since the last census.

        Like every record, it also has the number of the last durable record.
        """
        size = RECORD_SIZE_MIN + CHECK.size + PAIR.size * len(self.touched)
        if self.at + size > self.shelf.newest.end:
            self.begin_file(0, self.shelf.newest.number + 1)
        else:
            self.add_census(encode_census(self.census_number, self.touched.items()))

    cdef add_census(self, bytes body, int flags=0):
        cdef Head head
        memset(&head, 0, sizeof(head))
        head.kind, head.flags = KIND_CENSUS, flags
        self.put(&head, body, b"")
        self.touched = {}
        self.census_number = self.number - 1
        self.census_due_at = self.at + <uint64_t> CENSUS_EVERY

    def stage(self, StoredGroup group not None, int kind, int flags, uint64_t index, bytes body=b"",
              bytes payload=b"", uint64_t entry_term=0, int entry_kind=0) -> None:
        """Stage a record; `reserve` must have made room for it."""
        self.add(group, kind, flags, index, body, payload, entry_term, entry_kind)

    def stage_changes(self, StoredGroup group not None, hard, uint64_t first, entries, payloads) -> Staged:
        """Stage a hard state (None: unchanged), and entries from `first` on, each with its payload, as one change.

        A new commit index alone is not staged.
        """
        cdef uint64_t term, vote, commit
        cdef bint has_same_vote = True
        if hard is not None:
            term, vote, commit = hard
            has_same_vote = group.follow_hard(term, vote, commit)
        if entries:
            assert group.start < first and <int64_t> first <= group.last_index() + 1
            self.reserve_entries(entries, payloads)
            self.stage_entries(group, first, entries, payloads)
        elif not has_same_vote:
            self.reserve(RECORD_SIZE_MIN)
            self.add(group, KIND_WRITE, 0, group.last_index(), b"", b"", 0, 0)
        assert <int64_t> group.commit <= group.last_index()
        if entries or not has_same_vote:
            return STAGED
        return NOTHING if hard is None else COMMIT

    cdef int reserve_entries(self, entries, payloads) except -1:
        """Make room for entries, each with its payload."""
        cdef uint64_t size = 0
        cdef bytes body, payload
        for _, _, body in entries:
            size += RECORD_SIZE_MIN + <uint64_t> len(body)
        for payload in payloads:
            size += <uint64_t> len(payload)
        self.reserve(size)
        return 0

    cpdef stage_entries(self, StoredGroup group, uint64_t index, entries, payloads):
        """Stage entries from `index` on, each with its payload, as one change; there must be room for them."""
        cdef uint64_t at, term
        cdef int kind
        cdef Py_ssize_t left = len(entries)
        cdef bytes body, payload
        assert len(payloads) == left
        file = self.newest()
        assert self.file_number < FILES_MAX
        for (term, kind, body), payload in zip(entries, payloads):
            at = self.at
            left -= 1
            self.add(group, KIND_WRITE, FLAG_ENTRY | FLAG_MORE if left else FLAG_ENTRY, index, body, payload, term,
                     kind)
            group.add(index, term, self.file_number << SHIFT | at, self.at - at)
            index += 1
        file.groups.add(group.number)

    cdef int add(self, StoredGroup group, int kind, int flags, uint64_t index, bytes body, bytes payload,
                 uint64_t entry_term, int entry_kind) except -1:
        cdef Head head
        group.seq += 1
        group.written_commit = group.commit
        self.touched[group.number] = group.seq
        head.kind, head.flags, head.entry_kind = kind, flags, entry_kind
        head.group, head.seq, head.last, head.entry_term = group.number, group.seq, index, entry_term
        head.term, head.vote, head.commit = group.term, group.vote, group.commit
        return self.put(&head, body, payload)

    def forget(self, group: int) -> None:
        """List a group as removed in the next census."""
        self.touched[group] = 0

    cdef int put(self, Head* head, bytes body, bytes payload) except -1:
        """Stage a record; the caller has set the fields of its head that depend on its kind."""
        cdef uint64_t size = RECORD_SIZE_MIN + <uint64_t> len(body) + <uint64_t> len(payload), check
        cdef bytes checked
        file = self.newest()
        assert self.synced < self.number
        assert size <= SIZE_MAX
        assert self.at + size <= self.file_end
        if not self.chunks:
            self.parts = []
            self.chunks.append((file, self.at, self.parts))
        head.mark = <uint32_t> (self.file_id & MARK_BITS)
        head.size, head.body_size = <uint32_t> size, <uint32_t> len(body)
        head.number, head.synced, head.before = self.number, self.synced, self.before
        head.payload_check = hash_of(payload) if payload else NO_PAYLOAD
        checked = PyBytes_FromStringAndSize(<const char*> head, sizeof(Head)) + body
        check = hash_of(checked, self.file_id)
        self.parts.append(checked)
        self.parts.append(PyBytes_FromStringAndSize(<const char*> &check, CHECK_SIZE))
        if payload:
            self.parts.append(payload)
        self.number += 1
        self.before, self.claimed = head.group, self.synced
        self.at += size
        return 0

    def write(self) -> None:
        """Write all staged records.

        Raises:
            OSError: the records were not written, or only some of them.
        """
        chunks, self.chunks = self.chunks, []
        for file, offset, parts in chunks:
            if parts:
                self.shelf.write(file, offset, b"".join(parts))
