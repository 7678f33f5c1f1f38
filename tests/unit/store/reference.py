"""A store in a dict: slow and simple; the real stores are compared with it."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyjs.subjects.tokens import subject_matches


@dataclass
class ReferenceStore:
    """A simple model of a store: seq -> (subject, headers, payload, ts)."""

    overhead: int = 30
    header_overhead: int = 4
    last_seq: int = 0
    purged: bool = False  # an empty store has a first_seq only if it was purged
    messages: dict[int, tuple[bytes, bytes, bytes, int]] = field(default_factory=dict)

    def store(self, subject: bytes, headers: bytes, payload: bytes, ts: int) -> int:
        self.last_seq += 1
        self.messages[self.last_seq] = (subject, headers, payload, ts)
        return self.last_seq

    def skip_seq(self) -> int:
        self.last_seq += 1
        return self.last_seq

    def drop_seq(self, seq: int) -> bool:
        return self.messages.pop(seq, None) is not None

    def _matching(self, subjects: tuple[bytes, ...]) -> list[int]:
        return [
            seq
            for seq, (subject, *_) in sorted(self.messages.items())
            if not subjects or any(subject_matches(subject, pattern) for pattern in subjects)
        ]

    def next_match(self, from_seq: int, subjects: tuple[bytes, ...]) -> int:
        return next((seq for seq in self._matching(subjects) if seq >= from_seq), 0)

    def count_matching(self, from_seq: int, subjects: tuple[bytes, ...]) -> int:
        return sum(seq >= from_seq for seq in self._matching(subjects))

    def last_seqs(self, subjects: tuple[bytes, ...]) -> list[int]:
        last = {self.messages[seq][0]: seq for seq in self._matching(subjects)}
        return sorted(last.values())

    def purge(self, subjects: tuple[bytes, ...], before_seq: int, keep: int) -> int:
        found = self._matching(subjects)
        if not subjects and not keep and (before_seq == 0 or before_seq > self.last_seq):
            self.purged = True
            self.last_seq = max(self.last_seq, before_seq - 1)
        gone = found[: max(0, len(found) - keep)] if keep else found
        if before_seq:
            gone = [seq for seq in gone if seq < before_seq]
        for seq in gone:
            del self.messages[seq]
        return len(gone)

    @property
    def first_seq(self) -> int:
        if self.messages:
            return min(self.messages)
        return self.last_seq + 1 if self.last_seq or self.purged else 0

    @property
    def bytes(self) -> int:
        return sum(
            self.overhead
            + len(subject)
            + len(headers)
            + len(payload)
            + (self.header_overhead if headers else 0)
            for subject, headers, payload, _ in self.messages.values()
        )

    def deleted(self) -> list[int]:
        if not self.messages:
            return []
        return [seq for seq in range(self.first_seq, self.last_seq + 1) if seq not in self.messages]
