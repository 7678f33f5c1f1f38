"""A progress bar of tqdm for a query that reads all present messages and ends (Trigger.AvailableNow).

    orders:  60%|######    | 60000/100000 [00:12<00:08, 5000 sequences/s]

The total counts the sequences of the streams at the end of the last batch, so it grows as messages arrive.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any, TextIO

from pyjs_spark.errors import SparkMissing
from pyjs_spark.observe.progress import BatchDone, QueryKey
from pyjs_spark.observe.prometheus import INSTALL


class ProgressBar:
    """A reporter that shows a bar for each query. Raises SparkMissing if tqdm is not installed."""

    def __init__(self, file: TextIO | None = None) -> None:
        if importlib.util.find_spec("tqdm") is None:
            raise SparkMissing(f"the package tqdm is not installed; {INSTALL}")
        from tqdm.auto import tqdm

        self._tqdm = tqdm
        self._file = sys.stderr if file is None else file
        self._bars: dict[str, Any] = {}  # by the id of the run

    def started(self, query: QueryKey) -> None:
        """Show an empty bar for a query."""
        self._bars[query.run] = self._tqdm(desc=query.label, unit=" sequences", file=self._file, total=None)

    def batch(self, done: BatchDone) -> None:
        """Advance the bar by one batch."""
        bar = self._bars.get(done.query.run)
        if bar is None:
            return
        known = [part.sequences for part in done.streams if part.sequences is not None]
        count = sum(known) if known and len(known) == len(done.streams) else done.rows
        bar.total = bar.n + count + done.lag
        bar.update(count)
        bar.refresh()

    def ended(self, query: QueryKey, error: str) -> None:
        """Close the bar; its last state remains visible in the terminal."""
        bar = self._bars.pop(query.run, None)
        if bar is not None:
            bar.close()
