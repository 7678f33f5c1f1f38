"""Checks of the files that the server writes outside its store: the log, the pid file and the ports file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyjs.server.doctor.findings import fail, ok, warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyjs.config.options import Options
    from pyjs.server.doctor.findings import Finding


def check_outputs(options: Options) -> Iterator[Finding]:
    """Check whether the log file, the pid file and the ports file can be written, and yield the findings."""
    for subject, key, path in (
        ("log", "log_file", options.log.log_file),
        ("pid file", "pid_file", options.pid_file),
    ):
        if not path:
            continue
        problem = _problem(path)
        if problem:
            yield fail(subject, f"{path}: {problem}", f"create the directory, or change `{key}`")
        else:
            yield ok(subject, path)
    directory = options.ports_file_dir
    if directory and not _is_writable_directory(directory):
        problem = f"{directory} is no directory that this user can write"
        yield warn("ports file", problem, "create it, or change `ports_file_dir`")


def _problem(path: str) -> str:
    """Return the reason why the file at `path` cannot be written, or "" if it can."""
    directory = os.path.dirname(path) or "."
    if not os.path.isdir(directory):
        return f"{directory} is a file" if os.path.exists(directory) else f"there is no directory {directory}"
    if os.path.isdir(path):
        return "this is a directory"
    if os.path.exists(path):
        return "" if os.access(path, os.W_OK) else "this user cannot write it"
    return "" if _is_writable_directory(directory) else f"this user cannot write {directory}"


def _is_writable_directory(path: str) -> bool:
    return os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK)
