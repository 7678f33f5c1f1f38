"""What goes wrong while the server starts, runs and ends: how it is raised, worded and logged."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from pyjs.base.errors import PyjsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from pyjs.base.log import Log


class StartFailed(PyjsError):
    """The server cannot start; the text is that of the fatal log line."""


def fail(text: str) -> NoReturn:
    """Give up the start.

    Raises:
        StartFailed: always.
    """
    raise StartFailed(text) from None


def attempt(log: Log, step: Callable[[], object]) -> None:
    """Do a step of the end; if it fails, those behind it are done all the same."""
    try:
        step()
    except Exception as error:
        log_exception(log, "A step of the shutdown failed", error)


def log_exception(log: Log, message: object, error: object) -> None:
    """Log an exception that nobody expected, with where it came from; with its words alone if that cannot be told."""
    lines: list[str] = []
    if isinstance(error, BaseException):
        try:
            lines = traceback.format_exception(error)  # reads the sources
        except OSError:  # no descriptor left
            lines = [f"{type(error).__name__}: {error}"]
    log.error(f"{message}\n{''.join(lines)}".rstrip())
