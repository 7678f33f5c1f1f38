"""Archive of a stream as Parquet files; each file's name contains its first and last sequence.

    <root>/stream=<name>/date=<UTC day>/seq=<first>-<last>.parquet    both numbers with 19 digits
    <root>/stream=<name>/_archive.json      identity of the stream, and the options of the archive
    <root>/stream=<name>/_none/             empty files with such names, for ranges without a message
    <root>/stream=<name>/_tmp/              files that are being written

The names alone are the progress: the next run reads the sequences that no file covers, and after a kill it
writes the unfinished files again. A file covers its whole range of sequences, including those without a
message. No file is ever changed: the driver renames complete files into place. Any engine can read the
archive as a table partitioned by stream and date; files that begin with `_` are not part of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from pyjs_spark import strict_json
from pyjs_spark.errors import SparkError
from pyjs_spark.lake.archive import File, Holding, TableFile, Written, parts_folder, quoted
from pyjs_spark.lake.files import file_system, write_text
from pyjs_spark.options.reading import Options
from pyjs_spark.read.plan import StreamState
from pyjs_spark.read.ranges import ReadRange

MOVES = 8  # number of files moved at the same time
NONE = "_none"  # folder of the empty files
FILE = re.compile(r"seq=(\d{19})-(\d{19})\.parquet")


class ParquetArchive:
    """The archive of one stream as Parquet files."""

    def __init__(self, root: str, stream: str) -> None:
        self._root = root
        self._stream = stream
        self._system, base = file_system(root)
        self._folder = f"{base}/stream={quoted(stream)}"
        self._parts = f"{base}/{parts_folder('parquet', stream)}"

    def holding(self, state: StreamState) -> Holding:
        """Return the archived ranges of the stream."""
        covered = tuple((file.low, file.high) for file in self.files())
        return Holding(state, covered, self.said(), len(covered))

    def files(self) -> list[File]:
        """Return the files in the order of their sequences, without unfinished ones."""
        from pyarrow import fs

        found = []
        selector = fs.FileSelector(self._folder, recursive=True, allow_not_found=True)
        for info in self._system.get_file_info(selector):
            match = FILE.fullmatch(info.base_name)
            inside = info.path.removeprefix(self._folder).split("/")[1]
            if match and (inside == NONE or not inside.startswith("_")):
                low, last = map(int, match.groups())
                found.append(File(info.path, low, last + 1, 0 if inside == NONE else max(1, info.size or 0)))
        return sorted(found, key=lambda file: (file.low, file.high, file.path))

    def said(self) -> Mapping[str, Any] | None:
        """Return the properties of the archive, or None if there is no archive of this stream.

        Raises:
            SparkError: the file with the properties is damaged.
        """
        path = f"{self._folder}/_archive.json"
        if not self._system.get_file_info(path).is_file:
            return None
        with self._system.open_input_stream(path) as source:
            text = source.read()
        try:
            found = strict_json.loads(text)
            return {name: found[name] for name in ("created", "subjects", "headers")}
        except (ValueError, TypeError, KeyError):
            raise SparkError(f"{path}: this says not whose archive it is; put back what was there") from None

    def prepare(self, holding: Holding, options: Options) -> None:
        """Write the stream's identity, and remove unfinished files of a killed run."""
        self._system.create_dir(self._parts, recursive=True)
        self._system.delete_dir_contents(self._parts)
        if holding.said is None:
            claims = {
                "created": holding.state.created,
                "subjects": list(options.subjects),
                "headers": options.include_headers,
                "begun": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
            }
            write_text(self._root, f"stream={quoted(self._stream)}/_archive.json", json.dumps(claims))

    def begin(self, low: int) -> int:
        """Return `low`, since files may be added in any order."""
        return low

    def add(self, after: int, done: Sequence[tuple[ReadRange, Sequence[TableFile]]]) -> list[Written]:
        """Rename the files of ranges into place, and return them.

        For each range without a message, an empty file is created and returned.
        """
        with ThreadPoolExecutor(MOVES) as pool:  # on S3, a move is a copy
            placed = pool.map(self._placed, *zip(*done, strict=True)) if done else ()
            return [each for files in placed for each in files]

    def _placed(self, what: ReadRange, files: Sequence[TableFile]) -> list[Written]:
        placed = []
        for file in files:
            path = self._path(f"date={file.date}", file.low, file.high)
            self._system.move(f"{self._parts}/{file.path}", path)
            placed.append(Written(self._stream, path, file.low, file.high, file.rows))
        if files:
            return placed
        path = self._path(NONE, what.low, what.high)  # an empty file, so that the range is not read again
        self._system.open_output_stream(path).close()
        return [Written(self._stream, path, what.low, what.high, 0)]

    def _path(self, folder: str, low: int, high: int) -> str:
        self._system.create_dir(f"{self._folder}/{folder}", recursive=True)
        return f"{self._folder}/{folder}/{file_name(low, high)}"


def rows_in(system: Any, path: str, low: int, high: int) -> int:
    """Return the number of rows in a Parquet file.

    Raises:
        ValueError: the file is damaged, or a row is outside [low, high).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        said = pq.read_metadata(path, filesystem=system)
        seq = said.schema.names.index("seq")
        stats = [said.row_group(number).column(seq).statistics for number in range(said.num_row_groups)]
        least, last = min(each.min for each in stats), max(each.max for each in stats)
    except (pa.ArrowException, OSError, ValueError, AttributeError) as error:
        raise ValueError(f"cannot be read: {' '.join(str(error).split())[:200]}") from None
    if least < low or last >= high or said.num_rows > last - least + 1:
        raise ValueError(f"sequences {least} to {last} pass what its name says")
    return int(said.num_rows)


def file_name(low: int, high: int) -> str:
    """Return the name of the file that covers [low, high)."""
    return f"seq={low:019}-{high - 1:019}.parquet"
