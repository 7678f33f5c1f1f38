"""The interface of the log, which writes lines, each with a level. `server/` decides where the lines go."""

from __future__ import annotations


class Log:
    """A log that discards everything; subclasses write lines."""

    debug_on = False
    trace_on = False
    shows_status = False  # `status` is visible

    def write(self, level: str, text: str) -> None:
        """Write one line; `level` is INF, WRN, ERR, FTL, DBG or TRC."""

    def status(self, text: str) -> None:
        """Show `text` on a terminal in place of the last status; "" removes the last status.

        A log that is not a terminal ignores the call.
        """

    def info(self, text: str) -> None:
        """Log an ordinary event."""
        self.write("INF", text)

    def warn(self, text: str) -> None:
        """Log a condition that the operator should check."""
        self.write("WRN", text)

    def error(self, text: str) -> None:
        """Log a failure."""
        self.write("ERR", text)

    def fatal(self, text: str) -> None:
        """Log the reason why the server stops."""
        self.write("FTL", text)

    def debug(self, text: str) -> None:
        """Log details of a connection if `debug_on` is set."""
        if self.debug_on:
            self.write("DBG", text)

    def trace(self, text: str) -> None:
        """Log protocol lines if `trace_on` is set."""
        if self.trace_on:
            self.write("TRC", text)


class ListLog(Log):
    """A log that collects its lines as (level, text), for tests."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def write(self, level: str, text: str) -> None:
        """Append one line to `lines`."""
        self.lines.append((level, text))
