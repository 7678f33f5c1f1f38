"""Checks of a stream's messages: each takes Arrow batches in the order of their sequences and reports its findings.

Memory is bounded, except for the check for duplicates: 16 bytes for each message with an id. Knows no server. A
report is plain values, for JSON; `trouble` is one sentence if something is wrong, else "".

Lateness is the time from an event (taken from its message) to its storing. A message is late if that is more than a
limit, and out of order if an event that came before it in the stream is younger.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from pyjs_spark import strict_json
from pyjs_spark.errors import OptionError, SparkMissing
from pyjs_spark.kv.entries import header
from pyjs_spark.times import parse_rfc3339

if TYPE_CHECKING:
    import pyarrow as pa

SHOWN = 100  # ranges in a report
SAMPLES = 10
NS = 1_000_000_000
# A number as a time: from which size on it is ms, us and ns since 1970 (s before).
UNITS = ((1e17, 1), (1e14, 1_000), (1e11, 1_000_000), (0, NS))


class Check(Protocol):
    """The interface of a check."""

    name: str
    columns: tuple[str, ...]  # of messages

    @property
    def trouble(self) -> str:
        """A sentence about the fault; "" if there is none."""

    def look(self, batch: pa.RecordBatch) -> None:
        """Take in a batch."""

    def said(self) -> dict[str, Any]:
        """Return the findings."""


class Gaps:
    """Sequences without a message: deleted one by one, or replaced by the limit of messages per subject."""

    name = "gaps"
    columns: tuple[str, ...] = ("seq",)

    def __init__(self, low: int, high: int, *, is_trouble: bool) -> None:
        """Look at the sequences [low, high)."""
        self._next_seq = low
        self._high = high
        self._is_trouble = is_trouble
        self._ranges: list[tuple[int, int]] = []  # the first of them
        self._count = 0
        self._messages = 0

    def look(self, batch: pa.RecordBatch) -> None:
        """Take in a batch."""
        import numpy as np

        seqs = batch.column("seq").to_numpy()
        before = np.concatenate(([self._next_seq - 1], seqs[:-1]))
        for index in np.flatnonzero(seqs - before > 1).tolist():
            self._gap(int(before[index]) + 1, int(seqs[index]))
        self._next_seq = int(seqs[-1]) + 1

    def said(self) -> dict[str, Any]:
        """Return the number of sequences without a message, and the first ranges of them, [low, high)."""
        if self._next_seq < self._high:
            self._gap(self._next_seq, self._high)
            self._next_seq = self._high
        return {"messages": self._messages, "ranges": self._ranges, "count": self._count}

    @property
    def trouble(self) -> str:
        """Return the sentence about missing messages, if there should be none."""
        return f"{self._messages} sequences have no message" if self._messages and self._is_trouble else ""

    def _gap(self, low: int, high: int) -> None:
        self._count += 1
        self._messages += high - low
        if len(self._ranges) < SHOWN:
            self._ranges.append((low, high))


class Duplicates:
    """Message ids (Nats-Msg-Id) that stand in more than one message."""

    name = "duplicates"
    columns: tuple[str, ...] = ("seq", "headers")

    def __init__(self) -> None:
        self._hashes = array("q")
        self._seqs = array("q")
        self._found: dict[str, Any] | None = None

    def look(self, batch: pa.RecordBatch) -> None:
        """Take in a batch."""
        ids = header(batch.column("headers"), "Nats-Msg-Id")
        if ids.null_count == len(ids):
            return
        for seq, each in zip(batch.column("seq").to_pylist(), ids.to_pylist(), strict=True):
            if each is not None:
                self._hashes.append(hash(each))
                self._seqs.append(seq)

    def said(self) -> dict[str, Any]:
        """Return the number of messages that repeat an id, and the sequences of some of them."""
        if self._found is None:
            self._found = self._find()
        return self._found

    @property
    def trouble(self) -> str:
        """Return the sentence about duplicates."""
        count = self.said()["messages"]
        return f"{count} messages repeat the id of another" if count else ""

    def _find(self) -> dict[str, Any]:
        import numpy as np

        hashes = np.frombuffer(self._hashes, np.int64)
        seqs = np.frombuffer(self._seqs, np.int64)
        order = np.argsort(hashes, kind="stable")
        is_same = hashes[order][1:] == hashes[order][:-1]
        begins = np.flatnonzero(is_same & ~np.concatenate(([False], is_same[:-1])))
        samples = [self._group(hashes[order], seqs[order], int(begin)) for begin in begins[:SAMPLES]]
        return {"ids": len(hashes), "messages": int(is_same.sum()), "samples": sorted(samples)}

    @staticmethod
    def _group(hashes: Any, seqs: Any, begin: int) -> list[int]:
        end = begin
        while end < len(hashes) and hashes[end] == hashes[begin] and end - begin < SAMPLES:
            end += 1
        return [int(seq) for seq in seqs[begin:end]]


class Times:
    """Times of storing that go back: the server's clock was set back, or messages were copied with their times."""

    name = "times"
    columns: tuple[str, ...] = ("seq", "ts_ns")

    def __init__(self) -> None:
        self._latest_ns = -(2**63)
        self._backwards = 0
        self._largest_ns = 0
        self._samples: list[int] = []

    def look(self, batch: pa.RecordBatch) -> None:
        """Take in a batch."""
        import numpy as np

        times = batch.column("ts_ns").to_numpy()
        latest = np.maximum.accumulate(np.concatenate(([self._latest_ns], times)))
        back = latest[:-1] - times
        wrong = np.flatnonzero(times < latest[:-1])
        if len(wrong):
            self._backwards += len(wrong)
            self._largest_ns = max(self._largest_ns, int(back[wrong].max()))
            room = SAMPLES - len(self._samples)
            self._samples += batch.column("seq").to_numpy()[wrong[:room]].tolist()
        self._latest_ns = int(latest[-1])

    def said(self) -> dict[str, Any]:
        """Return the number of messages older than one before them."""
        return {
            "backwards": self._backwards,
            "largest_s": self._largest_ns / NS,
            "samples": self._samples,
        }

    @property
    def trouble(self) -> str:
        """Return the sentence about times that go back."""
        return (
            f"{self._backwards} messages were stored before the one in front of them"
            if self._backwards
            else ""
        )


