"""Records of the node log, as bytes.

    record = head | body | check u64 | payload
    head   = mark u32 | size u32 | kind u8 | flags u8 | entry_kind u16 | body_size u32 | number u64 | synced u64
             | before u64 | group u64 | seq u64 | term u64 | vote u64 | commit u64 | last u64 | entry_term u64
             | payload_check u64

Little-endian. `check` is the XXH3-64 of head and body, with the id of the file as the seed; `payload_check` is
the XXH3-64 of the payload, with seed 0. docs/node-log-format.md is the specification. Invariants of a log,
asserted by its writer:

- number(next record) = number + 1, across all files; synced < number.
- seq(next record of a group) = seq + 1; term, vote and commit are the group's hard state after the record.
- last is the last index of the group after the record; for an entry it is the index of that entry.
- term never decreases, vote changes only from 0 or with a higher term, commit <= last.

This module does not access files or interpret entries.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, Protocol

import xxhash

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TypeAlias

    Bytes: TypeAlias = bytes | memoryview

HEAD = Struct("<IIBBHI11Q")
CHECK = Struct("<Q")
BASE = Struct(
    "<QQQHHHHBBH"
)  # peer, start, start_term, sizes of four lists, auto_leave, spare, size of the name
PAIR = Struct("<QQ")
RECORD_SIZE_MIN = HEAD.size + CHECK.size
MARK_BITS = 0xFFFFFFFF
# a set bit in each byte of a mark, so that no byte is zero, and a search can skip zeros quickly
MARK_SET = 0x80808080
NAME_SIZE_MAX = 0xFFFF

hash_of = xxhash.xxh3_64_intdigest


class RecordKind(IntEnum):
    """The kinds of records."""

    WRITE = 1  # the hard state; with flag ENTRY, an entry too
    GROUP = 2  # name, replica, membership and start of the log of a group
    REMOVE = 3  # the group was removed
    CENSUS = 4  # the last seq of each group that has records since the previous census, or of all groups


class Flag(IntFlag):
    """The bits of the field `flags` in the head of a record."""

    ENTRY = 1  # WRITE has an entry, which replaces the entries from its index on
    MORE = 2  # the next record belongs to the same change: either both are used, or none
    RESET = 4  # GROUP: earlier records no longer belong to the group
    DAMAGED = (
        8  # GROUP: the log of this replica has lost records; CENSUS: groups that are not listed may be lost
    )


ENTRY, MORE, RESET, DAMAGED_FLAG = int(Flag.ENTRY), int(Flag.MORE), int(Flag.RESET), int(Flag.DAMAGED)
WRITE, GROUP = int(RecordKind.WRITE), int(RecordKind.GROUP)
REMOVE, CENSUS = int(RecordKind.REMOVE), int(RecordKind.CENSUS)


class Head(NamedTuple):
    """The head of a record."""

    mark: int
    size: int
    kind: int
    flags: int
    entry_kind: int
    body_size: int
    number: int
    synced: int
    before: int  # group of the previous record; 0: that record is a census
    group: int
    seq: int
    term: int
    vote: int
    commit: int
    last: int
    entry_term: int
    payload_check: int


class Members(Protocol):
    """The membership of a group, in the form of the engine's type `Conf`."""

    @property
    def voters(self) -> Sequence[int]:
        """Return the peers that vote."""

    @property
    def learners(self) -> Sequence[int]:
        """Return the peers that do not vote."""

    @property
    def outgoing(self) -> Sequence[int]:
        """Return the voters of the previous membership."""

    @property
    def next_learners(self) -> Sequence[int]:
        """Return the voters that will become learners."""

    @property
    def auto_leave(self) -> bool:
        """Return whether a joint membership ends by itself."""


