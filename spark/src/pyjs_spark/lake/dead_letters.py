"""Dead letters: messages that consumers gave up, joined from their advisories and the streams that hold them.

A server publishes an advisory when a message reaches its consumer's max_deliver, and when a client ends it (+TERM).
Advisories are ordinary messages: a stream with these subjects keeps them, and this module reads that stream.

    $JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.<stream>.<consumer>
    $JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.<stream>.<consumer>

Each names a message by its stream and sequence. The messages are fetched by sequence, many requests at once, by
direct get where the stream allows it. One that is newer than its advisory belongs to a stream that was re-created,
and counts as gone.

Source: nats-server's advisories io.nats.jetstream.advisory.v1.max_deliver and .terminated; ADR-31 (direct get).
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

from pyjs_spark import strict_json
from pyjs_spark.decode.wire import header_pairs
from pyjs_spark.errors import ApiError, OptionError, ProtocolError, SparkError
from pyjs_spark.lake.files import file_system
from pyjs_spark.lake.jobs import STREAM, Job, JobKind, Key, Outcome
from pyjs_spark.lake.quality import read, spans_of
from pyjs_spark.nats.client import Client, Reply
from pyjs_spark.nats.stored import Stored, stored
from pyjs_spark.options import uses
from pyjs_spark.options import values as option_values
from pyjs_spark.read.ranges import Patience, Report, stream_info
from pyjs_spark.times import format_rfc3339, parse_rfc3339

if TYPE_CHECKING:
    import pyarrow as pa

KINDS = {"max_deliver": "max_deliveries", "terminated": "terminated"}  # the end of an advisory's type
COLUMNS = ("seq", "ts_ns", "data")  # of advisories
AT_ONCE = 200  # requests on their way
GROUPS_MAX = 10_000
OTHERS = "(others)"  # subject of what is beyond that
SHOWN = 20  # groups for people
PREVIEW = 200  # characters of a payload
NO_MESSAGE = 10037
NOT_FOUND = 404
SUBJECTS = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.> and $JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One advisory, and the message that it is about if that is there."""

    advisory_seq: int
    ts_ns: int
    kind: str  # a value of KINDS
    stream: str
    consumer: str
    stream_seq: int
    deliveries: int
    reason: str
    message: Stored | None = None


