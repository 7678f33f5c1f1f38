"""The files of the dashboard, which are part of the package."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def _assets() -> dict[str, bytes]:
    """Return the content of each file of the dashboard by file name; the files are read once, at the first call."""
    folder = files("pyjs.server.monitoring") / "assets"
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}


def asset(name: str) -> bytes | None:
    """Return the content of the dashboard file `name`, or None if there is no such file."""
    return _assets().get(name)
