"""The validated definition of a replay from an archive into a stream: selection, target, mapping and rate.

    [pipeline]
    kind = "replay"
    source = "/data/lake"                       # an archive that `archive` wrote
    format = "parquet"                          # or delta, iceberg
    stream = "ORDERS"                           # the archived stream to replay
    target = "ORDERS_AGAIN"                     # the stream that stores the replayed messages
    id = "orders-again"                         # a later run with this id continues, without repetition
    map = ["orders.> -> again.orders.>"]        # the first match is used; default: subjects do not change
    subjects = ["orders.new"]                   # only these subjects, as in the archive
    first_seq = 1000                            # only these sequences, both inclusive
    last_seq = 1999
    since = "2026-11-20T00:00:00Z"              # only messages stored from then on; `until` is exclusive
    until = "2026-11-21T00:00:00Z"
    rate = 10_000                               # maximum messages per second
    msg_ids = "keep"                            # or "origin": all messages get the id <stream>:<seq>
    rows_per_batch = 1_000_000                  # sequences per batch
    master = "local[*]"

    [options]                                   # of the sink
    servers = "nats://127.0.0.1:4222"

    [catalog]                                   # of Iceberg, as for the archive

Messages are written in the order of their sequences. Each message has the headers of its original. Only the headers
Nats-... and Pyjs-... are left out, since some of them would have an effect again (Nats-Rollup, Nats-Expected-...,
Nats-TTL). These headers are added:

    Pyjs-Origin-Stream: ORDERS
    Pyjs-Origin-Seq: 1234
    Pyjs-Origin-Ts: 2026-11-20T19:19:45.123456789Z

The message has the Nats-Msg-Id of the original. If the original has no id, or `msg_ids` is `origin`, the id is
`<stream>:<seq>`. This module uses no servers or files.
"""

from __future__ import annotations

from collections.abc import Mapping as Table
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyjs_spark.errors import OptionError
from pyjs_spark.lake import archive
from pyjs_spark.lake.archive import File
from pyjs_spark.lake.archive_job import FORMAT, lake_of
from pyjs_spark.lake.jobs import Key, Said, values_of
from pyjs_spark.lake.replay import mapping
from pyjs_spark.lake.replay.mapping import Mapping
from pyjs_spark.options import values as option_values
from pyjs_spark.options.writing import KEY, KEY_HINT, SinkOptions, parse_sink_options

ROWS_PER_BATCH = 1_000_000
# Options that the pipeline sets itself.
OWN = ("stream", "subject", "sinkid", "msgid", "msgidcolumn", "delivery")
IDENTITY = ("stream", "target", "first_seq", "last_seq", "since_ns", "until_ns", "msg_ids")
ID_MAX = 100  # maximum number of characters; the sink appends more


_name = option_values.like(rf"(?!.*[*,]){option_values.STREAM_NAME}", "the name of one stream")
_id = option_values.like(KEY % ID_MAX, KEY_HINT % ID_MAX)

# fmt: off
KEYS = (
    Key("source", "folder or URI of the archive", is_positional=True, is_needed=True),
    Key("stream", "the archived stream", _name, is_positional=True, is_needed=True),
    Key("target", "the stream that stores the messages", _name, is_positional=True, is_needed=True),
    FORMAT,
    Key("id", "of this replay: run again, it repeats nothing", _id, is_needed=True),
    Key("map", "'A.> -> B.>'; the first that matches", mapping.parse, default=(), is_list=True),
    Key("subjects", "only these, as they are in the archive", option_values.subjects, default=()),
    Key("first_seq", "only from this sequence on", option_values.count(), default=1),
    Key("last_seq", "only up to this sequence, inclusive", option_values.count(), default=option_values.SEQ_MAX),
    Key("since", "only what was stored then or later", option_values.moment),
    Key("until", "only what was stored before", option_values.moment),
    Key("rate", "messages a second at most", option_values.count()),
    Key("msg_ids", "keep (default), or origin: <stream>:<seq> for all", option_values.one_of("keep", "origin"),
        default="keep"),
    Key("rows_per_batch", f"default {ROWS_PER_BATCH}", option_values.count(), default=ROWS_PER_BATCH),
)
# fmt: on


