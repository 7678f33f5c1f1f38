"""The progress of a long command: a bar on a terminal, otherwise a line at intervals.

Source: tests/unit/fsck/test_progress.py; on a real terminal: tests/system/test_progress.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_S
from pyjs.fsck.text import size_text

if TYPE_CHECKING:
    from typing import TextIO

    from pyjs.base.clock import Clock

BAR_WIDTH = 30
LINES_NS = 10 * NS_PER_S  # between two lines
CLEAR = "\r\x1b[K"  # to the start of the line, which is erased


class Progress:
    """A receiver of progress reports; this base class ignores them."""

    def begin(self, size: int) -> None:
        """Report the start of work that will read `size` bytes."""

    def advance(self, size: int) -> None:
        """Report `size` more bytes read."""

    def end(self) -> None:
        """Report the end of the work."""


class Bar(Progress):
    """A progress bar on a terminal."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._size = self._done = 0
        self._shown = ""

    def begin(self, size: int) -> None:
        """Show an empty bar for work that will read `size` bytes."""
        self._size = size
        self._show()

    def advance(self, size: int) -> None:
        """Advance the bar by `size` bytes."""
        self._done += size
        self._show()

    def end(self) -> None:
        """Remove the bar."""
        self._write(CLEAR)

    def _show(self) -> None:
        text = f"{bar_text(self._done, self._size)}  {size_text(self._done)} of {size_text(self._size)}"
        if text != self._shown:
            self._shown = text
            self._write(f"\r{text}\x1b[K")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


class Lines(Progress):
    """A receiver that writes progress to a file or a pipe, with at least LINES_NS between two lines."""

    def __init__(self, out: TextIO, clock: Clock, program: str) -> None:
        self._out = out
        self._clock = clock
        self._program = program  # begins each line
        self._size = self._done = 0
        self._next_ns = clock.now_ns() + LINES_NS

    def begin(self, size: int) -> None:
        """Set the number of bytes that the work will read."""
        self._size = size

    def advance(self, size: int) -> None:
        """Count `size` more bytes, and write a line if the next one is due."""
        self._done += size
        now_ns = self._clock.now_ns()
        if now_ns >= self._next_ns:
            self._next_ns = now_ns + LINES_NS
            percent = percent_of(self._done, self._size)
            self._out.write(
                f"{self._program}: {percent} %, {size_text(self._done)} of {size_text(self._size)}\n"
            )
            self._out.flush()


def progress_on(out: TextIO, clock: Clock, program: str, *, quiet: bool) -> Progress:
    """Return a Bar if `out` is a terminal, otherwise Lines; with `quiet`, a Progress that shows nothing."""
    if quiet:
        return Progress()
    return Bar(out) if out.isatty() else Lines(out, clock, program)


def bar_text(done: int, whole: int) -> str:
    """Return the text of a bar for `done` of `whole` bytes, with the percentage."""
    percent = percent_of(done, whole)
    filled = percent * BAR_WIDTH // 100
    return f"[{'#' * filled}{'-' * (BAR_WIDTH - filled)}] {percent:3d} %"


def percent_of(done: int, whole: int) -> int:
    """Return `done` as a percentage of `whole`, rounded down and at most 100; 100 if `whole` is 0."""
    return min(done * 100 // whole, 100) if whole else 100
