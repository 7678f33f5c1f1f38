"""The bytes that the streams of all workers use, as one worker knows them.

The limits `max_mem` and `max_file` of the server apply to all workers together. Each worker counts the bytes of the
others as used. It reports its own bytes when they have changed by GRAIN or, if that is less, by 1 / SHARE of the
limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.jetstream.config.choices import FILE, MEMORY
from pyjs.jetstream.spread.notes import Used

if TYPE_CHECKING:
    from pyjs.jetstream.stream.limits import Usage

GRAIN = 1 << 20  # bytes; a change by this much is reported
SHARE = 128  # a change by 1 / SHARE of the limit is reported


class SharedUsage:
    """The bytes that the streams of all workers use, as one worker knows them."""

    def __init__(self, usage: dict[str, Usage]) -> None:
        """Initialize the counts.

        `usage` has the bytes of this worker's streams; the bytes of other workers will be added to it.
        """
        self._usage = usage
        self.others: dict[int, Used] = {}  # by worker
        self._told = Used(0, 0)
        self._elsewhere = Used(0, 0)

    def own(self) -> Used:
        """Return the bytes that this worker's streams use, in memory and in files."""
        elsewhere = self._elsewhere
        return Used(self._usage[MEMORY].used - elsewhere.memory, self._usage[FILE].used - elsewhere.storage)

    def take(self, worker: int, used: Used) -> None:
        """Replace the last report of another worker with `used`, and change the counts by the difference."""
        old, self.others[worker] = self.others.get(worker, Used(0, 0)), used
        more = Used(used.memory - old.memory, used.storage - old.storage)
        self._usage[MEMORY].used += more.memory
        self._usage[FILE].used += more.storage
        elsewhere = self._elsewhere
        self._elsewhere = Used(elsewhere.memory + more.memory, elsewhere.storage + more.storage)

    def news(self) -> Used | None:
        """Return the bytes of this worker's streams, or None if they have not changed enough to be reported.

        The returned bytes count as reported.
        """
        own, told = self.own(), self._told
        is_near = abs(own.memory - told.memory) < self._grain(MEMORY) and abs(
            own.storage - told.storage
        ) < self._grain(FILE)
        if is_near:
            return None
        self._told = own
        return own

    def _grain(self, kind: str) -> int:
        most = self._usage[kind].max
        return GRAIN if most < 0 else max(1, min(GRAIN, most // SHARE))
