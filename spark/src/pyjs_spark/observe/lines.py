"""Log lines about streaming queries: one for each batch with rows, and for each start and end.

query orders: batch 5, 40 rows, 80 bytes in 0.945 s; ORDERS next 81, lag 20
"""

from __future__ import annotations

import logging

from pyjs_spark.observe.progress import BatchDone, QueryKey, StreamPart

LOG = logging.getLogger("pyjs_spark.query")
# maximum number of characters of an error; after its first line, Spark's errors contain the whole plan
ERROR_MAX = 500


class LogLines:
    """A reporter that logs to `pyjs_spark.query`, with level INFO, or ERROR for a query that failed."""

    def __init__(self, log: logging.Logger = LOG) -> None:
        self._log = log
        self._lost: dict[tuple[str, str], int] = {}  # run and stream -> losses that were logged

    def started(self, query: QueryKey) -> None:
        """Log the start of a query."""
        self._log.info("query %s: started, run %s", query.label, query.run)

    def batch(self, done: BatchDone) -> None:
        """Log a batch that has rows; log a loss with level WARNING."""
        for part in done.streams:
            new = part.lost - self._lost.get((done.query.run, part.stream), 0)
            if new > 0:
                self._log.warning("query %s: %d sequences of %s are lost", done.query.label, new, part.stream)
                self._lost[done.query.run, part.stream] = part.lost
        if not done.rows:
            return
        size = "" if done.size is None else f", {done.size} bytes"
        late = f", {done.late_rows} late" if done.late_rows else ""
        ends = "".join(f"; {_place(part)}" for part in done.streams)
        self._log.info(
            "query %s: batch %d, %d rows%s%s in %.3f s%s",
            *(done.query.label, done.batch, done.rows, size, late, done.seconds, ends),
        )

    def ended(self, query: QueryKey, error: str) -> None:
        """Log the end of a query."""
        self._lost = {key: lost for key, lost in self._lost.items() if key[0] != query.run}
        if error:
            self._log.error("query %s: failed: %s", query.label, " ".join(error.split())[:ERROR_MAX])
        else:
            self._log.info("query %s: ended", query.label)


def _place(part: StreamPart) -> str:
    return f"{part.stream} next {part.next}, lag {part.lag}"
