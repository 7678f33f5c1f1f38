"""The table of one stream, as an archive uses it; the formats implement it. Knows nothing of any library."""

from __future__ import annotations

import importlib.util
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from pyjs_spark.errors import SparkError, SparkMissing
from pyjs_spark.lake.files import file_system

INSTALL = "pip install 'pyjs-spark[lake]'"
FORMATS = ("parquet", "delta", "iceberg")
TRIES_MAX = 5  # when maintenance of the table commits at the same time
PACKAGES = {"delta": ("deltalake",), "iceberg": ("pyiceberg",)}


@dataclass(frozen=True, slots=True)
class Lake:
    """Location and format of the tables."""

    root: str
    format: str  # parquet, delta or iceberg
    catalog: Mapping[str, str] = field(default_factory=dict)  # of Iceberg; empty: a file in root


@dataclass(frozen=True, slots=True)
class TableProperties:
    """The properties of a table."""

    created: str  # the stream's time of creation
    subjects: tuple[str, ...]
    headers: str
    first: int  # where the archive began
    next: int  # after the last sequence that was committed
    files: int = 0

    @classmethod
    def of(cls, said: Mapping[str, str], next_seq: int, files: int) -> TableProperties:
        """Read table properties; `next_seq` and `files` are from the table's commits."""
        subjects = tuple(json.loads(said["pyjs.subjects"]))
        return cls(
            said["pyjs.created"], subjects, said["pyjs.headers"], int(said["pyjs.first"]), next_seq, files
        )

    def properties(self) -> dict[str, str]:
        """Return the properties of a new table."""
        return {
            "pyjs.created": self.created,
            "pyjs.subjects": json.dumps(self.subjects),
            "pyjs.headers": self.headers,
            "pyjs.first": str(self.first),
        }


@dataclass(frozen=True, slots=True)
class TableFile:
    """One file that a task wrote."""

    path: str  # below the table's folder of data
    date: str
    low: int
    high: int  # exclusive
    rows: int
    size: int
    seqs: Sequence[int]  # of the first and the last row
    times_ns: Sequence[int]  # the least and the greatest


class Table(ABC):
    """The table of one stream."""

    data = ""  # the folder of the files, below that of the table

    def __init__(self, lake: Lake, stream: str) -> None:
        self.lake = lake
        self.stream = stream
        self.folder = f"{self.root}/{folder_name(stream)}"

    @property
    def root(self) -> str:
        """Return the root in the form that libraries accept: a URI, or an absolute path."""
        root = self.lake.root
        return root.rstrip("/") if "://" in root else str(file_system(root)[1])

    @abstractmethod
    def record(self) -> TableProperties | None:
        """Return the properties of the table, or None without one. Raises OptionError if it is not an archive."""

    @abstractmethod
    def create(self, record: TableProperties) -> None:
        """Create the table."""

    def append(self, after: int, high: int, files: Sequence[TableFile]) -> None:
        """Add the files if the table ends at `after`, and set its end to `high`, in one step.

        Raises:
            SparkError: it ends elsewhere; nothing was added.
        """
        for tries in range(1, TRIES_MAX + 1):
            table = self.loaded()
            at = self.end_of(table)
            if at != after:
                raise self.moved(after, at)
            try:
                self.commit(table, high, files)
                return
            except self.conflict():
                if tries == TRIES_MAX:
                    raise

    @abstractmethod
    def loaded(self) -> Any:
        """Return the library's object of the table, which exists."""

    @abstractmethod
    def end_of(self, table: Any) -> int | None:
        """Return the sequence after the last one in the table."""

    @abstractmethod
    def commit(self, table: Any, high: int, files: Sequence[TableFile]) -> None:
        """Add the files to the table as it was loaded. Raises conflict() if it has changed since."""

    @abstractmethod
    def conflict(self) -> type[Exception]:
        """Return the library's error for a commit that lost against another one."""

    def moved(self, after: int, found: int | None) -> SparkError:
        """Return the error for a table whose end has moved."""
        return SparkError(
            f"{self.folder}: the table is at sequence {found}, and this run began at {after}: another run wrote "
            f"to it at the same time; nothing was added twice, run this again"
        )


def folder_name(stream: str) -> str:
    """Return the name of a stream as a folder, without percent signs: the Delta library decodes them in places."""
    return quote(stream, safe="").replace("~", "%7E").replace("%", "~")


def check_installed(kind: str) -> None:
    """Raise SparkMissing if the library of a format is not installed."""
    for name in PACKAGES[kind]:
        if importlib.util.find_spec(name) is None:
            raise SparkMissing(f"format={kind}: the package {name} is not installed; {INSTALL}")


@contextmanager
def told(table: Table) -> Iterator[None]:
    """Raise exceptions of a library as SparkErrors of one line; a library has no common error class."""
    try:
        yield
    except (SparkError, OSError):
        raise
    except Exception as error:
        text = " ".join(str(error).split())[:500]
        raise SparkError(f"{table.folder}: {type(error).__name__}: {text}") from error