class Lateness:
    """Delay between the event of each message and its storing."""

    name = "lateness"
    columns: tuple[str, ...] = ("seq", "ts_ns", "headers", "data")

    def __init__(self, where: str, late_after_s: float | None) -> None:
        """Find the time of the event at `where`: header:NAME or json:FIELD."""
        kind, _, name = where.partition(":")
        self.columns = ("seq", "ts_ns", "headers" if kind == "header" else "data")
        self._times_of = _header_times(name) if kind == "header" else _json_times(name.split("."))
        self._late_after_ns = None if late_after_s is None else int(late_after_s * NS)
        self._spread = Spread()
        self._latest_ns = -math.inf
        self._without = self._late = self._out_of_order = 0
        self._samples: list[int] = []

    def look(self, batch: pa.RecordBatch) -> None:
        """Take in a batch."""
        rows = zip(
            batch.column("seq").to_pylist(),
            batch.column("ts_ns").to_pylist(),
            self._times_of(batch),
            strict=True,
        )
        for seq, stored_ns, event_ns in rows:
            if event_ns is None:
                self._without += 1
                continue
            late_ns = stored_ns - event_ns
            self._spread.add(late_ns / NS)
            if event_ns < self._latest_ns:
                self._out_of_order += 1
            self._latest_ns = max(self._latest_ns, event_ns)
            if self._late_after_ns is not None and late_ns > self._late_after_ns:
                self._late += 1
                if len(self._samples) < SAMPLES:
                    self._samples.append(seq)

    def said(self) -> dict[str, Any]:
        """Return counts, and how lateness is spread."""
        return {
            "messages": self._spread.count,
            "without": self._without,
            "late": self._late,
            "out_of_order": self._out_of_order,
            **self._spread.said(),
            "samples": self._samples,
        }

    @property
    def trouble(self) -> str:
        """Return the sentence about late messages."""
        if self._late and self._late_after_ns is not None:
            limit = timedelta(seconds=self._late_after_ns / NS)
            return f"{self._late} messages were stored more than {limit} after their event"
        return ""


