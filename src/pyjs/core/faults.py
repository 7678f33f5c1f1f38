"""Faults: unexpected exceptions, counted, and logged with a traceback unless the same one was logged recently.

The code that catches a fault reports it here and continues with other work. The owner of the failed work must
repair its own half-changed state.

This module identifies failed work only by a description.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_S

if TYPE_CHECKING:
    from pyjs.base.log import Log

QUIET_NS = 10 * NS_PER_S  # minimum time between two log lines of the same fault
KNOWN_MAX = 256  # different faults that are counted separately


class Faults:
    """The counters and log lines of the unexpected exceptions of one node."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.counts: dict[str, int] = {}  # by kind of work, for monitoring
        self._logged_at: dict[tuple[str, str], int] = {}
        # number of faults since the last log line, by kind and place
        self._untold: dict[tuple[str, str], int] = {}

    def report(self, kind: str, what: str, error: Exception, now_ns: int) -> None:
        """Count a fault in work of this `kind`, and log it unless the same fault was logged recently.

        `what` describes the failed work in the log line.
        """
        self.counts[kind] = self.counts.get(kind, 0) + 1
        key = (kind, _place(error))
        logged_at = self._logged_at.get(key)
        if logged_at is not None and logged_at <= now_ns < logged_at + QUIET_NS:
            self._untold[key] = self._untold.get(key, 0) + 1
            return
        if len(self._logged_at) >= KNOWN_MAX:
            self._logged_at.clear()
            self._untold.clear()
        self._logged_at[key] = now_ns
        untold = self._untold.pop(key, 0)
        more = f" ({untold} more like this since the last report)" if untold else ""
        text = "".join(traceback.format_exception(error))
        self._log.error(f"unexpected failure in {what}{more}: {text}")


def _place(error: Exception) -> str:
    """Return a key for the place where an exception was raised; exceptions of the same fault have equal keys."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else ""
    return f"{type(error).__name__} {where}"
