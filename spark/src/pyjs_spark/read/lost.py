"""Count of the sequences that a query has lost, by stream. A gap is found again and again until it is passed."""

from __future__ import annotations

from pyjs_spark.read.plan import Gap


class LossCount:
    """Counts each lost sequence once."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._ends: dict[str, int] = {}  # every lost sequence below is counted

    def add(self, gap: Gap) -> None:
        """Count the part of a gap that is new; one without a known end counts nothing."""
        low = max(gap.low, self._ends.get(gap.stream, 0))
        if low < gap.high:
            self.counts[gap.stream] = self.counts.get(gap.stream, 0) + gap.high - low
            self._ends[gap.stream] = gap.high

    def begin_again(self, stream: str) -> None:
        """A stream of this name was re-created: its sequences begin again."""
        self._ends.pop(stream, None)
