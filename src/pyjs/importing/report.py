"""The report of an import: the parts of each stream that were imported, and those that are missing."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyjs.fsck.text import size_text

TAKEN, INCOMPLETE, NOT_IMPORTED = 0, 1, 2  # exit codes
RANGES_SHOWN = 20


@dataclass(slots=True)
class StreamReport:
    """The imported and missing parts of one stream."""

    account: str
    name: str
    refusal: str = ""  # "": the stream was imported
    messages: int = 0
    bytes: int = 0
    consumers: int = 0
    damage: list[str] = field(default_factory=list)
    missing: list[tuple[int, int]] = field(default_factory=list)  # (first, last) sequences of damaged ranges
    lost: int = -1  # number of lost messages; -1: unknown
    notes: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether the whole stream was imported."""
        return not (self.refusal or self.damage)

    def lines(self) -> list[str]:
        """Return the lines of the printed report about this stream."""
        path = f"{self.account} > {self.name}"
        if self.refusal:
            return [f"{path}: NOT TAKEN: {self.refusal}"]
        head = f"{path}: {_count(self.messages, 'message')}, {size_text(self.bytes)}"
        lines = [f"{head}, {_count(self.consumers, 'consumer')}"]
        lines += [f"  DAMAGE: {text}" for text in self.damage]
        if self.missing and self.lost:
            lines.append(f"  lost: {self._lost_text()}")
        return lines + [f"  note: {text}" for text in self.notes]

    def _lost_text(self) -> str:
        total = sum(last - first + 1 for first, last in self.missing)
        lost = _count(self.lost, "message") if self.lost > 0 else f"at most {_count(total, 'message')}"
        shown = ", ".join(f"{first} to {last}" for first, last in self.missing[:RANGES_SHOWN])
        return f"{lost}, sequences {shown}{'' if len(self.missing) <= RANGES_SHOWN else ', ...'}"


@dataclass(slots=True)
class ImportReport:
    """The imported and missing parts of a store directory."""

    streams: list[StreamReport] = field(default_factory=list)
    others: list[str] = field(default_factory=list)  # paths that are not streams
    unserved: list[str] = field(default_factory=list)  # accounts for which the configuration has no JetStream

    def lines(self) -> list[str]:
        """Return the lines of the printed report about all streams."""
        lines = [line for stream in self.streams for line in stream.lines()]
        lines += [f"not taken: {path} holds no streams" for path in self.others]
        lines += [
            f"note: the configuration gives the account {name} no JetStream; a server does not serve its streams"
            for name in self.unserved
        ]
        lines.append("note: streams in memory have no files: a stopped server has lost them")
        taken = [stream for stream in self.streams if not stream.refusal]
        refused, total = len(self.streams) - len(taken), sum(stream.messages for stream in taken)
        summary = f"Imported {_count(len(taken), 'stream')} with {_count(total, 'message')}"
        damaged = sum(not stream.is_whole for stream in taken)
        if damaged:
            summary += f", {damaged} of them with damage"
        return [*lines, summary + (f"; {_count(refused, 'stream')} not taken" if refused else "")]

    def exit_code(self) -> int:
        """Return the exit code of the command: TAKEN if all streams are whole, otherwise INCOMPLETE."""
        return TAKEN if all(stream.is_whole for stream in self.streams) else INCOMPLETE


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
