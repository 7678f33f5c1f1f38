"""Definition of a replay from an archive into a stream: its selection, target, mapping and rate, validated.

    [pipeline]
    kind = "replay"
    source = "/data/lake"                       # an archive that `archive` wrote
    format = "parquet"                          # or delta, iceberg
    stream = "ORDERS"                           # whose messages
    target = "ORDERS_AGAIN"                     # the stream that stores them
    id = "orders-again"                         # of this replay: the next run continues and repeats nothing
    map = ["orders.> -> again.orders.>"]        # the first match counts; without a map, subjects stay
    subjects = ["orders.new"]                   # only these, as they are in the archive
    first_seq = 1000                            # only these sequences, both inclusive
    last_seq = 1999
    since = "2026-11-20T00:00:00Z"              # only what was stored then; until is exclusive
    until = "2026-11-21T00:00:00Z"
    rate = 10_000                               # messages a second at most
    msg_ids = "keep"                            # or origin: <stream>:<seq> for all
    rows_per_batch = 1_000_000                  # sequences that are written at once
    master = "local[*]"

    [options]                                   # of the sink
    servers = "nats://127.0.0.1:4222"

    [catalog]                                   # of Iceberg, as the archive has it

Messages go in the order of their sequences. Each has the headers of its original, without those that a server would
obey again (Nats-Rollup, Nats-Expected-..., Nats-TTL), and in addition

    Pyjs-Origin-Stream: ORDERS
    Pyjs-Origin-Seq: 1234
    Pyjs-Origin-Ts: 2026-11-20T19:19:45.123456789Z

Its Nats-Msg-Id is that of the original, or `<stream>:<seq>` where it had none, or for all. Knows nothing of servers
and files.
"""

from __future__ import annotations

from collections.abc import Mapping as Table
from dataclasses import dataclass, field

from pyjs_spark.errors import OptionError
from pyjs_spark.lake import config
from pyjs_spark.lake.replay import mapping
from pyjs_spark.lake.replay.mapping import Mapping
from pyjs_spark.options import values as option_values
from pyjs_spark.options.writing import KEY, SinkOptions, parse_sink_options

KEYS = (
    "kind", "source", "format", "stream", "target", "id", "map", "subjects", "first_seq", "last_seq", "since",
    "until", "rate", "msg_ids", "rows_per_batch", "master",
)  # fmt: skip
SECTIONS = ("pipeline", "options", "spark", "catalog")
FORMATS = ("parquet", "delta", "iceberg")
MSG_IDS = ("keep", "origin")
ROWS_PER_BATCH = 1_000_000
OWN = (
    "stream",
    "subject",
    "sinkid",
    "msgid",
    "msgidcolumn",
    "delivery",
)  # options that the pipeline sets itself
ID_MAX = 100  # the sink gets more after it


@dataclass(frozen=True, slots=True)
class Replay:
    """One replaying pipeline, checked."""

    source: str
    stream: str
    target: str
    id: str
    options: SinkOptions
    given: Table[str, str]  # the options as they were said, for Spark
    maps: tuple[Mapping, ...] = ()
    subjects: tuple[str, ...] = ()  # (): all
    first_seq: int = 1
    last_seq: int = option_values.SEQ_MAX
    since_ns: int | None = None
    until_ns: int | None = None  # exclusive
    rate: int | None = None
    msg_ids: str = "keep"
    rows_per_batch: int = ROWS_PER_BATCH
    master: str = config.MASTER
    spark: Table[str, str] = field(default_factory=dict)
    format: str = "parquet"
    catalog: Table[str, str] = field(default_factory=dict)

    def definition(self) -> dict[str, object]:
        """Return the identity of this replay; progress with another identity cannot be continued."""
        return {
            "stream": self.stream,
            "target": self.target,
            "map": [str(each) for each in self.maps],
            "subjects": list(self.subjects),
            "first_seq": self.first_seq,
            "last_seq": self.last_seq,
            "since_ns": self.since_ns,
            "until_ns": self.until_ns,
            "msg_ids": self.msg_ids,
        }


def make(
    head: Table[str, str],
    maps: list[str],
    options: Table[str, str],
    spark: Table[str, str] | None = None,
    catalog: Table[str, str] | None = None,
) -> Replay:
    """Return the pipeline of texts. Raises OptionError."""
    for name in options:
        if name.lower() in OWN:
            raise OptionError(f"option {name}: a replay sets it itself; leave it out")
    target = _name(head, "target")
    given = {**options, "stream": target}
    found = Replay(
        source=_needed(head, "source"),
        stream=_name(head, "stream"),
        target=target,
        id=_id(_needed(head, "id")),
        options=parse_sink_options(given),
        given=given,
        maps=tuple(mapping.parse(each) for each in maps),
        subjects=option_values.subjects(head["subjects"]) if _is_fine(head, "subjects") else (),
        first_seq=_count(head, "first_seq", 1),
        last_seq=_count(head, "last_seq", option_values.SEQ_MAX),
        since_ns=_moment(head, "since"),
        until_ns=_moment(head, "until"),
        rate=_count(head, "rate", 0) or None,
        msg_ids=_msg_ids(head.get("msg_ids", "keep")),
        rows_per_batch=_count(head, "rows_per_batch", ROWS_PER_BATCH),
        master=head.get("master", config.MASTER),
        spark=dict(spark or {}),
        format=_format(head.get("format", "parquet"), catalog),
        catalog=dict(catalog or {}),
    )
    _check_order(found)
    return found


