"""Offsets in Spark's checkpoint: the next sequence and the creation time of each stream.

    {"v": 1, "cut": {"partitions": 8, "rows_min": 10000, "rows_max": 500000},
     "streams": {"ORDERS": {"next": 300001, "created": "2026-11-20T19:19:45.123Z"}}}

`next` is the first sequence that was not read; as an end, it is exclusive. `created` is the creation time of
the stream. A stream that was deleted and re-created has another creation time, and its sequences belong to other
messages. `cut` has the rules for cutting batches into tasks: the first offset of a query takes them from the
options, all later offsets repeat them. So a repeated batch has the same partitions, even on another machine, and
a sink can recognise its rows. Spark compares offsets as text to detect new messages, so streams are sorted by
name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from pyjs_spark.errors import SparkError

VERSION = 1


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The read position in one stream."""

    next: int  # at least 1; a plan contained every sequence below it
    created: str  # of the stream, as the server wrote it

    def __post_init__(self) -> None:
        assert self.next >= 1


@dataclass(frozen=True, slots=True)
class Cut:
    """Rules for cutting ranges into tasks."""

    partitions: int  # minimum number of tasks
    rows_min: int  # rows for which a further task is worthwhile, even if there are then fewer tasks; 0: any
    rows_max: int  # maximum rows of a task


Offsets = dict[str, StreamOffset]  # stream -> offset


def to_json(offsets: Mapping[str, StreamOffset], cut: Cut | None = None) -> dict[str, object]:
    """Return offsets in the form that Spark stores: plain values, always in the same order."""
    streams = {name: {"next": at.next, "created": at.created} for name, at in sorted(offsets.items())}
    return {"v": VERSION, **({} if cut is None else {"cut": asdict(cut)}), "streams": streams}


def from_json(said: Mapping[str, object]) -> Offsets:
    """Return the offsets in a checkpoint.

    Raises:
        SparkError: a newer version, or another data source, wrote the checkpoint.
    """
    if said.get("v") != VERSION:
        raise SparkError(
            f"the checkpoint has an offset of version {said.get('v')!r}, this version of pyjs_spark reads {VERSION}; "
            "use the version that wrote it, or a new checkpoint directory"
        )
    streams = said.get("streams")
    if not isinstance(streams, dict):
        raise _damaged(said)
    return {str(name): _one(at, said) for name, at in streams.items()}


def cut_in(said: Mapping[str, object]) -> Cut | None:
    """Return the rules for cutting ranges in an offset, or None if the offset has no rules.

    Raises:
        SparkError: the rules are damaged.
    """
    if "cut" not in said:
        return None
    cut = said["cut"]
    least = {"partitions": 1, "rows_min": 0, "rows_max": 1}
    if not isinstance(cut, dict) or set(cut) != set(least):
        raise _damaged(said)
    if any(type(cut[name]) is not int or cut[name] < low for name, low in least.items()):
        raise _damaged(said)
    return Cut(**cut)


def _one(at: object, said: Mapping[str, object]) -> StreamOffset:
    if not isinstance(at, dict) or not isinstance(at.get("created"), str):
        raise _damaged(said)
    seq = at.get("next")
    if type(seq) is not int or seq < 1:
        raise _damaged(said)
    return StreamOffset(seq, at["created"])


def _damaged(said: Mapping[str, object]) -> SparkError:
    return SparkError(f"the checkpoint has an offset that is none of this data source: {said!r}")
