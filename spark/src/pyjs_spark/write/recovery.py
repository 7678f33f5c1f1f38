"""Finds messages of an earlier attempt at a batch in the stream, by the header that the sink adds to every message.

This is needed only after a crash or a lost connection. The stream is read from the place where the batch began.
Before each read, a message is published that the stream must refuse; the refusal proves that all earlier messages
were handled. Bytes from the connection of a dead process may still arrive at the server, so the end of the stream is
read again until no new messages arrive.

A repeated batch must be equal to its first attempt. If a stored row has other content, or another place, then the
query returned other rows or partitions than before, and the write fails.
"""

from __future__ import annotations

import re
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from pyjs_spark.decode.frames import HEAD, Frames
from pyjs_spark.errors import PublishFailed, ReplayDiffers
from pyjs_spark.nats.client import Client
from pyjs_spark.read import pull
from pyjs_spark.read.ranges import ReadRange, Report
from pyjs_spark.write.publish import WRONG_LAST_SEQ, publish_one

NEVER_LAST = 2**62  # sequence that no stream can have as its last one
QUIET_S = 0.2
# seconds to wait for other partitions; later rows of them come from new attempts, which may take hours
OTHERS_WAIT_S = 5.0
# maximum number of other partitions' rows whose content is compared: enough to notice changes
OTHERS_MAX = 200_000
LAST_SEQ = re.compile(r"wrong last sequence: (\d+)")
OWN_LINE = re.compile(rb"(?i)(?:nats-msg-id: pyjs:|pyjs-sink:|nats-expected-stream:)[^\r\n]*\r\n")
ID_LINE = re.compile(rb"(?i)\r\nnats-msg-id: ([^\r\n]*)")


@dataclass
class Found:
    """The rows of one batch that a partition has found in the stream."""

    mine: dict[int, int] = field(default_factory=dict)  # row of this partition -> hash of its content
    ids: set[bytes] = field(default_factory=set)  # users' ids of rows, in all partitions
    # Hashes of the content of rows in other partitions, up to OTHERS_MAX.
    others: Counter[int] = field(default_factory=Counter)
    missing: int = 0  # number of sequences in the range without a message

    def rows_of(self, frames: Frames) -> list[int]:
        """Return the rows of these publishes that were found in the stream, by id or by place."""
        return [row for row, own, _ in sent(frames) if (own in self.ids if own else row in self.mine)]


def content(subject: bytes, headers: bytes, data: bytes) -> int:
    """Return a hash of the content of a message.

    A stored and a new message with equal content have equal hashes.
    """
    lines = OWN_LINE.sub(b"", headers.removeprefix(HEAD))
    return zlib.crc32(data, zlib.crc32(lines, zlib.crc32(subject)))


