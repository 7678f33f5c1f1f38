"""Findings of a check, as dataclasses: one problem, one stream, the whole store.

A finding has one of four levels:

- damage: bytes differ from those that were written;
- note: left over from a crash, a stop or an operator; a starting server handles or ignores it;
- unchecked: another version wrote the file, and the check does not change it;
- locked: the file is encrypted, and the key is missing or wrong.

A finding may have a mend: a function that `--repair` calls, and that returns a description of the repair. This module
accesses no files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    Mend: TypeAlias = Callable[[], str]  # makes a repair and returns a text about it; raises OSError

DAMAGE = "damage"
NOTE = "note"
UNCHECKED = "unchecked"
LOCKED = "locked"  # as unchecked, but because the key is missing

CLEAN = 0
DAMAGED = 1
NOT_CHECKED = 2


@dataclass(eq=False, slots=True)
class Finding:
    """A problem, and its place in the store."""

    level: str
    path: str
    what: str
    offset: int = -1  # in the file; -1: the finding is about all of the file or directory
    size: int = 0  # number of damaged bytes
    first_seq: int = 0  # first lost message; 0: none
    last_seq: int = 0
    mend: Mend | None = None


class Report:
    """The base class of reports: a list of findings about one object."""

    __slots__ = ()
    findings: list[Finding]

    def find(self, level: str, path: str, what: str, offset: int = -1, size: int = 0) -> Finding:
        """Add a finding, and return it."""
        finding = Finding(level, path, what, offset, size)
        self.findings.append(finding)
        return finding


@dataclass(eq=False, slots=True)
class ConsumerReport:
    """The state of one consumer, for the report."""

    name: str
    delivered_seq: int = 0
    ack_floor_seq: int = 0
    pending: int = 0


@dataclass(eq=False, slots=True)
class StreamReport(Report):
    """The report about one stream, as the next start of the server will find the stream."""

    account: str
    name: str
    directory: str
    segments: int = 0
    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0
    lost: list[tuple[int, int]] = field(default_factory=list)  # ranges of sequences, except removed ones
    lost_bytes: int = 0
    consumers: list[ConsumerReport] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    # ranges that were permanently lost before the repair
    gone: list[tuple[int, int]] = field(default_factory=list)
    is_replica: bool = False  # other servers have its messages too

    def lost_messages(self) -> int:
        """Return the number of messages lost to damage."""
        return count_of(self.lost)


@dataclass(eq=False, slots=True)
class NodeLogReport:
    """The totals of the node log of a server in a cluster."""

    files: int
    groups: int
    damaged: int  # number of groups with damage
    records: int
    entries: int  # number of entries in groups without damage
    bytes: int


@dataclass(eq=False, slots=True)
class StoreReport(Report):
    """The report about a whole store directory."""

    root: str
    streams: list[StreamReport] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)  # findings that are not about a stream
    repairs: list[str] = field(default_factory=list)
    node_log: NodeLogReport | None = None

    def all_findings(self) -> Iterator[Finding]:
        """Yield the findings about the store, and then those about each stream."""
        yield from self.findings
        for stream in self.streams:
            yield from stream.findings

    def all_repairs(self) -> list[str]:
        """Return the descriptions of all repairs, including those of streams."""
        return self.repairs + [text for stream in self.streams for text in stream.repairs]

    def exit_code(self) -> int:
        """Return the exit code of the command: CLEAN, DAMAGED or NOT_CHECKED."""
        levels = {finding.level for finding in self.all_findings()}
        if UNCHECKED in levels:
            return NOT_CHECKED
        if DAMAGE in levels or self.all_repairs():
            return DAMAGED
        return NOT_CHECKED if LOCKED in levels else CLEAN


def range_text(first: int, last: int) -> str:
    """Return a string for a range of sequences."""
    return f"{first}" if first == last else f"{first} to {last}"


def count_of(ranges: list[tuple[int, int]]) -> int:
    """Return the number of sequences in ranges."""
    return sum(last - first + 1 for first, last in ranges)
