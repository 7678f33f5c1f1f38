"""Answers a plan's requests from the files of a store directory; an answer has only the fields that a plan needs.

The requests are those of lookup.py: the names of the streams, the state of a stream, and the first message after a
time. So the same planner works with and without a server.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from pyjs_spark.errors import ApiError, BadStore
from pyjs_spark.store import directory, snapshot
from pyjs_spark.store.image import Unusable
from pyjs_spark.store.place import StoreDirectory
from pyjs_spark.store.snapshot import Snapshot
from pyjs_spark.times import format_rfc3339, parse_rfc3339

STREAM_NOT_FOUND = 10059
NO_MESSAGE = 10037


class StoreApi:
    """An API that answers the JetStream requests of a plan from files.

    It has only plain values, so it can be pickled.
    """

    def __init__(self, place: StoreDirectory) -> None:
        self._place = place

    def api(self, name: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Answer one request.

        Raises:
            ApiError: the stream or the message does not exist.
            BadStore: the store is damaged, or cannot be read by this version.
            StoreKeyNeeded: the store is encrypted with another key.
        """
        verb, _, stream = name.rpartition(".")
        if name == "STREAM.NAMES":
            names = [each.name for each in directory.streams(self._place)]
            return {"streams": names[(body or {}).get("offset", 0) :], "total": len(names)}
        if verb == "STREAM.INFO":
            return info_of(self._snapshot(stream))
        assert verb == "STREAM.MSG.GET"
        assert body is not None
        return {"message": {"seq": self._seq_at(stream, parse_rfc3339(body["start_time"]))}}

    def _snapshot(self, name: str) -> Snapshot:
        found = snapshot_of(self._place, name)
        if found is None:
            raise ApiError(404, STREAM_NOT_FOUND, f"{self._place.path} has no stream {name}")
        return found

    def _seq_at(self, name: str, at_ns: int) -> int:
        """Return the sequence of the first message stored at `at_ns` (ns since 1970) or later.

        Raises:
            ApiError: there is no such message.
        """
        for _ in range(snapshot.TRIES):
            try:
                return first_since(self._snapshot(name), at_ns)
            # a file changed after it was listed; a snapshot refuses damage
            except (FileNotFoundError, Unusable):
                continue
        return first_since(self._snapshot(name), at_ns)


def first_since(found: Snapshot, at_ns: int) -> int:
    """Return the sequence of the first message stored at `at_ns` (ns since 1970) or later.

    Raises:
        ApiError: there is no such message.
        FileNotFoundError: a segment was removed meanwhile.
    """
    for segment in found.segments:
        if segment.messages and segment.last_ts >= at_ns:
            rows = found.live(snapshot.load(found.stream, segment.number).entries)
            late = np.flatnonzero(rows["ts"] >= at_ns)
            if len(late):
                return int(rows["seq"][late[0]])
    raise ApiError(404, NO_MESSAGE, "no message found")


def snapshot_of(place: StoreDirectory, name: str) -> Snapshot | None:
    """Return the contents of a stream of a store, or None if the stream does not exist.

    Raises:
        BadStore: the stream is damaged, or cannot be read by this version.
        StoreKeyNeeded: the stream is encrypted with another key.
    """
    found = directory.stream(place, name)
    if found is None:
        return None
    try:
        return snapshot.take(found)
    except FileNotFoundError:
        if os.path.isdir(found.messages):
            raise
    if directory.stream(place, name) is None:  # the stream was deleted during the read
        return None
    raise BadStore(
        f"{found.messages}: the directory of the stream's segments is missing; restore it from a backup"
    )


def info_of(found: Snapshot) -> dict[str, Any]:
    """Return the part of STREAM.INFO that a plan needs."""
    metadata = found.stream.metadata
    state = {
        "first_seq": found.first_seq,
        "last_seq": found.last_seq,
        "messages": found.messages,
        "bytes": found.size,
    }
    config = {"retention": "limits", **metadata.config, "name": found.stream.name}
    return {"config": config, "created": created_text(metadata.created_ns), "state": state}


def created_text(at_ns: int) -> str:
    """Return a time (ns since 1970) as the server writes it, without trailing zeros of the fraction."""
    whole, _, fraction = format_rfc3339(at_ns).removesuffix("Z").partition(".")
    fraction = fraction.rstrip("0")
    return f"{whole}.{fraction}Z" if fraction else f"{whole}Z"