def advisory(seq: int, ts_ns: int, data: bytes) -> DeadLetter | None:
    """Return the fields of an advisory; None: it is not about a dead letter."""
    try:
        said = strict_json.loads(data)
        kind = KINDS[said["type"].rpartition(".")[2]]
        return DeadLetter(
            seq,
            ts_ns,
            kind,
            str(said["stream"]),
            str(said["consumer"]),
            int(said["stream_seq"]),
            int(said.get("deliveries") or 0),
            str(said.get("reason") or ""),
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


# -- the messages ---------------------------------------------------------------------------------------------------


class Messages:
    """Gets messages of streams by their sequences."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._patience = Patience(client, Report())
        self._directs: dict[str, bool | None] = {}  # stream -> allow_direct; None: there is no such stream

    def join(self, letters: list[DeadLetter]) -> list[DeadLetter]:
        """Return the letters with their messages, in the same order."""
        found: dict[tuple[str, int], Stored | None] = {}
        wanted = sorted({(letter.stream, letter.stream_seq) for letter in letters})
        for stream, pairs in groupby(wanted, lambda pair: pair[0]):
            seqs = [seq for _, seq in pairs]
            found |= {(stream, seq): got for seq, got in zip(seqs, self._get(stream, seqs), strict=True)}
        return [_joined(letter, found[letter.stream, letter.stream_seq]) for letter in letters]

    def _get(self, stream: str, seqs: list[int]) -> list[Stored | None]:
        got: list[Stored | None] = []
        while len(got) < len(seqs):
            try:
                got += self._some(stream, seqs[len(got) : len(got) + AT_ONCE])
            except SparkError as error:
                self._patience.bear(error)
            else:
                self._patience.progress()
        return got

    def _some(self, stream: str, seqs: list[int]) -> list[Stored | None]:
        if stream not in self._directs:
            info = stream_info(self._client, stream)
            self._directs[stream] = None if info is None else bool(info["config"].get("allow_direct"))
        is_direct = self._directs[stream]
        if is_direct is None:
            return [None] * len(seqs)
        found = dict(zip(seqs, self._ask(stream, seqs, is_direct=True), strict=True)) if is_direct else {}
        # A mirror may answer a direct get, and lag behind: what is not there is asked of the stream itself.
        lacking = [seq for seq in seqs if found.get(seq) is None]
        found |= zip(lacking, self._ask(stream, lacking, is_direct=False), strict=True)
        return [found[seq] for seq in seqs]

    def _ask(self, stream: str, seqs: list[int], *, is_direct: bool) -> list[Stored | None]:
        name = f"DIRECT.GET.{stream}" if is_direct else f"STREAM.MSG.GET.{stream}"
        bodies = [json.dumps({"seq": seq}).encode() for seq in seqs]
        settings = self._client.settings
        answers = self._client.request_each(f"{settings.api_prefix}.{name}", bodies, settings.timeout_s)
        return [(_direct if is_direct else _managed)(name, answer) for answer in answers]


def _joined(letter: DeadLetter, message: Stored | None) -> DeadLetter:
    is_it = message is not None and message.ts_ns <= letter.ts_ns
    return replace(letter, message=message if is_it else None)


def _direct(name: str, answer: Reply) -> Stored | None:
    """Return the message in the answer to a direct get. Raises ApiError."""
    if answer.status == NOT_FOUND:
        return None
    if answer.status:
        raise ApiError(answer.status, 0, f"{name}: {answer.description}")
    return stored(answer)


def _managed(name: str, answer: Reply) -> Stored | None:
    """Return the message in the answer to STREAM.MSG.GET. Raises ApiError."""
    try:
        return _in_json(name, strict_json.an_object(answer.payload or b"{}"))
    except (LookupError, TypeError, AttributeError, ValueError):
        raise ProtocolError(f"{name} was answered with {answer.payload[:60]!r}") from None


def _in_json(name: str, said: dict[str, Any]) -> Stored | None:
    if error := said.get("error"):
        if error.get("err_code") == NO_MESSAGE:
            return None
        text = f"{name}: {error.get('description')}"
        raise ApiError(int(error.get("code", 0)), int(error.get("err_code", 0)), text)
    found = said["message"]
    headers, data = (base64.b64decode(found.get(part) or "") for part in ("hdrs", "data"))
    return Stored(found["seq"], parse_rfc3339(found["time"]), found["subject"].encode(), headers, data)


# -- the report -----------------------------------------------------------------------------------------------------


@dataclass
class LetterGroup:
    """Dead letters of one stream, consumer and subject, for one reason."""

    stream: str
    consumer: str
    subject: str | None  # None: the message is gone
    kind: str
    reason: str
    count: int = 0
    deliveries_max: int = 0
    first: str = ""  # when the first advisory was stored
    last: str = ""
    samples: list[dict[str, Any]] = field(default_factory=list)


class Summary:
    """Counts dead letters by stream, consumer, subject and reason."""

    def __init__(self, samples: int) -> None:
        self.letters = self.gone = self.others = 0  # others: messages that are no such advisories
        self._samples = samples
        self._groups: dict[tuple[str | None, ...], LetterGroup] = {}

    def add(self, letter: DeadLetter) -> None:
        """Count one."""
        self.letters += 1
        self.gone += letter.message is None
        group = self._group(letter)
        group.count += 1
        group.deliveries_max = max(group.deliveries_max, letter.deliveries)
        group.last = format_rfc3339(letter.ts_ns)
        group.first = group.first or group.last
        if len(group.samples) < self._samples:
            group.samples.append(_sample(letter))

    @property
    def groups(self) -> list[LetterGroup]:
        """Return the groups, the largest first."""
        return sorted(self._groups.values(), key=lambda group: -group.count)

    def _group(self, letter: DeadLetter) -> LetterGroup:
        subject = _text(letter.message.subject) if letter.message else None
        key = (letter.stream, letter.consumer, subject, letter.kind, letter.reason)
        if key not in self._groups and len(self._groups) >= GROUPS_MAX:
            key = (letter.stream, letter.consumer, OTHERS, letter.kind, OTHERS)
        if key not in self._groups:
            self._groups[key] = LetterGroup(letter.stream, letter.consumer, key[2], letter.kind, str(key[4]))
        return self._groups[key]


def _sample(letter: DeadLetter) -> dict[str, Any]:
    data = None if letter.message is None else _text(letter.message.payload)[:PREVIEW]
    return {"stream_seq": letter.stream_seq, "deliveries": letter.deliveries, "data": data}


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def dead_letters(job: Job, summary: Summary) -> Iterator[list[DeadLetter]]:
    """Yield the dead letters of a job in portions, joined with their messages; other advisories are counted."""
    spans = spans_of(job)
    client = Client(job.options.connect)  # not the connection that advisories come by
    messages = Messages(client)
    try:
        for batch in (each for span in spans for each in read(span, COLUMNS, job.options)):
            rows = (batch.column(name).to_pylist() for name in COLUMNS)
            found = [advisory(*row) for row in zip(*rows, strict=True)]
            letters = iter([letter for letter in found if letter is not None])
            summary.others += found.count(None)
            while some := list(islice(letters, 5 * AT_ONCE)):
                yield messages.join(some)
    finally:
        client.close()


# -- output ---------------------------------------------------------------------------------------------------------


def _schema() -> pa.Schema:
    import pyarrow as pa

    time = pa.timestamp("us", tz="UTC")
    headers = pa.map_(pa.string(), pa.list_(pa.field("element", pa.string())))
    kinds = {
        "advisory_seq": pa.int64(),
        "ts": time,
        "kind": pa.string(),
        "stream": pa.string(),
        "consumer": pa.string(),
        "stream_seq": pa.int64(),
        "deliveries": pa.int64(),
        "reason": pa.string(),
        "is_there": pa.bool_(),
        "subject": pa.string(),
        "message_ts": time,
        "headers": headers,
        "data": pa.binary(),
    }
    return pa.schema(list(kinds.items()))


def _row(letter: DeadLetter) -> dict[str, Any]:
    row: dict[str, Any] = {
        "advisory_seq": letter.advisory_seq,
        "ts": letter.ts_ns // 1000,
        "kind": letter.kind,
        "stream": letter.stream,
        "consumer": letter.consumer,
        "stream_seq": letter.stream_seq,
        "deliveries": letter.deliveries,
        "reason": letter.reason or None,
        "is_there": letter.message is not None,
    }
    if letter.message is not None:
        pairs = header_pairs(letter.message.headers).items()
        row["subject"] = _text(letter.message.subject)
        row["message_ts"] = letter.message.ts_ns // 1000
        row["headers"] = [(_text(name), [_text(each) for each in some]) for name, some in pairs] or None
        row["data"] = letter.message.payload
    return row


class LetterRows:
    """A Parquet file with a row for each dead letter; it appears when it is complete."""

    def __init__(self, target: str) -> None:
        import pyarrow.parquet as pq

        self._system, self._path = file_system(target)
        self._half = f"{self._path}.{uuid.uuid4().hex}"
        self._system.create_dir(self._path.rpartition("/")[0] or "/", recursive=True)
        self._writer = pq.ParquetWriter(self._half, _schema(), filesystem=self._system, compression="zstd")

    def write(self, letters: Iterable[DeadLetter]) -> None:
        """Append rows."""
        import pyarrow as pa

        self._writer.write_table(pa.Table.from_pylist([_row(letter) for letter in letters], _schema()))

    def close(self, *, is_whole: bool) -> None:
        """Move the file into its place, or remove the incomplete one."""
        self._writer.close()
        if is_whole:
            self._system.move(self._half, self._path)
        else:
            self._system.delete_file(self._half)


def write_json(target: str, said: Mapping[str, Any]) -> None:
    """Write a report; the file appears whole."""
    system, path = file_system(target)
    half = f"{path}.{uuid.uuid4().hex}"
    system.create_dir(path.rpartition("/")[0] or "/", recursive=True)
    with system.open_output_stream(half) as out:
        out.write(json.dumps(said, indent=1).encode())
    system.move(half, path)


# -- the command ----------------------------------------------------------------------------------------------------


def _target(value: str) -> str:
    if not value.strip().endswith((".parquet", ".json")):
        raise ValueError(
            "a path or URI that ends with .parquet (a row for each dead letter) or .json (the report)"
        )
    return value.strip()


def _run(job: Job) -> Outcome:
    summary, target = Summary(job["samples"]), job["target"] or ""
    rows = LetterRows(target) if target.endswith(".parquet") else None
    is_whole = False
    try:
        for letters in dead_letters(job, summary):
            for letter in letters:
                summary.add(letter)
            if rows is not None:
                rows.write(letters)
        _check_some(job, summary)
        is_whole = True
    finally:
        if rows is not None:
            rows.close(is_whole=is_whole)
    said = _said(summary)
    if target.endswith(".json"):
        write_json(target, said)
    return Outcome(_lines(summary, target), said)


def _check_some(job: Job, summary: Summary) -> None:
    if summary.others and not summary.letters:
        raise OptionError(
            f"stream {','.join(job.options.streams)}: none of {summary.others} messages tells of a dead letter; "
            f"name a stream with the subjects {SUBJECTS}"
        )


def _said(summary: Summary) -> dict[str, Any]:
    counts = {"letters": summary.letters, "gone": summary.gone, "others": summary.others}
    return {**counts, "groups": [group.__dict__ for group in summary.groups]}


def _lines(summary: Summary, target: str) -> list[str]:
    groups = summary.groups
    lines = [
        f"{group.count} of {group.stream} by {group.consumer}, {group.subject or 'message gone'}: {group.kind}"
        f"{' (' + group.reason + ')' if group.reason else ''}, up to {group.deliveries_max} deliveries, "
        f"sequences {', '.join(str(sample['stream_seq']) for sample in group.samples) or 'not asked for'}"
        for group in groups[:SHOWN]
    ]
    if len(groups) > SHOWN:
        lines.append(f"... and {len(groups) - SHOWN} more groups; --json has all")
    lines.append(f"{summary.letters} dead letters, {summary.gone} of messages that are gone")
    return [*lines, f"written to {target}"] if target else lines


def _explain(job: Job) -> Outcome:
    spans = spans_of(job)
    said = [{"stream": span.stream, "low": span.low, "high": span.high} for span in spans]
    lines = [f"{span.stream}: sequences {span.low} to {span.high - 1}" for span in spans]
    return Outcome(
        [*lines, f"report to {job['target'] or 'stdout'}"], {"streams": said, "target": job["target"]}
    )


KIND = JobKind(
    "dlq-report",
    "report messages that consumers gave up, from a stream of advisories",
    (
        replace(STREAM, text="the stream that keeps the advisories"),
        Key("target", "a .parquet or .json file to write", _target, is_positional=True),
        Key("samples", "messages shown of each group; default 3", option_values.count(low=0, high=1000), default=3),
    ),
    _run,
    _explain,
    lambda job: uses.check("dlq-report", job.options),
)  # fmt: skip
