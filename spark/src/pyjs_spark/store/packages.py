"""Packages that only some store directories need, imported on first use."""

from __future__ import annotations

import importlib
from typing import Any

from pyjs_spark.errors import SparkMissing


def needed(name: str, what: str) -> Any:
    """Import the module `name`, which is needed to read `what`. Raises SparkMissing if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise SparkMissing(
            f"{what} need the package {package}, which is not installed here; pip install {package} on the driver "
            "and on every worker"
        ) from None
