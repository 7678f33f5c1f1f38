"""The write of one partition: rows become messages, each stored exactly once, or at least once.

"Exactly once" has two parts. Each message has an id computed from its row alone, so the server drops
repetitions within its duplicate window. Each partition has a marker (marker.py): a finished batch is never
sent again, and of an unfinished batch only messages that the stream lacks are sent (recovery.py).

This module does not use Spark: its input is Arrow batches, and its result is the number of written messages.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import pyarrow as pa

from pyjs_spark import fast
from pyjs_spark.decode.frames import DIGITS_MAX, HEAD, ID, PLACE, Cells, Columns, Frames, Framing
from pyjs_spark.errors import OptionError, ReplayDiffers
from pyjs_spark.nats.client import Client
from pyjs_spark.options.writing import EXACTLY_ONCE, SinkOptions
from pyjs_spark.read import lookup
from pyjs_spark.subjects import filters_of, is_any
from pyjs_spark.times import NS_PER_S, parse_rfc3339
from pyjs_spark.write.columns import RowPlan
from pyjs_spark.write.marker import BEGUN, DONE, BatchMark, Marker, Progress, new_attempt
from pyjs_spark.write.publish import Publisher
from pyjs_spark.write.recovery import ADVICE, Found, Recovery, ReplayCheck
from pyjs_spark.write.rows import MADE, RowReader, size_max

if fast.IS_THERE:
    from pyjs_spark_fast.frames import frame_rows
else:
    from pyjs_spark.decode.frames import frame_rows

PIECE_SIZE = 1 << 20  # bytes that are sent at once
PIECES_IN_WINDOW = 4
WINDOW_MARGIN_NS = 10 * NS_PER_S
# used as the clock of a server that sends no time: then every message is older than any window
LONG_AGO_NS = 2**62


@dataclass(frozen=True, slots=True)
class SinkPart:
    """The identity of the rows that one task writes."""

    sink_id: str
    batch: int
    part: int
    run: str  # a name, the same for all tasks with which Spark writes the batch once


@dataclass(frozen=True, slots=True)
class Delivered:
    """The result of writing one partition."""

    part: int
    rows: int
    sent: int  # number of messages sent in this attempt
    duplicates: int  # number of these messages that the stream already had


@dataclass(frozen=True, slots=True)
class Target:
    """The properties of the target stream of a write."""

    name: str
    created: str
    last_seq: int
    subjects: tuple[str, ...]
    replicas: int
    window_ns: int  # the duplicate window, in ns
    now_ns: int  # the server's clock, in ns since 1970
    seen_at_s: float  # this machine's monotonic clock at that time
    keeps_subjects: bool  # whether the stream stores messages under the subjects to which they were published

    def age_ns(self, ts_ns: int) -> int:
        """Return the time from `ts_ns` to now in ns, by the server's clock."""
        return self.now_ns - ts_ns + int((time.monotonic() - self.seen_at_s) * NS_PER_S)


def look_at_target(client: Client, options: SinkOptions) -> Target:
    """Return the properties of the target stream that a write needs.

    Raises:
        StreamMissing, OptionError: a write with these options is impossible.
    """
    info = lookup.stream_info(client, options.stream)
    if info is None:
        raise lookup.missing(client, options.stream)
    config: dict[str, Any] = info["config"]
    subjects = tuple(config.get("subjects") or ())
    where = f"option stream={options.stream}:"
    if config.get("mirror") or not subjects:
        raise OptionError(f"{where} the stream takes no messages itself; name the one that it copies")
    if config.get("no_ack"):
        raise OptionError(f"{where} the stream acknowledges nothing (no_ack), so nobody knows what it stored")
    if config.get("sealed"):
        raise OptionError(f"{where} the stream is sealed; it takes no messages any more")
    if options.subject and not is_any(options.subject.encode(), filters_of(subjects)):
        raise OptionError(
            f"option subject={options.subject}: the stream {options.stream} takes {', '.join(subjects)}; "
            "name one of these, or another stream"
        )
    now = info.get("ts")
    return Target(
        name=options.stream,
        created=info["created"],
        last_seq=int(info["state"]["last_seq"]),
        subjects=subjects,
        replicas=int(config.get("num_replicas") or 1),
        window_ns=int(config.get("duplicate_window") or 0),
        now_ns=parse_rfc3339(now) if now else LONG_AGO_NS,
        seen_at_s=time.monotonic(),
        keeps_subjects=not config.get("subject_transform"),
    )


