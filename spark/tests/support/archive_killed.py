"""A run of an archive without Spark that kills itself, in a process of its own (forked.py)."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from multiprocessing.connection import Connection

from spark.tests.support.archived import here

from pyjs_spark.lake import lakes
from pyjs_spark.lake.archive import TableFile
from pyjs_spark.lake.lakes import Lake, Task
from pyjs_spark.options.reading import parse_options
from pyjs_spark.read.ranges import ReadRange


def archive(lake: Lake, stream: str, servers: str, when: int, begins: Connection) -> None:
    """Archive what is new, and die before the commit of the part that begins at `when`; send None when it begins."""
    options = parse_options({"stream": stream, "servers": servers})
    ranges = lakes.plan(lake, options, 5)

    def run(task: Task, part: Sequence[ReadRange]) -> list[list[TableFile]]:
        found = here(task, part)
        if when == part[0].low:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    begins.send(None)
    lakes.write_parts(run, lake, options, ranges, 2)
