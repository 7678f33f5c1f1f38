"""The operator's log: one line per event, to stderr or to a file.

A line has this form, as nats-server writes it and log shippers parse it:

    [pid] YYYY/MM/DD hh:mm:ss.uuuuuu [INF] text

With `log_format: json` a line is one JSON object with time (UTC, RFC 3339), level, pid, worker (if there are several)
and text.

Lines may contain texts from clients and services. Unprintable characters are escaped, and all lines of a
traceback except the first are indented, so that no text can look like a separate line.

A file larger than `size_limit` is renamed to `<file>.YYYY.MM.DD.hh.mm.ss.nnnnnnnnn`, and a new file is begun;
renamed files beyond the newest `files_max - 1` are removed. A line that cannot be written is lost, since a full disk
must not end the server.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import orjson

from pyjs.base.errors import reason_of
from pyjs.base.gotext import printable, time_text
from pyjs.base.log import Log
from pyjs.server.failures import fail, file_remedy

if TYPE_CHECKING:
    from pyjs.config.options import Options

COLORS = {"INF": "32", "DBG": "36", "WRN": "93", "ERR": "31", "FTL": "31", "TRC": "33"}
LEVELS = {"INF": "info", "DBG": "debug", "WRN": "warn", "ERR": "error", "FTL": "fatal", "TRC": "trace"}
CLEAR = b"\r\x1b[K"  # erases the cursor's line, which shows the status
CONTINUED = "\n    "  # between the lines of one text
FILE_MODE = 0o640
STAMP_DIGITS = [4, 2, 2, 2, 2, 2, 9]  # digits of each part of a rotated file's stamp


class Logger(Log):
    """A log that writes each line at once, without a buffer, so that the last line before a crash is in the file."""

    def __init__(
        self,
        path: str = "",
        *,
        show_time: bool = True,
        utc: bool = False,
        debug: bool = False,
        trace: bool = False,
        size_limit: int = 0,
        files_max: int = 0,
        fd: int = 2,
        name: str = "",
        as_json: bool = False,
    ) -> None:
        self.path = path  # "": `fd`, by default stderr
        self.show_time = show_time
        self.utc = utc
        self.debug_on = debug
        self.trace_on = trace
        self.as_json = as_json
        self.size_limit = size_limit  # bytes; 0: never rotate
        self.files_max = files_max  # 0: no rotated file is removed
        self._prefix = f"[{os.getpid()}] "
        self._name = name  # name of the worker; "": there is only one process
        self._begin = f"{name}: " if name else ""  # the prefix of each text
        self._fd = self._open() if path else fd
        self._size = os.fstat(self._fd).st_size if path else 0
        self._colored = not path and os.isatty(fd)
        self._status = ""  # the last line of the terminal, below the log
        self._second = -1  # the second for which `_stamp` was formatted
        self._stamp = ""

    def write(self, level: str, text: str) -> None:
        """Write a log line with `text`, in the configured format."""
        self.relay(self._line(level, text))

    def relay(self, line: bytes) -> None:
        """Write a line that is already formatted, line end included; rotate the file if it has become too large."""
        self._put(line)
        if self.path and self.size_limit and self._size > self.size_limit:
            self._rotate()

    @property
    def shows_status(self) -> bool:  # type: ignore[override]
        """Whether the log is a terminal."""
        return self._colored

    def status(self, text: str) -> None:
        """Show `text` on the last line of a terminal, in place of the previous status; "" removes the status.

        Do nothing if the log is not a terminal.
        """
        if self._colored and text != self._status:
            self._status = ""
            self._put(CLEAR + text.encode())
            self._status = text

    def reopen(self) -> bool:
        """Reopen the file after it was renamed; return False if the log is not a file.

        Raises:
            OSError: the file cannot be opened; the log continues with the renamed file.
        """
        if not self.path:
            return False
        fd = self._open()
        os.close(self._fd)
        self._fd = fd
        self._size = os.fstat(fd).st_size
        return True

    def adopt(self, other: Logger) -> None:
        """Take over the settings and the file of `other`, which must not be used afterwards."""
        if self.path:
            os.close(self._fd)
        self.__dict__.update(other.__dict__)

    def close(self) -> None:
        """Close the file; lines written later go to stderr."""
        if self.path:
            os.close(self._fd)
            self._fd, self.path = 2, ""

    def _open(self) -> int:
        return os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)

    def _line(self, level: str, text: str) -> bytes:
        if self.as_json:
            return self._json_line(level, text)
        if self._colored:
            level = f"\x1b[{COLORS[level]}m{level}\x1b[0m"
        stamp = self._time_text() if self.show_time else ""
        if not text.isprintable():
            text = CONTINUED.join(printable(line) for line in text.split("\n"))
        return f"{self._prefix}{stamp}[{level}] {self._begin}{text}\n".encode(errors="replace")

    def _json_line(self, level: str, text: str) -> bytes:
        fields: dict[str, object] = {"time": time_text(time.time_ns())} if self.show_time else {}
        fields |= {"level": LEVELS[level], "pid": os.getpid()}
        if self._name:
            fields["worker"] = self._name
        fields["text"] = text.encode(errors="replace").decode()  # a lone surrogate has no JSON
        return orjson.dumps(fields) + b"\n"

    def _time_text(self) -> str:
        now_ns = time.time_ns()
        second, rest_ns = divmod(now_ns, 1_000_000_000)
        if second != self._second:
            parts = time.gmtime(second) if self.utc else time.localtime(second)
            self._stamp = time.strftime("%Y/%m/%d %H:%M:%S", parts)
            self._second = second
        return f"{self._stamp}.{rest_ns // 1000:06d} "

    def _put(self, line: bytes) -> None:
        if self._status:
            line = CLEAR + line + self._status.encode()
        try:
            self._size += os.write(self._fd, line)
        except OSError:
            pass  # there is no other place for the line

    def _rotate(self) -> None:
        second, rest_ns = divmod(time.time_ns(), 1_000_000_000)
        stamp = time.strftime("%Y.%m.%d.%H.%M.%S", time.localtime(second))
        backup = f"{self.path}.{stamp}.{rest_ns:09d}"
        try:
            os.rename(self.path, backup)
            self.reopen()
        except OSError as error:
            self.size_limit *= 2
            self._put(
                self._line("ERR", f"Unable to rotate {self.path} ({error}), next try at {self.size_limit}")
            )
            return
        self._put(self._line("INF", f'Rotated log, backup saved as "{backup}"'))
        if self.files_max > 0:
            self._purge()

    def _purge(self) -> None:
        directory, name = os.path.split(os.path.abspath(self.path))
        backups = sorted(entry for entry in os.listdir(directory) if is_backup(entry, name))
        for entry in backups[: max(0, len(backups) - (self.files_max - 1))]:
            try:
                os.unlink(os.path.join(directory, entry))
            except OSError as error:
                self._put(self._line("ERR", f'Unable to remove backup log file "{entry}" ({error})'))
                return
            self._put(self._line("INF", f'Purged log file "{entry}"'))


def is_backup(entry: str, name: str) -> bool:
    """Return whether directory entry `entry` is a rotated file of the log `name`."""
    if not entry.startswith(name + "."):
        return False
    parts = entry[len(name) + 1 :].split(".")
    return [len(part) for part in parts] == STAMP_DIGITS and all(part.isdigit() for part in parts)


def configured_logger(options: Options) -> Logger:
    """Return the log that `options` describe.

    Raises:
        OSError: the log file cannot be opened.
    """
    log = options.log
    return Logger(
        log.log_file,
        show_time=log.logtime,
        utc=log.logtime_utc,
        debug=log.debug,
        trace=log.trace,
        size_limit=log.log_size_limit,
        files_max=log.log_max_num,
        name="" if options.worker is None else f"worker {options.worker.number}",
        as_json=log.log_format == "json",
    )


def opened_logger(options: Options) -> Logger:
    """Return the log that `options` describe.

    Raises:
        StartFailed: the log file cannot be opened.
    """
    try:
        return configured_logger(options)
    except OSError as error:
        fail(
            f"error opening file: open {options.log.log_file}: {reason_of(error)}",
            file_remedy(error, "log_file"),
        )
