"""The progress of the recovery of streams at a start, shown as a bar on a terminal, otherwise as log lines.

Nothing is shown for a recovery of less than two seconds. This module counts directories, and knows nothing of the
files in them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_S

if TYPE_CHECKING:
    from pyjs.base.log import Log
    from pyjs.node import Node

FIRST_NS = 2 * NS_PER_S  # from the start of the recovery to the first report
BAR_NS = NS_PER_S // 10  # between two states of the bar


class RecoveryProgress:
    """A display of how many of the stored streams a node has recovered."""

    def __init__(self, node: Node, log: Log) -> None:
        self._node = node
        self._log = log
        self._next_ns = node.clock.now_ns() + FIRST_NS
        self._last_line_ns = node.clock.now_ns()  # time of the last line, or of the start
        self._whole = 0  # stored streams; 0: not counted yet

    def step(self) -> None:
        """Report the progress, if a report is due; called after each step of the recovery."""
        now_ns = self._node.clock.now_ns()
        if now_ns < self._next_ns:
            return
        from pyjs.fsck.progress import LINES_NS, bar_text  # most recoveries end before

        self._next_ns = now_ns + BAR_NS
        self._whole = self._whole or self._stored()
        done = self._recovered()
        self._log.status(f"{bar_text(done, self._whole)}  {done:,} of {self._whole:,} streams recovered")
        if now_ns >= self._last_line_ns + LINES_NS and not self._log.shows_status:
            self._last_line_ns = now_ns
            self._log.info(f"  Recovered {done:,} of {self._whole:,} streams")

    def end(self) -> None:
        """Remove the display from the terminal."""
        self._log.status("")

    def _recovered(self) -> int:
        jetstream = self._node.jetstream
        return 0 if jetstream is None else sum(len(each.streams) for each in jetstream.accounts.values())

    def _stored(self) -> int:
        disk, root = self._node.disk, self._node.options.jetstream.store_dir
        accounts = [name for name in disk.list_dir(root) if not name.startswith(".")]
        names = [name for account in accounts for name in disk.list_dir(f"{root}/{account}/streams")]
        return sum(not name.startswith(".") for name in names)