class Membership(NamedTuple):
    """A stored membership; its fields are the arguments of the engine's `Conf`, which requires lists."""

    voters: tuple[int, ...] = ()
    learners: tuple[int, ...] = ()
    outgoing: tuple[int, ...] = ()
    next_learners: tuple[int, ...] = ()
    auto_leave: bool = False

    @classmethod
    def of(cls, members: Members) -> Membership:
        """Return the engine's membership in stored form."""
        return cls(
            tuple(members.voters),
            tuple(members.learners),
            tuple(members.outgoing),
            tuple(members.next_learners),
            members.auto_leave,
        )


class Base(NamedTuple):
    """The content of a GROUP record; the payload of the record is the state of the group's machine at `start`."""

    peer: int
    start: int
    start_term: int
    conf: Membership
    name: str


def mark_of(file_id: int) -> bytes:
    """Return the 4 bytes with which each record of a file begins."""
    return (file_id & MARK_BITS).to_bytes(4, "little")


def head_at(view: memoryview, at: int, end: int, file_id: int) -> Head | None:
    """Return the head of the record at `at`, or None if the head, the body or the size is invalid.

    The payload is not checked.
    """
    if at + RECORD_SIZE_MIN > end:
        return None
    head = Head._make(HEAD.unpack_from(view, at))
    checked = HEAD.size + head.body_size
    if head.mark != file_id & MARK_BITS or checked + CHECK.size > head.size or at + head.size > end:
        return None
    (check,) = CHECK.unpack_from(view, at + checked)
    return head if check == hash_of(view[at : at + checked], file_id) else None


def body_of(view: memoryview, at: int, head: Head) -> bytes:
    """Return the body of the record at `at`."""
    return bytes(view[at + HEAD.size : at + HEAD.size + head.body_size])


def payload_of(view: memoryview, at: int, head: Head) -> memoryview | None:
    """Return the payload of the record at `at`, or None if it is damaged."""
    payload = view[at + RECORD_SIZE_MIN + head.body_size : at + head.size]
    return payload if hash_of(payload) == head.payload_check else None


def encode_base(base: Base) -> bytes:
    """Return the body of a GROUP record."""
    name = base.name.encode()
    assert len(name) <= NAME_SIZE_MAX
    conf = base.conf
    lists = (conf.voters, conf.learners, conf.outgoing, conf.next_learners)
    sizes = [len(each) for each in lists]
    head = BASE.pack(base.peer, base.start, base.start_term, *sizes, base.conf.auto_leave, 0, len(name))
    return head + b"".join(CHECK.pack(peer) for each in lists for peer in each) + name


def decode_base(body: bytes) -> Base:
    """Return the content of a GROUP record.

    Raises:
        ValueError, struct.error: the body is not that of a GROUP record.
    """
    peer, start, start_term, *sizes, auto_leave, _, name_size = BASE.unpack_from(body)
    at = BASE.size
    lists: list[tuple[int, ...]] = []
    for count in sizes:
        lists.append(tuple(CHECK.unpack_from(body, at + i * CHECK.size)[0] for i in range(count)))
        at += count * CHECK.size
    if len(body) != at + name_size:
        raise ValueError(f"a body of {len(body)} bytes, its fields make {at + name_size}")
    voters, learners, outgoing, next_learners = lists
    conf = Membership(voters, learners, outgoing, next_learners, bool(auto_leave))
    return Base(peer, start, start_term, conf, body[at:].decode())


def encode_census(since: int, seqs: Iterable[tuple[int, int]]) -> bytes:
    """Return the body of a CENSUS record.

    `seqs` has the number and the last seq of each group with records after the record `since`.
    """
    return CHECK.pack(since) + b"".join(PAIR.pack(group, seq) for group, seq in seqs)


def decode_census(body: bytes) -> tuple[int, Sequence[tuple[int, int]]]:
    """Return `since` and the pairs (group, last seq) from the body of a CENSUS record.

    Raises:
        struct.error: the body is not that of a CENSUS record.
    """
    (since,) = CHECK.unpack_from(body)
    return since, [(group, seq) for group, seq in PAIR.iter_unpack(memoryview(body)[CHECK.size :])]
