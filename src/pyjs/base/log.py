"""What every room may say to the operator: one line at a level. Where it goes is the shell's business."""

from __future__ import annotations


class Log:
    """A log that keeps nothing; subclasses write lines."""

    debug_on = False
    trace_on = False

    def write(self, level: str, text: str) -> None:
        """Take one line; `level` is INF, WRN, ERR, FTL, DBG or TRC."""

    def info(self, text: str) -> None:
        """Say what happens in ordinary work."""
        self.write("INF", text)

    def warn(self, text: str) -> None:
        """Say what the operator should look at."""
        self.write("WRN", text)

    def error(self, text: str) -> None:
        """Say what failed."""
        self.write("ERR", text)

    def fatal(self, text: str) -> None:
        """Say why the server ends."""
        self.write("FTL", text)

    def debug(self, text: str) -> None:
        """Say what helps to understand a connection; only when debug_on."""
        if self.debug_on:
            self.write("DBG", text)

    def trace(self, text: str) -> None:
        """Say what goes over the wire; only when trace_on."""
        if self.trace_on:
            self.write("TRC", text)


class ListLog(Log):
    """Keeps its lines as (level, text). For tests."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def write(self, level: str, text: str) -> None:
        """Keep one line."""
        self.lines.append((level, text))
