"""The table of one stream, as an archive uses it. Subclasses implement the formats.

This module uses none of the formats' libraries.
"""

from __future__ import annotations

import importlib.util
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pyjs_spark.errors import OptionError, SparkError, SparkMissing
from pyjs_spark.lake.archive import Holding, TableFile, Written, folder_name, parts_folder
from pyjs_spark.lake.files import file_system
from pyjs_spark.options.reading import Options
from pyjs_spark.read.plan import StreamState
from pyjs_spark.read.ranges import ReadRange

INSTALL = "pip install 'pyjs-spark[lake]'"
FORMATS = ("parquet", "delta", "iceberg")
PART = re.compile(r"part-(\d{19})-[0-9a-f]{32}\.parquet")
# age above which uncommitted files are removed; no run takes this long for one part
ORPHAN_AGE = timedelta(days=1)
TRIES_MAX = 5  # attempts at a commit, since maintenance of the table may commit at the same time
PACKAGES = {"delta": "deltalake", "iceberg": "pyiceberg"}


@dataclass(frozen=True, slots=True)
class Lake:
    """The location and format of the archives of streams."""

    root: str
    format: str = "parquet"  # or delta, iceberg
    catalog: Mapping[str, str] = field(default_factory=dict)  # of Iceberg; empty: a file in the root


@dataclass(frozen=True, slots=True)
class TableProperties:
    """The properties of a table, which identify its stream and its range."""

    created: str  # the stream's time of creation
    subjects: tuple[str, ...]
    headers: str
    first: int  # the first sequence of the archive
    next: int  # the sequence after the last committed one
    files: int = 0

    @classmethod
    def of(cls, said: Mapping[str, str], next_seq: int, files: int) -> TableProperties:
        """Return the properties from the strings that are stored in a table.

        `next_seq` and `files` are from the table's commits.
        """
        subjects = tuple(json.loads(said["pyjs.subjects"]))
        return cls(
            said["pyjs.created"], subjects, said["pyjs.headers"], int(said["pyjs.first"]), next_seq, files
        )

    def properties(self) -> dict[str, str]:
        """Return the properties as they are stored in a new table."""
        return {
            "pyjs.created": self.created,
            "pyjs.subjects": json.dumps(self.subjects),
            "pyjs.headers": self.headers,
            "pyjs.first": str(self.first),
        }


class Table(ABC):
    """The base class for the table of one stream in an archive."""

    conflict: type[Exception]  # the library's error for a commit that conflicts with another one

    def __init__(self, lake: Lake, stream: str) -> None:
        self.lake = lake
        self.stream = stream
        self.folder = f"{self.root}/{folder_name(stream)}"
        self.parts = f"{self.root}/{parts_folder(lake.format, stream)}"  # folder of the table's files

    @property
    def root(self) -> str:
        """Return the root in the form that libraries accept: a URI, or an absolute path."""
        root = self.lake.root
        return root.rstrip("/") if "://" in root else str(file_system(root)[1])

    def holding(self, state: StreamState) -> Holding:
        """Return the archived range of the stream."""
        with told(self):
            record = self.record()
        if record is None:
            return Holding(state, (), None, 0)
        said = {"created": record.created, "subjects": list(record.subjects), "headers": record.headers}
        return Holding(state, ((record.first, record.next),), said, record.files)

    def prepare(self, holding: Holding, options: Options) -> None:
        """Create the table; if it exists, remove the files that killed runs did not commit."""
        if holding.said is not None:
            self._remove_orphans(holding.next)
            return
        state, first = holding.state, holding.state.first_seq
        with told(self):
            self.create(
                TableProperties(state.created, options.subjects, options.include_headers, first, first)
            )

    def _remove_orphans(self, next_seq: int) -> None:
        from pyarrow import fs

        system, base = file_system(self.parts)
        oldest = datetime.now(UTC) - ORPHAN_AGE
        for info in system.get_file_info(fs.FileSelector(base, recursive=True, allow_not_found=True)):
            match = PART.fullmatch(info.base_name)
            if match and int(match[1]) >= next_seq and info.mtime is not None and info.mtime < oldest:
                system.delete_file(info.path)

    def begin(self, low: int) -> int:
        """Return the sequence at which the table ends.

        Raises:
            SparkError: there is no table, or it ends after `low`, where the plan begins.
        """
        with told(self):
            record = self.record()
        if record is None or record.next > low:
            raise self.moved(low, record.next if record else None)
        return record.next

    def add(self, after: int, done: Sequence[tuple[ReadRange, Sequence[TableFile]]]) -> list[Written]:
        """Commit the files of ranges if the table ends at `after`; return the files."""
        files = [file for _, own in done for file in own]
        with told(self):
            self.append(after, done[-1][0].high, files)
        return [
            Written(self.stream, f"{self.parts}/{each.path}", each.low, each.high, each.rows)
            for each in files
        ]

    @abstractmethod
    def record(self) -> TableProperties | None:
        """Return the properties of the table, or None if there is no table.

        Raises:
            OptionError: the table is not an archive.
        """

    @abstractmethod
    def create(self, record: TableProperties) -> None:
        """Create the table."""

    def append(self, after: int, high: int, files: Sequence[TableFile]) -> None:
        """If the table ends at `after`, add the files and set the table's end to `high`, in one step.

        Raises:
            SparkError: the table has another end; nothing was added.
        """
        for tries in range(1, TRIES_MAX + 1):
            table = self.loaded()
            at = self.end_of(table)
            if at != after:
                raise self.moved(after, at)
            try:
                self.commit(table, high, files)
                return
            except self.conflict:
                if tries == TRIES_MAX:
                    raise

    @abstractmethod
    def loaded(self) -> Any:
        """Return the library's object for the existing table."""

    @abstractmethod
    def end_of(self, table: Any) -> int | None:
        """Return the sequence after the last archived sequence, or None if no archive began the table."""

    @abstractmethod
    def commit(self, table: Any, high: int, files: Sequence[TableFile]) -> None:
        """Add the files to the table as it was loaded, and set the table's end to `high`.

        Raises `conflict` if the table has changed since.
        """

    def moved(self, after: int, found: int | None) -> SparkError:
        """Return the error for a table whose end has changed."""
        return SparkError(
            f"{self.folder}: the table is at sequence {found}, and this run began at {after}: another run wrote "
            f"to it at the same time; nothing was added twice, run this again"
        )


def check_installed(kind: str) -> None:
    """Raise SparkMissing if the library of a format is not installed."""
    if kind in PACKAGES and importlib.util.find_spec(PACKAGES[kind]) is None:
        raise SparkMissing(f"format={kind}: the package {PACKAGES[kind]} is not installed; {INSTALL}")


def check_own_catalog(root: str) -> None:
    """Raise OptionError if the file of Iceberg's catalog cannot be stored in a root."""
    if "://" in root:
        raise OptionError(
            f"format=iceberg: the target {root} is no folder that can hold a catalog; name one in [catalog] of a file"
        )


@contextmanager
def told(table: Table) -> Iterator[None]:
    """Convert the library's exceptions, except OSError, to one-line SparkErrors.

    Every Exception is caught, because the errors of the libraries have no common base class.
    """
    try:
        yield
    except (SparkError, OSError):
        raise
    except Exception as error:
        text = " ".join(str(error).split())[:500]
        raise SparkError(f"{table.folder}: {type(error).__name__}: {text}") from error
