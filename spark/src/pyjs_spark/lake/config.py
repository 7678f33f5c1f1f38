"""The configuration of a pipeline: a TOML file, the command line, or both.

    [pipeline]
    kind = "archive"            # the others have modules of their own
    stream = "ORDERS"           # a name, a pattern with *, or a list of both
    target = "/lake"            # a folder, or a URI that pyarrow has a file system for
    format = "parquet"          # or delta, iceberg
    rows_per_file = 500_000
    master = "local[*]"         # where Spark runs

    [options]                   # of the data source; `tls.ca = "..."` may be a table too
    servers = "nats://127.0.0.1:4222"

    [spark]                     # settings of the Spark session
    "spark.driver.memory" = "2g"

    [catalog]                   # of Iceberg, in the words of pyiceberg; without it a file in the target
    type = "rest"
    uri = "http://catalog:8181"

An unknown key is refused, and the error names the closest known one. Knows nothing of servers, Spark and pyarrow.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from pyjs_spark.errors import OptionError
from pyjs_spark.lake.tables.iceberg import check_own_catalog
from pyjs_spark.lake.tables.table import Lake
from pyjs_spark.options import uses
from pyjs_spark.options.reading import BY_NAME, Options, parse_options

T = TypeVar("T")
KINDS = ("archive", "replay", "compact", "quality", "dlq-report")
FORMATS = ("parquet", "delta", "iceberg")
SECTIONS = ("pipeline", "options", "spark")
KEYS = ("kind", "stream", "target", "format", "rows_per_file", "master")
ROWS_PER_FILE = 500_000
ROWS_PER_FILE_MAX = 1_000_000_000
MASTER = "local[*]"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One pipeline, checked."""

    target: str
    options: Options
    kind: str = "archive"
    rows_per_file: int = ROWS_PER_FILE
    master: str = MASTER
    spark: Mapping[str, str] = field(default_factory=dict)
    format: str = "parquet"
    catalog: Mapping[str, str] = field(default_factory=dict)

    @property
    def lake(self) -> Lake:
        """Return where an archive writes."""
        return Lake(self.target, self.format, self.catalog)


def make(
    stream: str,
    target: str,
    said: Mapping[str, str],
    rows_per_file: int = ROWS_PER_FILE,
    master: str = MASTER,
    spark: Mapping[str, str] | None = None,
    lake_format: str = "parquet",
    catalog: Mapping[str, str] | None = None,
) -> Pipeline:
    """Return the pipeline. Raises OptionError."""
    named = [name for name in said if name.lower() == "stream"]
    if named:
        raise OptionError(
            f"option {named[0]}: the stream of a pipeline is named beside its target, not as an option"
        )
    if not target.strip():
        raise OptionError("the target is empty; name a folder, or a URI such as s3://bucket/lake")
    if not 1 <= rows_per_file <= ROWS_PER_FILE_MAX:
        raise OptionError(
            f"rows_per_file={rows_per_file} is not allowed; allowed: a number from 1 to {ROWS_PER_FILE_MAX}"
        )
    _check_format(lake_format, target, catalog or {})
    options = parse_options({**said, "stream": stream})
    uses.check(uses.ARCHIVE, options)
    return Pipeline(
        target, options, "archive", rows_per_file, master, dict(spark or {}), lake_format, dict(catalog or {})
    )


def _check_format(name: str, target: str, catalog: Mapping[str, str]) -> None:
    if name not in FORMATS:
        near = difflib.get_close_matches(name.lower(), FORMATS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(FORMATS)}"
        raise OptionError(f"format={name} is unknown; {hint}")
    if catalog and name != "iceberg":
        raise OptionError(f"section catalog is for format=iceberg, and the format is {name}; leave it out")
    if name == "iceberg" and not catalog:
        check_own_catalog(target)


def tables_of(path: str) -> dict[str, object]:
    """Return the contents of a file. Raises OptionError."""
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise OptionError(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"{path}: this is no TOML: {error}") from None


def from_file(path: str, more: Mapping[str, str]) -> Pipeline:
    """Return the pipeline of a file; `more` are options that take precedence over the file's. Raises OptionError."""
    said = tables_of(path)
    return named(path, lambda: from_tables(said, more))


def named(path: str, make_it: Callable[[], T]) -> T:
    """Return the result of parsing a file; its errors begin with the file's name. Raises OptionError."""
    try:
        return make_it()
    except OptionError as error:
        raise OptionError(f"{path}: {error}") from None


def kind_of(path: str) -> str:
    """Return the kind of pipeline in a file. Raises OptionError."""
    said = tables_of(path)

    def kind() -> str:
        found = text(table(said, "pipeline"), "kind")
        check_kind(found)
        return found

    return named(path, kind)


def from_tables(said: Mapping[str, object], more: Mapping[str, str]) -> Pipeline:
    """Return the archive that a file's sections define; `more` as in from_file. Raises OptionError."""
    refuse_unknown(said, (*SECTIONS, "catalog"), "section")
    head, options, spark, catalog = (table(said, name) for name in (*SECTIONS, "catalog"))
    refuse_unknown(head, KEYS, "key")
    check_kind(text(head, "kind"))
    rows = head.get("rows_per_file", ROWS_PER_FILE)
    if type(rows) is not int:
        raise OptionError(f"rows_per_file={rows} is not allowed; allowed: a whole number")
    master = text(head, "master") if "master" in head else MASTER
    kind = text(head, "format") if "format" in head else "parquet"
    given = options_of(options, more)
    stream, target = text(head, "stream"), text(head, "target")
    return make(stream, target, given, rows, master, dict(flat(spark)), kind, dict(flat(catalog)))


def check_kind(kind: str) -> None:
    """Refuse an unknown kind of pipeline. Raises OptionError."""
    refuse_unknown([kind], KINDS, "kind")


def refuse_unknown(said: Iterable[str], known: tuple[str, ...], what: str) -> None:
    """Refuse an unknown name; the error has the closest known one. Raises OptionError."""
    for name in said:
        if name in known:
            continue
        near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        raise OptionError(f"{what} {name} is unknown; {hint}")


def table(said: Mapping[str, object], name: str) -> Mapping[str, object]:
    """Return a section, {} if it is not there. Raises OptionError."""
    found = said.get(name, {})
    if not isinstance(found, dict):
        raise OptionError(f"{name} is no section; write [{name}] and its keys below")
    return found


def text(head: Mapping[str, object], key: str) -> str:
    """Return the value of a key that must be there, as text. Raises OptionError."""
    if key not in head:
        raise OptionError(f"key {key} is missing in [pipeline]")
    return as_text(key, head[key])


def flat(section: Mapping[str, object], before: str = "") -> Iterator[tuple[str, str]]:
    """Yield all keys of a table and its inner tables, dotted, with their values in Spark's form."""
    for key, value in section.items():
        if isinstance(value, dict):
            yield from flat(value, f"{before}{key}.")
        else:
            yield before + key, as_text(before + key, value)


def as_text(key: str, value: object) -> str:
    """Return a value of a file in Spark's form. Raises OptionError."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        return ",".join(value)
    raise OptionError(
        f"{key}={value} is not allowed; allowed: a text, a number, true, false, a list of texts"
    )


def options_of(section: Mapping[str, object], more: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a file under their documented names; those of `more` take precedence."""
    given = {name.lower(): value for name, value in (*flat(section), *more.items())}
    return {BY_NAME[name].name if name in BY_NAME else name: value for name, value in given.items()}
