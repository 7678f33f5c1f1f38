"""Errors while the server starts, runs and stops: exceptions, messages and log lines."""

from __future__ import annotations

import errno
import os
import traceback
from typing import TYPE_CHECKING

from pyjs.base.errors import PyjsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from pyjs.base.log import Log


class StartFailed(PyjsError):
    """Raised when the server cannot start; the exception's message is written to the log as a fatal error."""


def fail(text: str, remedy: str = "") -> NoReturn:
    """Raise StartFailed with `text`, followed by a line with `remedy` if there is one.

    Raises:
        StartFailed: always.
    """
    raise StartFailed(f"{text}\n-> {remedy}" if remedy else text) from None


def file_remedy(error: OSError, key: str) -> str:
    """Return the remedy for a file or directory that cannot be used; `key` is its key in the configuration."""
    change = f"or change `{key}`"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"chown it, or its directory, to the user of the server (uid {os.getuid()}), {change}"
    if error.errno == errno.EROFS:
        return f"mount that file system with write access, {change}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"free space on that file system (df -h), {change}"
    if error.errno == errno.ENOENT:
        return f"create the directory, {change}"
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return f"a part of the path is a file: remove it, {change}"
    return change.removeprefix("or ")


def attempt(log: Log, step: Callable[[], object]) -> None:
    """Run one step of stopping the server; log an error instead of raising it, so that later steps still run."""
    try:
        step()
    except Exception as error:
        log_exception(log, "A step of the shutdown failed", error)


def log_exception(log: Log, message: object, error: object) -> None:
    """Log `message` with the traceback of `error`.

    If formatting the traceback fails with OSError, only the type and text of `error` are logged. If `error` is not an
    exception, only `message` is logged.
    """
    lines: list[str] = []
    if isinstance(error, BaseException):
        try:
            lines = traceback.format_exception(error)  # reads source files
        except OSError:  # no descriptor is free
            lines = [f"{type(error).__name__}: {error}"]
    log.error(f"{message}\n{''.join(lines)}".rstrip())
