"""The server's log in the standard library's `logging`, which the program configures."""

from __future__ import annotations

import logging

from pyjs.base.log import Log

NAME = "pyjs.server"  # the default logger
LEVELS = {
    "INF": logging.INFO,
    "DBG": logging.DEBUG,
    "WRN": logging.WARNING,
    "ERR": logging.ERROR,
    "FTL": logging.CRITICAL,
    "TRC": logging.DEBUG,
}


class StandardLog(Log):
    """A log that passes each line to a `logging.Logger` of the program."""

    def __init__(self, logger: logging.Logger | None, debug: bool = False, trace: bool = False) -> None:
        self._logger = logging.getLogger(NAME) if logger is None else logger
        self.debug_on = debug or self._logger.isEnabledFor(logging.DEBUG)
        self.trace_on = trace

    def write(self, level: str, text: str) -> None:
        """Pass `text` to the logger, at the logging level that corresponds to `level`."""
        self._logger.log(LEVELS[level], "%s", text)