@dataclass(frozen=True, slots=True)
class Recovery:
    """A search for the rows of one batch in the target stream."""

    client: Client
    stream: str
    created: str
    subject: str  # a subject that the stream accepts
    batch_mark: bytes  # the mark of the framing, without the partition
    part: int
    retries: int
    keeps_subjects: bool  # whether the stream stores messages under the subjects to which they were published

    def find(self, after: int) -> Found:
        """Return the rows that were stored after sequence `after`.

        The call returns only when no more rows of this partition arrive.
        """
        found, low, looks = Found(), after + 1, 0
        patient_until_s = time.monotonic() + OTHERS_WAIT_S
        while True:
            high, mine = self._last_seq() + 1, len(found.mine)
            came = self._scan(low, high, found)
            low, looks = max(low, high), looks + 1
            waits_for_others = came and time.monotonic() < patient_until_s
            if looks > 1 and len(found.mine) == mine and not waits_for_others:
                return found
            time.sleep(QUIET_S)

    def _last_seq(self) -> int:
        """Return a sequence at least as high as that of any message stored before this call.

        Raises:
            PublishFailed: the server does not report the last sequence.
        """
        headers = b"%bNats-Expected-Last-Sequence: %d\r\n\r\n" % (HEAD, NEVER_LAST)
        said = publish_one(self.client, self.subject, b"", headers, self.retries)
        last = LAST_SEQ.search(said.text)
        if said.err_code != WRONG_LAST_SEQ or last is None:
            raise PublishFailed(f"stream {self.stream}: the end of the stream cannot be told: {said}")
        return int(last[1])

    def _scan(self, low: int, high: int, found: Found) -> bool:
        """Add to `found` the rows of the batch that are stored in [low, high); return whether there are any."""
        if low >= high:
            return False
        what = ReadRange(
            self.stream,
            low,
            high,
            created=self.created,
            columns=("subject", "headers", "data"),
            headers="raw",
            fail_on_data_loss=False,
        )
        report, count = Report(), 0
        for batch in pull.read_range(self.client, what, report):
            count += self._take(batch, found)
        found.missing += high - low - report.rows
        return count > 0

    def _take(self, batch: pa.RecordBatch, found: Found) -> int:
        """Add to `found` those of the read messages that are rows of this batch of the sink; return their number."""
        mark = re.escape(self.batch_mark)
        of_row = re.compile(rb"(?i)\r\n(nats-msg-id|pyjs-sink): %b(\d+):(\d+)\r\n" % mark)
        headers = batch.column(1)
        ours = pc.fill_null(pc.match_substring(headers.cast(pa.binary()), self.batch_mark.decode()), False)
        rows = batch.filter(ours)
        subjects, blocks, payloads = (column.to_pylist() for column in rows.columns)
        for subject, block, data in zip(subjects, blocks, payloads, strict=True):
            place = of_row.search(block)
            if place is None:
                continue
            if place[1].lower() == b"pyjs-sink":
                found.ids.add(_own_id(block))
            what = content(subject.encode() if self.keeps_subjects else b"", block, data)
            if int(place[2]) == self.part:
                found.mine[int(place[3])] = what
            elif len(found.others) < OTHERS_MAX:
                found.others[what] += 1
        return int(rows.num_rows)


def _own_id(block: bytes) -> bytes:
    match = ID_LINE.search(block)
    return match[1] if match else b""


def sent(frames: Frames, *, with_subjects: bool = True) -> Iterator[tuple[int, bytes, int]]:
    """Yield the row number, the user's message id (b"" for none) and the content hash of each publish."""
    start, view = 0, memoryview(frames.data)
    for number, end in zip(frames.numbers, frames.ends, strict=True):
        frame = bytes(view[start:end])
        start = end
        line, _, body = frame.partition(b"\r\n")
        words = line.split(b" ")
        size = int(words[3]) if words[0] == b"HPUB" else 0
        block = body[:size]
        own = b"" if b"\r\nNats-Msg-Id: pyjs:" in block else _own_id(block)
        yield number, own, content(words[1] if with_subjects else b"", block, body[size:-2])


@dataclass(frozen=True, slots=True)
class ReplayCheck:
    """A comparison of the rows of a repeated batch with the messages found in the stream."""

    found: Found
    what: str  # describes the batch in errors
    keeps_subjects: bool  # as in Recovery

    def stored(self, frames: Frames) -> set[int]:
        """Return the rows that the stream already has.

        Raises:
            ReplayDiffers: the rows differ from those of the earlier attempt.
        """
        found, there, strays, fresh = self.found, set(), 0, 0
        for row, own, what in sent(frames, with_subjects=self.keeps_subjects):
            if own:
                if own in found.ids:
                    there.add(row)
                continue
            before = found.mine.get(row)
            if before is not None and before != what:
                raise ReplayDiffers(f"{self.what}: row {row} was stored with other content. {ADVICE}")
            if before is not None:
                there.add(row)
                continue
            fresh += 1
            strays += found.others[what] == 1
        if strays > fresh / 2:
            raise ReplayDiffers(
                f"{self.what}: {strays} of {fresh} rows were stored by other partitions. {ADVICE}"
            )
        return there


ADVICE = (
    "An earlier attempt at this batch wrote some of it, and now its rows come in another order or in other "
    "partitions. Start the query as it was then (the same plan, and the settings of its shuffles), or with "
    "delivery=atLeastOnce for one run; a column msg_id with ids of your own makes the order free"
)
