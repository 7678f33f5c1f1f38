"""Processes that tests kill; each is forked from a process with all modules, so it starts in milliseconds."""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.process import BaseProcess

import pytest
from spark.tests.support.places import PYTHONPATH
from tests.style.tree import ROOT

FORKS = get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "deltalake.transaction",
        "pyarrow.parquet",
        "pyiceberg.catalog.sql",
        "pyiceberg.io.pyarrow",
        "pyjs_spark.lake.lakes",
        "pyjs_spark.read.modes",
        "spark.tests.support.sink_client",
    ]
)


def forked(act: Callable[..., None], *args: object) -> BaseProcess:
    """Start a process that calls a function of a module, and that needs no time for imports."""
    process = FORKS.Process(target=act, args=args, daemon=True)
    with pytest.MonkeyPatch.context() as patch:
        # For the process that is forked; it starts before the first of the others.
        patch.setenv("PYTHONPATH", os.pathsep.join([PYTHONPATH, str(ROOT)]))
        process.start()
    return process