class Digest:
    """A checksum of the rows of a partition, to check that a repeated attempt has the same rows.

    If rows have no ids, their position identifies them, so their order matters; otherwise the order does
    not matter.
    """

    def __init__(self) -> None:
        self._data = 1
        self._subjects = 1
        self._ids = 0

    @property
    def text(self) -> str:
        """The checksum of all rows so far, as text."""
        if self._ids:
            return f"ids-{self._ids:x}"
        return f"{self._subjects:08x}{self._data:08x}"

    def add(self, columns: Columns) -> None:
        """Add rows; how they are divided into batches does not affect the result."""
        if columns.ids is not None:
            offsets, values = columns.ids
            text = bytes(values)
            self._ids += sum(zlib.crc32(text[low:high]) for low, high in pairwise(offsets.tolist()))
            return
        self._data = _checksum(columns.data, self._data)
        if columns.subject is not None:
            self._subjects = _checksum(columns.subject, self._subjects)


def _checksum(cells: Cells, before: int) -> int:
    offsets, values = cells
    return zlib.adler32(values[offsets[0] : offsets[-1]], before)


def framing_of(options: SinkOptions, place: SinkPart, inbox: bytes) -> Framing:
    """Return the part that all frames of a partition share; acknowledgements arrive at `inbox`."""
    mark = f"{MADE}{place.sink_id}:{place.batch}:{place.part}:" if options.delivery == EXACTLY_ONCE else ""
    fixed = f"Nats-Expected-Stream: {options.stream}\r\n" if options.expected_stream else ""
    return Framing(inbox, options.subject.encode(), mark.encode(), fixed.encode())


def own_size(framing: Framing, plan: RowPlan) -> int:
    """Return the maximum number of header bytes that the sink adds to those of a row."""
    lines = len(framing.fixed)
    if framing.mark:
        lines += len(PLACE) + len(framing.mark) + DIGITS_MAX + 2
    if framing.mark or plan.msg_id >= 0:
        lines += len(ID) + 2
    return lines + len(HEAD) + 2 if lines or plan.headers >= 0 else 0