def from_tables(said: Table[str, object], more: Table[str, str]) -> Replay:
    """Return the pipeline of a file's tables; `more` are options that take precedence over the file's."""
    config.refuse_unknown(said, SECTIONS, "section")
    head, options, spark, catalog = (config.table(said, name) for name in SECTIONS)
    config.refuse_unknown(head, KEYS, "key")
    maps = head.get("map", [])
    maps = [maps] if isinstance(maps, str) else maps
    if not isinstance(maps, list) or not all(isinstance(each, str) for each in maps):
        raise OptionError(
            f"map={maps} is not allowed; allowed: a list of texts such as 'orders.> -> again.>'"
        )
    texts = {key: config.text(head, key) for key in head if key != "map"}
    given = {name.lower(): value for name, value in (*config.flat(options), *more.items())}
    return make(texts, maps, given, dict(config.flat(spark)), dict(config.flat(catalog)))


def _needed(head: Table[str, str], key: str) -> str:
    if not head.get(key, "").strip():
        raise OptionError(f"key {key} is missing or empty in a replay; its keys are {', '.join(KEYS)}")
    return head[key].strip()


def _name(head: Table[str, str], key: str) -> str:
    said = _needed(head, key)
    if not option_values.STREAM_NAME.fullmatch(said) or "*" in said or "," in said:
        raise OptionError(f"{key}={said} is not allowed; allowed: the name of one stream")
    return said


def _id(said: str) -> str:
    if not KEY.fullmatch(said) or len(said) > ID_MAX:
        raise OptionError(
            f"id={said} is not allowed; allowed: up to {ID_MAX} letters, digits, '-', '_' and '='"
        )
    return said


def _is_fine(head: Table[str, str], key: str) -> bool:
    """Return whether there are subjects. Raises OptionError if one is not a valid subject."""
    if key not in head:
        return False
    try:
        option_values.subjects(head[key])
    except ValueError as wrong:
        raise OptionError(f"{key}={head[key]} is not allowed; allowed: {wrong}") from None
    return True


def _count(head: Table[str, str], key: str, default: int) -> int:
    if key not in head:
        return default
    try:
        return option_values.count()(head[key])
    except ValueError as wrong:
        raise OptionError(f"{key}={head[key]} is not allowed; allowed: {wrong}") from None


def _moment(head: Table[str, str], key: str) -> int | None:
    if key not in head:
        return None
    try:
        return option_values.moment(head[key])
    except ValueError as wrong:
        raise OptionError(f"{key}={head[key]} is not allowed; allowed: {wrong}") from None


def _msg_ids(said: str) -> str:
    config.refuse_unknown([said], MSG_IDS, "msg_ids")
    return said


def _format(said: str, catalog: Table[str, str] | None) -> str:
    config.refuse_unknown([said], FORMATS, "format")
    if catalog and said != "iceberg":
        raise OptionError(f"section catalog is for format=iceberg, and the format is {said}; leave it out")
    return said


def _check_order(found: Replay) -> None:
    if found.first_seq > found.last_seq:
        raise OptionError(
            f"first_seq={found.first_seq} is above last_seq={found.last_seq}; nothing is between"
        )
    since, until = found.since_ns, found.until_ns
    if since is not None and until is not None and since >= until:
        raise OptionError("since is not before until; nothing is between")


# -- ranges ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class File:
    """One file of the archive: sequences [low, high)."""

    path: str
    low: int
    high: int
    size: int  # bytes; 0: covers sequences that had no message


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch: sequences [low, high), and the files that hold them."""

    low: int
    high: int
    files: tuple[File, ...]


def batches(replay: Replay, files: list[File], at: int, until: int | None = None) -> list[Batch]:
    """Return the batches from sequence `at` on, in order; cut at multiples of rows_per_batch.

    `until` is the end of a batch that was begun before: it is the first, and whole again.
    """
    end = min(max((file.high for file in files), default=at), replay.last_seq + 1)
    cuts: list[tuple[int, int]] = []
    if until is not None:
        cuts.append((at, until))
        at = until
    size = replay.rows_per_batch
    while at < end:
        cut = min(end, (at - 1) // size * size + size + 1)
        cuts.append((at, cut))
        at = cut
    return [Batch(low, high, _within(files, low, high)) for low, high in cuts]


def _within(files: list[File], low: int, high: int) -> tuple[File, ...]:
    return tuple(file for file in files if file.size and file.low < high and file.high > low)


def gap(files: list[File], at: int, end: int) -> tuple[int, int] | None:
    """Return the first [low, high) from `at` to `end` that no file covers, None if there is none."""
    for file in sorted(files, key=lambda each: each.low):
        if file.low > at:
            return at, min(file.low, end)
        at = max(at, file.high)
        if at >= end:
            return None
    return None
