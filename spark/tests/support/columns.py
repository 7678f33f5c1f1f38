"""Batches of a decoder as plain values, and a simple parser of headers for comparisons."""

from __future__ import annotations

import itertools
import struct
from typing import Protocol

from pyjs_spark.decode.wire import Taken


class Taking(Protocol):
    """The interface of any decoder."""

    def take(self) -> Taken:
        """Return the batch."""


def rows_of(decoder: Taking) -> dict[str, list[object]]:
    """Take the batch; return its columns as plain values."""
    rows, headerless, columns = decoder.take()
    found: dict[str, list[object]] = {}
    for name, buffers in columns.items():
        if name in ("seq", "ts_ns"):
            found[name] = list(unpacked("q", buffers[0]))
        elif name == "size":
            found[name] = list(unpacked("i", buffers[0]))
        elif name in ("subject", "data"):
            found[name] = list(values(*buffers))
        elif len(buffers) == 3:
            found[name] = masked(buffers[0], values(*buffers[1:]))
        else:
            found[name] = masked(buffers[0], maps(*buffers[1:]))
    if "headers" in found:
        assert found["headers"].count(None) == headerless
    assert {len(column) for column in found.values()} <= {rows}
    return found


def unpacked(kind: str, buffer: object) -> list[int]:
    raw = bytes(memoryview(buffer))  # type: ignore[arg-type]
    return [number for (number,) in struct.iter_unpack(f"={kind}", raw)]


def values(offsets: object, data: object) -> list[bytes]:
    at = unpacked("i", offsets)
    raw = bytes(memoryview(data))  # type: ignore[arg-type]
    assert at[-1] == len(raw)
    return [raw[start:end] for start, end in itertools.pairwise(at)]


def masked(bits: object, column: list[object]) -> list[object]:
    raw = bytes(memoryview(bits))  # type: ignore[arg-type]
    assert len(raw) == (len(column) + 7) // 8
    return [value if raw[row // 8] >> row % 8 & 1 else None for row, value in enumerate(column)]


def maps(entries: object, *buffers: object) -> list[object]:
    name_at, names, list_at, value_at, all_values = buffers
    flat = values(value_at, all_values)
    lists = unpacked("i", list_at)
    grouped = [flat[start:end] for start, end in itertools.pairwise(lists)]
    pairs = list(zip(values(name_at, names), grouped, strict=True))
    at = unpacked("i", entries)
    assert at[-1] == len(pairs)
    return [dict(pairs[start:end]) for start, end in itertools.pairwise(at)]


def readable(text: bytes) -> bytes:
    return text.decode("utf-8", "replace").encode()


def slow_map(block: bytes) -> dict[bytes, list[bytes]] | None:
    """Parse headers slowly, in the simplest possible way."""
    if not block:
        return None
    found: dict[bytes, list[bytes]] = {}
    for line in block.split(b"\r\n")[1:]:
        at = line.find(b":")
        if at > 0:
            found[line[:at]] = [*found.get(line[:at], []), line[at + 1 :].lstrip(b" \t")]
    return {readable(name): [readable(value) for value in some] for name, some in found.items()}
