"""All generated files."""

from __future__ import annotations

from pathlib import Path

from . import models, requests, server_options


def made() -> dict[Path, str]:
    """Return the text of every generated file."""
    return {**sources(), **answers()}


def sources() -> dict[Path, str]:
    """Return the files that are generated from the declarations themselves, including the models."""
    return {**requests.made(), **server_options.made(), **models.made()}


def answers() -> dict[Path, str]:
    """Return the files that are generated from the models: write those of `sources` first."""
    from . import answers  # imported lazily: it imports the models

    return answers.made()
