"""Unexpected exceptions: each is counted, and logged with its traceback unless the same one was logged just now.

A fault stays where it happens: whoever catches it reports it here and goes on with the next piece of work. What the
fault may have left half changed is the business of its owner.

Knows nothing of what failed but a text.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_S

if TYPE_CHECKING:
    from pyjs.base.log import Log

QUIET_NS = 10 * NS_PER_S  # the same fault is logged no more often
KNOWN_MAX = 256  # faults that are told apart


class Faults:
    """The faults of one node."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.counts: dict[str, int] = {}  # by kind of work, for monitoring
        self._logged_at: dict[tuple[str, str], int] = {}
        self._untold: dict[tuple[str, str], int] = {}  # faults since the line in the log

    def report(self, kind: str, what: str, error: Exception, now_ns: int) -> None:
        """Count a fault in a `kind` of work; log that `what` failed."""
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
    """Return what two exceptions have in common that come from the same fault."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else ""
    return f"{type(error).__name__} {where}"
