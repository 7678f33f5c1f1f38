"""All generated files."""

from __future__ import annotations

from pathlib import Path

from . import models, requests, server_options


def made() -> dict[Path, str]:
    """Return the text of every generated file."""
    return {**requests.made(), **server_options.made(), **models.made()}