class Delivery:
    """One attempt to write one partition."""

    def __init__(self, client: Client, options: SinkOptions, plan: RowPlan, place: SinkPart) -> None:
        self._client = client
        self._options = options
        self._place = place
        self._target = look_at_target(client, options)
        self._publisher = Publisher(client, options)
        self._what = f"sink {place.sink_id}, batch {place.batch}, partition {place.part}"
        self._is_exact = options.delivery == EXACTLY_ONCE
        self._framing = framing_of(options, place, self._publisher.inbox)
        self._reader = RowReader(
            plan,
            options,
            part=place.part,
            stream_subjects=self._target.subjects,
            size_max=size_max(client.info),
            own_size=own_size(self._framing, plan),
        )
        self._rows = 0
        self._digest = Digest()
        self._sent = 0
        self._sent_at_s = 0.0  # time at which the last piece was sent
        self._missing = 0  # messages that were removed from the stream since an earlier attempt began
        self._begun_ns = 0  # time at which that attempt began, in ns since 1970
        self._subject = ""  # subject of the first row, which the stream accepts
        self._progress = Progress(client, options, place.sink_id)
        self._mine, self._newest = self._progress.read_own(place.part) if self._is_exact else (None, None)

    def write(self, batches: Iterator[pa.RecordBatch]) -> Delivered:
        """Write all rows, wait until the stream has them, and return the counts.

        Raises:
            RowRefused: a row cannot be a message.
            PublishFailed: a message was not stored.
            ReplayDiffers: a repeated batch differs from its first attempt, or cannot be compared with it.
            WriterReplaced: another attempt writes the same rows.
            SparkError: another error of the client.
        """
        if self._is_exact:
            self._write_exactly_once(self._columns(batches))
        else:
            for columns, first in self._columns(batches):
                self._send(columns, first, None)
            self._publisher.flush()
        return Delivered(self._place.part, self._rows, self._sent, self._publisher.duplicates)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _columns(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Columns, int]]:
        """Yield checked columns, each with the number of its first row."""
        for batch in batches:
            if not batch.num_rows:
                continue
            columns, first = self._reader.columns(batch, self._rows), self._rows
            self._rows += batch.num_rows
            if self._is_exact:
                self._digest.add(columns)
            yield columns, first

    def _write_exactly_once(self, batches: Iterator[tuple[Columns, int]]) -> None:
        place, progress, mine = self._place, self._progress, self._mine
        self._check()
        if mine is not None and mine.batch == place.batch and mine.state == DONE:
            self._skip(batches, mine)
            return
        head = next(batches, None)
        if head is None:
            if mine is not None and mine.batch == place.batch:
                raise ReplayDiffers(f"{self._what}: it was begun, and now has no rows. {ADVICE}")
            return
        frame = frame_rows(head[0], 0, 1, self._framing, head[1])
        self._subject = bytes(frame.data).split(b" ", 2)[1].decode()
        if mine is None and self._newest is None:
            progress.keys.make_bucket(self._target.replicas)
        before = self._before()
        marker = progress.write(place.part, self._begun())
        replay = self._replay(marker, before, mine)
        self._publisher.stored = partial(self._stored_of_mine, marker.after)
        self._send(*head, replay)
        for columns, first in batches:
            self._send(columns, first, replay)
        self._publisher.flush()
        done = replace(marker, state=DONE, rows=self._rows, digest=self._digest.text)
        progress.write(place.part, replace(done, duplicates=self._publisher.duplicates))

    def _before(self) -> list[Marker]:
        """Begin the batch if necessary; return the markers of earlier attempts that the check needs.

        If this run began the batch, only the marker of this partition is needed. If another run began the batch, the
        partitions of that run may have been different, so all markers are needed.
        """
        place, newest = self._place, self._newest
        if newest is None or newest.batch < place.batch:
            mark = BatchMark(place.batch, place.run, self._target.name, newest.revision if newest else 0)
            newest = self._progress.begin(mark)
        is_own_run = newest.batch == place.batch and newest.run == place.run
        found = [self._mine] if is_own_run else self._progress.read().values()
        return [each for each in found if each is not None and each.batch == place.batch]

    def _check(self) -> None:
        """Raise ReplayDiffers if the stored markers belong to another stream or a later batch."""
        place = self._place
        known = [each for each in (self._mine, self._newest) if each is not None and each.batch >= 0]
        for marker in known:
            if marker.stream != self._target.name:
                raise ReplayDiffers(
                    f"sinkId {place.sink_id} belongs to a sink of stream {marker.stream}, not of "
                    f"{self._target.name}; use another sinkId, or another checkpoint"
                )
        newest = max((marker.batch for marker in known), default=0)
        if newest > place.batch:
            raise ReplayDiffers(
                f"{self._what}: batch {newest} of this sink was written already, so the checkpoint was set back "
                "or is new. Use another sinkId (or a new checkpoint) to write everything again, or forget the "
                f"progress of the sink: nats kv del {self._options.progress_bucket} {place.sink_id}.<partition>, "
                "for each partition and for batch, and wait for the duplicate window of the stream"
            )

    def _skip(self, batches: Iterator[tuple[Columns, int]], done: Marker) -> None:
        """Compare the rows of a finished batch with its marker, and send nothing.

        Raises:
            ReplayDiffers: the rows differ from those that were written.
        """
        for _ in batches:
            pass
        if self._rows != done.rows or self._digest.text != done.digest:
            now = f"{self._rows} rows" if self._rows != done.rows else "others"
            raise ReplayDiffers(
                f"{self._what}: {done.rows} rows were written, and now it has {now}. {ADVICE}. If these are other "
                "data: use another sinkId"
            )

    def _begun(self) -> Marker:
        """Return the marker of this attempt, which replaces the marker of an earlier attempt."""
        place, target, mine = self._place, self._target, self._mine
        is_same = mine is not None and mine.batch == place.batch
        if mine is not None and is_same:
            return replace(mine, attempt=new_attempt())
        return Marker(
            batch=place.batch,
            state=BEGUN,
            stream=target.name,
            created=target.created,
            after=target.last_seq,
            first_run=place.run,
            attempt=new_attempt(),
            revision=mine.revision if mine is not None else 0,
        )

    def _replay(self, marker: Marker, before: list[Marker], mine: Marker | None) -> ReplayCheck | None:
        """Return the check of rows against messages of earlier attempts at the batch, or None if none is needed.

        Raises:
            ReplayDiffers: an earlier attempt was for another stream, or its messages are unknown.
        """
        is_mine = mine is not None and mine.batch == self._place.batch
        earlier = [each for each in before if each.first_run != self._place.run]
        if not is_mine and not earlier:
            return None
        for each in before:
            if each.created != self._target.created:
                raise ReplayDiffers(
                    f"{self._what}: it was begun for the stream {each.stream} made at {each.created}; the one of "
                    f"now was made at {self._target.created}. Start over with another sinkId or checkpoint"
                )
        after = min(each.after for each in (*before, marker))
        found = self._recovery().find(after)
        self._missing, self._begun_ns = found.missing, min(each.ts_ns for each in before)
        self._check_evidence()
        return ReplayCheck(found, self._what, keeps_subjects=self._target.keeps_subjects)

    def _check_evidence(self) -> None:
        """Raise ReplayDiffers if messages were removed, and the server may no longer remember their ids."""
        if self._missing and not self._is_in_window(self._target.age_ns(self._begun_ns)):
            raise ReplayDiffers(
                f"{self._what}: an earlier attempt wrote some of it, and {self._missing} messages left the "
                "stream since (limits, consumers, deletes), so nobody knows which. Write this batch once with "
                "delivery=atLeastOnce, or make the stream keep its messages"
            )

    def _recovery(self) -> Recovery:
        return Recovery(
            self._client,
            self._target.name,
            self._target.created,
            subject=self._subject,
            batch_mark=f"{MADE}{self._place.sink_id}:{self._place.batch}:".encode(),
            part=self._place.part,
            retries=self._options.retries,
            keeps_subjects=self._target.keeps_subjects,
        )

    def _stored_of_mine(self, after: int, under_way: Iterable[Frames]) -> list[int]:
        """Return the rows of `under_way` that the stream already has; called after a lost connection.

        Raises:
            ReplayDiffers: messages were removed, so it is unknown which rows were stored.
        """
        found: Found = self._recovery().find(max(after, self._publisher.last_seq))
        away_ns = int((time.monotonic() - self._sent_at_s) * NS_PER_S)
        if found.missing and not self._is_in_window(away_ns):
            raise ReplayDiffers(
                f"{self._what}: the connection was lost, and {found.missing} messages left the stream since, so "
                "nobody knows what is stored; make the stream keep its messages, or its duplicate window longer"
            )
        return [row for frames in under_way for row in found.rows_of(frames)]

    def _is_in_window(self, age_ns: int) -> bool:
        """Return whether the server still remembers the ids of messages of this age."""
        return age_ns < self._target.window_ns - WINDOW_MARGIN_NS

    def _send(self, columns: Columns, first: int, replay: ReplayCheck | None) -> None:
        """Publish the rows of one batch that are not in the stream."""
        skip = b""
        if replay is not None:
            stored = replay.stored(frame_rows(columns, 0, columns.rows, self._framing, first))
            skip = bytes(first + at in stored for at in range(columns.rows))
        for low, high in self._pieces(columns):
            self._check_evidence()
            frames: Frames = frame_rows(columns, low, high, self._framing, first, skip)
            self._publisher.publish(frames)
            self._sent += len(frames.numbers)
            self._sent_at_s = time.monotonic()

    def _pieces(self, columns: Columns) -> Iterator[tuple[int, int]]:
        """Yield ranges of rows that are sent at once, each with limited numbers of rows and bytes."""
        most = max(1, self._options.max_in_flight // PIECES_IN_WINDOW)
        offsets, low = columns.data[0], 0
        while low < columns.rows:
            high = min(low + most, columns.rows)
            while high - low > 1 and offsets[high] - offsets[low] > PIECE_SIZE:
                high = low + (high - low) // 2
            yield low, high
            low = high


def begin(options: SinkOptions, plan: RowPlan, place: SinkPart) -> Delivery:
    """Connect, read the state of the stream and of the sink, and return the delivery.

    Nothing is written yet.
    """
    client = Client(options.connect)
    try:
        return Delivery(client, options, plan, place)
    except BaseException:
        client.close()
        raise
