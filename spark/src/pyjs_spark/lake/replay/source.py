"""The source of a replay: the archive of one stream, in Parquet files or in a table of Delta or Iceberg.

All formats consist of Parquet files with known sequences; only the way to list the files differs. A table covers all
sequences from its first one to the last archived one. A Parquet file covers only the range in its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from pyjs_spark.errors import OptionError, SparkError
from pyjs_spark.lake import files, lakes
from pyjs_spark.lake.archive import File
from pyjs_spark.lake.replay.pipeline import Replay
from pyjs_spark.lake.tables.parquet import ParquetArchive
from pyjs_spark.lake.tables.table import Lake, Table, told


@dataclass(frozen=True, slots=True)
class Source:
    """The archive of one stream, from which a replay reads."""

    created: str  # of the stream
    headers: str  # map, raw or false
    files: list[File]  # in the order of their sequences


def look(found: Replay) -> Source:
    """Return the archive to replay.

    Raises:
        OptionError: there is no such archive, it has another format, or it was archived with includeHeaders=raw.
    """
    lake = Lake(found.source, found.format, found.catalog)
    lakes.refuse_other(lake, found.stream)
    archive = lakes.table_of(lake, found.stream)
    source = _files(archive) if isinstance(archive, ParquetArchive) else _table(archive)
    if source is None:
        raise OptionError(
            f"source {found.source}: no archive of stream {found.stream} (format={found.format})"
        )
    if source.headers == "raw":
        raise OptionError(
            f"source {found.source}: it was archived with includeHeaders=raw; a replay needs map"
        )
    return source


def _files(archive: ParquetArchive) -> Source | None:
    claims = archive.said()
    if claims is None:
        return None
    return Source(str(claims["created"]), str(claims["headers"]), list(_once(archive.files())))


def _once(held: Iterable[File]) -> Iterator[File]:
    """Yield the files that no other file covers; a compaction is about to remove the covered ones."""
    end = 0
    for file in sorted(held, key=lambda each: (each.low, -each.high)):
        if file.high > end:
            yield file
            end = file.high


def _table(table: Table) -> Source | None:
    with told(table):
        record = table.record()
        if record is None:
            return None
        parts = _delta(table) if table.lake.format == "delta" else _iceberg(table)
        held = sorted(parts, key=lambda each: each.low)
    whole = File("", record.first, record.next, 0)  # sequences that are in no file had no message
    return Source(record.created, record.headers, [whole, *held])


def _delta(table: Table) -> Iterator[File]:
    import pyarrow as pa

    _, folder = files.file_system(table.folder)
    for action in pa.table(table.loaded().get_add_actions(flatten=True)).to_pylist():
        path = f"{folder}/{_below(unquote(action['path']), table.folder)}"
        yield File(path, int(action["min.seq"]), int(action["max.seq"]) + 1, int(action["size_bytes"]))


def _below(path: str, folder: str) -> str:
    """Return the path of a file listed by a table. Raises SparkError if the path leads out of the table."""
    if path.startswith("/") or "://" in path or ".." in path.split("/"):
        raise SparkError(f"{folder}: the table lists the file {path[:100]!r}, which is not below it")
    return path


def _iceberg(table: Table) -> Iterator[File]:
    from pyiceberg.conversions import from_bytes

    loaded = table.loaded()
    seq = loaded.schema().find_field("seq")
    for task in loaded.scan().plan_files():
        ends = task.file.lower_bounds[seq.field_id], task.file.upper_bounds[seq.field_id]
        low, high = (int(from_bytes(seq.field_type, end)) for end in ends)
        _, path = files.file_system(task.file.file_path)
        yield File(path, low, high + 1, task.file.file_size_in_bytes)
