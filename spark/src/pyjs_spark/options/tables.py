"""Options of buckets and object stores: which combinations and kinds of read are allowed.

The stream of a key-value bucket is named KV_<bucket>, and that of an object store OBJ_<bucket>.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyjs_spark.errors import OptionError
from pyjs_spark.nats.buckets import kv_stream, object_stream
from pyjs_spark.options.values import Position, refuse

if TYPE_CHECKING:
    from pyjs_spark.options.reading import Options

WHAT = ("stream", "bucket", "objectStore")  # exactly one of these options selects the source
OF_REVISIONS = (
    "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp", "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp", "minPartitions", "maxRecordsPerPartition",
)  # fmt: skip
# option -> the sources with which it is valid
OWN = {
    **dict.fromkeys(("subjects", "includeHeaders", "pushdown"), ("stream",)),
    **dict.fromkeys(("keys", "includeHistory"), ("bucket",)),
    **dict.fromkeys(("objects", "maxObjectSize"), ("objectStore",)),
    "includeDeletes": ("bucket", "objectStore"),
    **dict.fromkeys((*OF_REVISIONS, "readMode"), ("stream", "bucket")),
}
INSTEAD = {
    "subjects": "keys chooses by key",
    "includeHeaders": "a schema that names the column headers has them",
    "pushdown": "keys and objects choose on the server",
}


def check(said: set[str]) -> None:
    """Raise OptionError for an option that belongs to another kind of read than the requested one."""
    what = [name for name in WHAT if name in said]
    if len(what) > 1:
        raise OptionError(f"options {what[0]} and {what[1]} both say what to read; give one")
    for name in sorted(said & set(OWN)):
        if what and what[0] not in OWN[name]:
            hint = INSTEAD.get(name, "leave it out")
            raise OptionError(
                f"option {name} does not go with {what[0]}, only with {_any(OWN[name])}; {hint}"
            )


def _any(names: tuple[str, ...]) -> str:
    return " or ".join(names)


def with_streams(parsed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values, with stream names instead of the names of buckets and object stores."""
    found = dict(parsed)
    if "object_store" in found:
        found["streams"] = (object_stream(found["object_store"]),)
    if "buckets" in found:
        found["streams"] = tuple(kv_stream(bucket) for bucket in found["buckets"])
        for name in ("starting_offsets", "ending_offsets"):
            if name in found:
                found[name] = _of_streams(found[name])
        for name in ("starting_times", "ending_times"):
            if name in found:
                found[name] = tuple((kv_stream(bucket), at) for bucket, at in found[name])
    return found


def _of_streams(position: Position) -> Position:
    """Return the position with stream names instead of bucket names."""
    return Position(position.word, tuple((kv_stream(bucket), at) for bucket, at in position.streams))


def check_latest(options: Options) -> None:
    """Raise OptionError for an option that has no effect on a read of a bucket's latest values."""
    modes = ("readMode",) if options.read_mode in ("direct", "bulk") else ()
    why = (
        "does not go with a batch of a bucket, which has the latest value of each key; leave it out, or set "
        "includeHistory=true to read all revisions that are there"
    )
    refuse(options.said, (*OF_REVISIONS, *modes), why)


def check_stream(options: Options) -> None:
    """Raise OptionError for an option that a streaming read cannot have."""
    refuse(options.said, ("objectStore",), "is a batch read only; use spark.read, not spark.readStream")
    if options.include_history:
        raise OptionError(
            "option includeHistory is not allowed in a streaming read, which has every change; leave it out "
            "and set startingOffsets=earliest to begin with what is there"
        )
