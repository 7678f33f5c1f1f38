"""The index of the node log for one group.

A group is intact or damaged. An intact group has its whole log:

    first = start + 1, last = start + number of entries, start_term <= term of each entry, terms do not decrease

A damaged group has lost a record. Then only records after the loss are used; as soon as they form a complete
log, the group is intact again. Every change of a group corresponds to a record that is written or read.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from pyjs.consensus.log.records import Membership

if TYPE_CHECKING:
    from pyjs.consensus.log.records import Base

FILE_SHIFT = 40  # a place is (number of the file << FILE_SHIFT) + offset in the file


class StoredGroup:
    """One group: the state that the engine needs to open it, and the places of its entries."""

    __slots__ = (
        "_base_size",
        "_first",
        "_is_based",
        "_places",
        "_sizes",
        "_terms",
        "base_place",
        "conf",
        "damage",
        "hard",
        "name",
        "number",
        "peer",
        "seen",
        "seq",
        "size",
        "start",
        "start_term",
        "state",
        "written_commit",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.name = ""
        self.peer = 0
        self.conf = Membership()
        self.start = 0
        self.start_term = 0
        self.state = b""  # state of the application at `start`
        self.hard = (0, 0, 0)  # term, vote, commit
        self.written_commit = 0  # the commit index in its last record
        self.damage = ""  # a description of the loss; "": the group is intact
        self.seq = 0  # `seq` of its last record; in the first record of a replica, it is the record's number
        self.seen = 0  # used while a log is read: number of the last record that proves `seq`
        self.base_place = 0  # place of its GROUP record
        self.size = 0  # bytes of its GROUP record and of its entries
        self._base_size = 0
        self._is_based = False  # if damaged: whether `start` and the membership are newer than the loss
        self._first = 1  # index of the first stored entry; start + 1 if intact
        self._terms = array("Q")
        self._places = array("Q")
        self._sizes = array("Q")

    @property
    def is_damaged(self) -> bool:
        """Return whether a record of the group was lost: the replica must return as another peer."""
        return bool(self.damage)

    @property
    def last(self) -> int:
        """Return the index of the last entry, or `start` if there are none."""
        return self._first + len(self._terms) - 1

    @property
    def oldest_file(self) -> int:
        """Return the number of the oldest file with records of the group."""
        oldest = min(self.base_place, self._places[0]) if self._places else self.base_place
        return oldest >> FILE_SHIFT

    def term_at(self, index: int) -> int:
        """Return the term of an index, or 0 if the log does not have it."""
        if index == self.start:
            return self.start_term
        at = index - self._first
        return self._terms[at] if 0 <= at < len(self._terms) else 0

    def place_of(self, index: int) -> tuple[int, int]:
        """Return place and size of the record of an entry.

        Raises:
            KeyError: the log has no such entry.
        """
        at = index - self._first
        if not 0 <= at < len(self._terms):
            raise KeyError(index)
        return self._places[at], self._sizes[at]

    def append(self, index: int, term: int, place: int, size: int) -> None:
        """Add an entry; it replaces the entries with its index or a higher one."""
        at = index - self._first
        if not 0 <= at <= len(self._terms):
            assert self.damage  # an intact log has no gaps
            self._clear(index)
        elif at < len(self._terms):
            self._cut(at)
        assert not self._terms or self._terms[-1] <= term
        self._terms.append(term)
        self._places.append(place)
        self._sizes.append(size)
        self.size += size
        if self._is_based and self._first <= self.start + 1:
            self._heal()

    def begin_at(self, base: Base, last: int, place: int, size: int, *, reset: bool) -> None:
        """Apply a GROUP record: the log begins after `base.start`, and its entries up to `last` remain."""
        assert base.start <= last
        self.name, self.peer, self.conf = base.name, base.peer, base.conf
        self.start, self.start_term = base.start, base.start_term
        self.base_place = place
        self.size += size - self._base_size
        self._base_size = size
        if reset or last == base.start:
            self._clear(base.start + 1)
            self._heal()
        elif self._first <= base.start + 1 and self.last == last:
            self._heal()
        else:
            assert self.damage  # an intact log has every entry after its start
            self._is_based = True

    def lose(self, damage: str) -> None:
        """Mark the group as damaged: records before the loss are no longer used."""
        self.damage = self.damage or damage
        self._is_based = False
        self._clear(0)

    def check(self) -> None:
        """Check the invariants of an intact group."""
        assert self._first == self.start + 1
        assert self.start <= self.last
        assert not self._terms or self.start_term <= self._terms[0]

    def _heal(self) -> None:
        """Mark the group as intact, because all entries after the start are present."""
        self.damage, self._is_based = "", False
        self._forget(self.start + 1 - self._first)

    def _clear(self, first: int) -> None:
        self._cut(0)
        self._first = first

    def _cut(self, at: int) -> None:
        self.size -= sum(self._sizes[at:])
        for each in (self._terms, self._places, self._sizes):
            del each[at:]

    def _forget(self, count: int) -> None:
        self.size -= sum(self._sizes[:count])
        for each in (self._terms, self._places, self._sizes):
            del each[:count]
        self._first += count
