"""The configuration of a job in a TOML file.

    [pipeline]
    kind = "archive"            # the kind of job, which determines the other keys
    stream = "ORDERS"           # a name, a pattern with *, or a list of names and patterns
    target = "/lake"            # a folder, or a URI that pyarrow has a file system for
    master = "local[*]"         # where Spark runs

    [options]                   # of the data source; tls.ca may also be the key `ca` of a table [options.tls]
    servers = "nats://127.0.0.1:4222"

    [spark]                     # settings of the Spark session
    "spark.driver.memory" = "2g"

    [catalog]                   # of Iceberg, with pyiceberg's names; default: a file in the target
    type = "rest"
    uri = "http://catalog:8181"

An unknown key is refused; the error names the most similar known key. This module uses no server, Spark or pyarrow.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping

from pyjs_spark.errors import OptionError, suggestion
from pyjs_spark.lake import archive_job, compact, dead_letters, quality
from pyjs_spark.lake.jobs import Job, JobKind
from pyjs_spark.lake.replay import run as replay
from pyjs_spark.options.reading import BY_NAME

KINDS: Mapping[str, JobKind] = {
    kind.name: kind for kind in (archive_job.KIND, replay.KIND, compact.KIND, quality.KIND, dead_letters.KIND)
}
SECTIONS = ("pipeline", "options", "spark", "catalog")


def from_file(path: str, more: Mapping[str, str]) -> Job:
    """Return the job that a file defines; options in `more` override those in the file.

    Raises:
        OptionError: the file cannot be read, or does not define a valid job.
    """
    said = tables_of(path)
    try:
        return from_tables(said, more)
    except OptionError as error:
        raise OptionError(f"{path}: {error}") from None


def tables_of(path: str) -> dict[str, object]:
    """Return the contents of a TOML file.

    Raises:
        OptionError: the file cannot be read, or is not TOML.
    """
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise OptionError(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"{path}: this is no TOML: {error}") from None


def from_tables(said: Mapping[str, object], more: Mapping[str, str]) -> Job:
    """Return the job that the sections of a file define.

    Options in `more` override those of the file.

    Raises:
        OptionError: a section, key or value is missing or not allowed.
    """
    head = dict(_table(said, "pipeline"))
    if "kind" not in head:
        raise OptionError("key kind is missing in [pipeline]")
    name = _text("kind", head.pop("kind"))
    refuse_unknown([name], tuple(KINDS), "kind")
    kind = KINDS[name]
    refuse_unknown(said, SECTIONS if kind.has_catalog else SECTIONS[:-1], "section")
    refuse_unknown(head, tuple(key.name for key in kind.keys), "key")
    lists = {key.name for key in kind.keys if key.is_list}
    texts = {key: _texts(key, value) if key in lists else _text(key, value) for key, value in head.items()}
    options, spark, catalog = (dict(_flat(_table(said, section))) for section in SECTIONS[1:])
    return kind.job(texts, _documented({**_lower(options), **_lower(more)}), spark, catalog)


def _lower(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in options.items()}


def _documented(options: Mapping[str, str]) -> dict[str, str]:
    """Return `options`, with each known name spelled as in the documentation."""
    return {BY_NAME[name].name if name in BY_NAME else name: value for name, value in options.items()}


def refuse_unknown(said: Iterable[str], known: tuple[str, ...], what: str) -> None:
    """Raise OptionError for the first name in `said` that is not in `known`.

    The message of the error begins with `what`, such as "key", and suggests the most similar known name.
    """
    for name in said:
        if name not in known:
            raise OptionError(f"{what} {name} is unknown; {suggestion(name, known)}")


def _table(said: Mapping[str, object], name: str) -> Mapping[str, object]:
    """Return a section, or {} if it is missing. Raises OptionError if it is not a table."""
    found = said.get(name, {})
    if not isinstance(found, dict):
        raise OptionError(f"{name} is no section; write [{name}] and its keys below")
    return found


def _flat(section: Mapping[str, object], before: str = "") -> Iterator[tuple[str, str]]:
    """Yield the keys of a table and its inner tables in dotted form, with their values as strings for Spark."""
    for key, value in section.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield before + key, _text(before + key, value)


def _text(key: str, value: object) -> str:
    """Return the value of a key as a string for Spark; a list of strings is joined with commas.

    Raises:
        OptionError: the value has another type.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        return ",".join(value)
    raise OptionError(
        f"{key}={value} is not allowed; allowed: a text, a number, true, false, a list of texts"
    )


def _texts(key: str, value: object) -> list[str]:
    """Return the value of a key as a list of strings; a single string becomes a list.

    Raises:
        OptionError: the value has another type.
    """
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise OptionError(f"{key}={value} is not allowed; allowed: a list of texts")
    return found
