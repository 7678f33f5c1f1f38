"""The contents of an archive in any format, read by the format's library; and an archive written without Spark."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from pyjs_spark.lake import lakes
from pyjs_spark.lake.archive import TableFile, Written
from pyjs_spark.lake.lakes import Lake, Task
from pyjs_spark.options.reading import Options, parse_options
from pyjs_spark.read.ranges import ReadRange


def here(task: Task, part: Sequence[ReadRange]) -> list[list[TableFile]]:
    """Run the tasks one at a time in this process."""
    return [task(what) for what in part]


def archive_here(lake: Lake | str | Path, options: Options, rows_per_file: int = 5) -> list[Written]:
    """Archive new messages, two ranges at a time; return the new files."""
    into = lake if isinstance(lake, Lake) else Lake(str(lake))
    return lakes.write_parts(here, into, options, lakes.plan(into, options, rows_per_file), 2)


def archive_until(lake: Lake, stream: str, servers: str, when: int, begins: Connection) -> None:
    """Archive new messages, and kill this process before it commits the part that begins at sequence `when`.

    Before the first part, None is sent through `begins`.
    """
    options = parse_options({"stream": stream, "servers": servers})
    ranges = lakes.plan(lake, options, 5)

    def run(task: Task, part: Sequence[ReadRange]) -> list[list[TableFile]]:
        found = here(task, part)
        if when == part[0].low:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    begins.send(None)
    lakes.write_parts(run, lake, options, ranges, 2)


def archived(lake: Lake, stream: str) -> list[int]:
    """Return the sequences in an archive, in their order, including duplicates."""
    import pyarrow.parquet as pq

    if lake.format == "parquet":
        paths = [str(path) for path in Path(lake.root).rglob("date=*/seq=*.parquet")]
    elif lake.format == "delta":
        from deltalake import DeltaTable

        paths = [uri.removeprefix("file://") for uri in DeltaTable(f"{lake.root}/{stream}").file_uris()]
    else:
        loaded = lakes.table_of(lake, stream).loaded()
        paths = [task.file.file_path.removeprefix("file://") for task in loaded.scan().plan_files()]
    return sorted(seq for path in paths for seq in pq.ParquetFile(path).read(["seq"])["seq"].to_pylist())