@dataclass(frozen=True, slots=True)
class Replay:
    """The checked definition of one replay."""

    source: str
    stream: str
    target: str
    id: str
    options: SinkOptions
    given: Table[str, str]  # the options as given, in Spark's form
    maps: tuple[Mapping, ...] = ()
    subjects: tuple[str, ...] = ()  # (): all
    first_seq: int = 1
    last_seq: int = option_values.SEQ_MAX
    since_ns: int | None = None
    until_ns: int | None = None  # exclusive
    rate: int | None = None
    msg_ids: str = "keep"
    rows_per_batch: int = ROWS_PER_BATCH
    format: str = "parquet"
    catalog: Table[str, str] = field(default_factory=dict)

    def definition(self) -> dict[str, object]:
        """Return the identity of this replay.

        A run can continue stored progress only if the progress has the same identity.
        """
        lists = {"map": [str(each) for each in self.maps], "subjects": list(self.subjects)}
        return {**lists, **{name: getattr(self, name) for name in IDENTITY}}


def make(
    head: Said, maps: list[str], options: Table[str, str], catalog: Table[str, str] | None = None
) -> Replay:
    """Return the replay defined by the values of its keys.

    Raises:
        OptionError: a key or an option is missing or not allowed.
    """
    values = values_of("replay", KEYS, {**head, "map": maps})
    given, sink = sink_options(head, options)
    return of_values(values, given, sink, catalog or {})


def sink_options(head: Said, options: Table[str, str]) -> tuple[dict[str, str], SinkOptions]:
    """Return the options of the sink, as strings and in parsed form.

    Raises:
        OptionError: an option is not allowed, or is one that a replay sets itself.
    """
    for name in options:
        if name.lower() in OWN:
            raise OptionError(f"option {name}: a replay sets it itself; leave it out")
    given = {**options, "stream": str(head["target"])}
    return given, parse_sink_options(given)


def of_values(
    values: Table[str, Any], given: Table[str, str], sink: SinkOptions, catalog: Table[str, str]
) -> Replay:
    """Return the replay that checked keys define.

    Raises:
        OptionError: the keys exclude each other, or the catalog does not match the format.
    """
    own = {NAMES.get(name, name): value for name, value in values.items() if name != "master"}
    lake_of(own["source"], own["format"], catalog)
    found = Replay(options=sink, given=given, catalog=dict(catalog), **own)
    _check_order(found)
    return found


NAMES = {"map": "maps", "since": "since_ns", "until": "until_ns"}


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
class Batch:
    """One batch: sequences [low, high), and the files that contain them."""

    low: int
    high: int
    files: tuple[File, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the target for one message."""

    subjects: Sequence[str]
    size: int  # bytes of headers and payload, except the headers that the sink adds
    headers_size: int  # maximum size of the headers in bytes


def batches(replay: Replay, files: list[File], at: int, until: int | None = None) -> list[Batch]:
    """Return the batches from sequence `at` on, in order, cut at multiples of rows_per_batch.

    If an earlier run began a batch without finishing it, this batch is [at, until). It comes first, and is repeated
    as a whole.
    """
    end = min(max((file.high for file in files), default=at), replay.last_seq + 1)
    begun = [] if until is None else [(at, until)]
    cuts = [*begun, *archive.missing(until or at, end, (), replay.rows_per_batch)]
    return [Batch(low, high, _within(files, low, high)) for low, high in cuts]


def _within(files: list[File], low: int, high: int) -> tuple[File, ...]:
    return tuple(file for file in files if file.size and file.low < high and file.high > low)
