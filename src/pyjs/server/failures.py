"""Errors while the server starts, runs and stops: exceptions, texts and log lines."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from pyjs.base.errors import PyjsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from pyjs.base.log import Log


class StartFailed(PyjsError):
    """The server cannot start; the text is written to the log as a fatal error."""


def fail(text: str) -> NoReturn:
    """Raise StartFailed with `text`.

    Raises:
        StartFailed: always.
    """
    raise StartFailed(text) from None


def attempt(log: Log, step: Callable[[], object]) -> None:
    """Run one step of stopping the server; log an error instead of raising it, so that later steps still run."""
    try:
        step()
    except Exception as error:
        log_exception(log, "A step of the shutdown failed", error)


def log_exception(log: Log, message: object, error: object) -> None:
    """Log an unexpected exception with its traceback, or without it if formatting the traceback fails."""
    lines: list[str] = []
    if isinstance(error, BaseException):
        try:
            lines = traceback.format_exception(error)  # reads source files
        except OSError:  # no descriptor is free
            lines = [f"{type(error).__name__}: {error}"]
    log.error(f"{message}\n{''.join(lines)}".rstrip())