class Spread:
    """Least, greatest, mean and percentiles of numbers of seconds; the percentiles within 2 %, from 1 ms on."""

    LEAST_S = 0.001
    STEP = math.log(1.02)

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0.0
        self._least, self._greatest = math.inf, -math.inf
        self._steps: dict[int, int] = {}

    def add(self, value: float) -> None:
        """Count a number."""
        self.count += 1
        self._sum += value
        self._least, self._greatest = min(self._least, value), max(self._greatest, value)
        step = 0 if value <= self.LEAST_S else 1 + int(math.log(value / self.LEAST_S) / self.STEP)
        self._steps[step] = self._steps.get(step, 0) + 1

    def said(self) -> dict[str, float | None]:
        """Return the figures; None without a number."""
        if not self.count:
            return dict.fromkeys(("least_s", "mean_s", "p50_s", "p95_s", "p99_s", "greatest_s"))
        shares = {f"p{share}_s": self._at(share / 100) for share in (50, 95, 99)}
        return {
            "least_s": self._least,
            "mean_s": self._sum / self.count,
            **shares,
            "greatest_s": self._greatest,
        }

    def _at(self, share: float) -> float:
        wanted, so_far = math.ceil(share * self.count), 0
        for step in sorted(self._steps):
            so_far += self._steps[step]
            if so_far >= wanted:
                edge = self.LEAST_S * math.exp(step * self.STEP)
                return max(self._least, min(self._greatest, edge))
        raise AssertionError("unreachable: the steps hold all numbers")


def time_ns(value: object) -> int | None:
    """Return ns since 1970 of a time in RFC 3339, or of a number in s, ms, us or ns by its size; else None."""
    if isinstance(value, str):
        try:
            return parse_rfc3339(value)
        except ValueError:
            pass
        try:
            value = float(value) if "." in value else int(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 2**63:
        return None
    unit = next(unit for least, unit in UNITS if value >= least)
    whole = int(value)
    return whole * unit + round((value - whole) * unit)


def _header_times(name: str) -> Callable[[Any], list[int | None]]:
    return lambda batch: [time_ns(said) for said in header(batch.column("headers"), name).to_pylist()]


def _json_times(path: Sequence[str]) -> Callable[[Any], list[int | None]]:
    def times(batch: Any) -> list[int | None]:
        return [time_ns(_field(data, path)) for data in batch.column("data").to_pylist()]

    return times


def _field(data: bytes, path: Iterable[str]) -> object:
    try:
        value = strict_json.loads(data)
    except ValueError:
        return None
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


class Payloads:
    """Payloads that are not JSON, or do not match a JSON schema."""

    name = "payloads"
    columns: tuple[str, ...] = ("seq", "data")

    def __init__(self, schema: str | None) -> None:
        """Check against the schema in a file, or only that all is JSON. Raises OptionError, SparkMissing."""
        self._check = _validator(schema) if schema else None
        self._checked = self._invalid = 0
        self._samples: list[dict[str, Any]] = []

    def look(self, batch: pa.RecordBatch) -> None:
        """Take in a batch."""
        for seq, data in zip(batch.column("seq").to_pylist(), batch.column("data").to_pylist(), strict=True):
            self._checked += 1
            if why := self._wrong(data):
                self._invalid += 1
                if len(self._samples) < SAMPLES:
                    self._samples.append({"seq": seq, "why": why})

    def said(self) -> dict[str, Any]:
        """Return the number of wrong payloads, and the reason for some."""
        return {"checked": self._checked, "invalid": self._invalid, "samples": self._samples}

    @property
    def trouble(self) -> str:
        """Return the sentence about wrong payloads."""
        return f"{self._invalid} payloads are not as they should be" if self._invalid else ""

    def _wrong(self, data: bytes) -> str:
        try:
            value = strict_json.loads(data)
        except ValueError as wrong:  # UnicodeDecodeError is one
            return f"no JSON: {wrong}"
        return self._check(value) if self._check else ""


def _validator(path: str) -> Callable[[object], str]:
    """Return a function from a value to its mismatch with the schema in a file, "" if it matches."""
    try:
        from jsonschema import validators
        from jsonschema.exceptions import SchemaError
    except ImportError:
        raise SparkMissing("--schema needs the package jsonschema; pip install jsonschema") from None
    try:
        with open(path, "rb") as file:
            schema = json.load(file)
        kind = validators.validator_for(schema)
        kind.check_schema(schema)
    except OSError as error:
        raise OptionError(f"--schema={path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise OptionError(f"--schema={path}: this is no JSON: {error}") from None
    except SchemaError as error:
        raise OptionError(f"--schema={path}: this is no JSON schema: {error.message}") from None
    found = kind(schema)

    def why(value: object) -> str:
        wrong = next(iter(found.iter_errors(value)), None)
        return "" if wrong is None else f"{wrong.json_path}: {wrong.message}"

    return why
