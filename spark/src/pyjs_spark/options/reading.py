"""Options of the data source: their table, and the parser of the strings that Spark passes.

Options are checked on the driver when the data source is created, before any job. Names are case-insensitive,
as in Spark. Secrets given as `env:NAME` or `file:PATH` keep that form until the client reads them on its machine.
So no plan contains such a secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from itertools import combinations
from typing import Any, NoReturn

from pyjs_spark.errors import OptionError, SparkError, suggestion
from pyjs_spark.nats.settings import ConnectSettings, parse_address
from pyjs_spark.options import tables as table_options
from pyjs_spark.options import values
from pyjs_spark.options.values import Parser, Position, refuse
from pyjs_spark.store.place import StoreDirectory
from pyjs_spark.subjects import overlaps

EARLIEST = Position("earliest")
LATEST = Position("latest")


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its name for users, its field, and its parser."""

    name: str
    target: str  # a field of Options, or "connect." and a field of ConnectSettings
    parse: Parser
    is_secret: bool = False  # the value may contain a password, so errors do not show it
    alias: str = ""  # another name, used for Spark's Kafka source

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in the form in which Spark passes options."""
        return tuple(name.lower() for name in (self.name, self.alias) if name)


def option(name: str, parse: Parser, default: object = MISSING, *, alias: str = "") -> Any:
    """Return a dataclass field that declares an option."""
    stated = {"name": name, "parse": parse, "alias": alias}
    return field(metadata=stated) if default is MISSING else field(default=default, metadata=stated)


def stated_in(kind: type[Any]) -> tuple[Option, ...]:
    """Return the options that the fields of a dataclass declare."""
    return tuple(Option(target=each.name, **each.metadata) for each in fields(kind) if each.metadata)


@dataclass(frozen=True, slots=True)
class Options:
    """The checked options of one read."""

    streams: tuple[str, ...] = option("stream", values.stream_names, alias="subscribe")  # or patterns with *
    connect: ConnectSettings = field(default_factory=ConnectSettings)
    subjects: tuple[str, ...] = option("subjects", values.subjects, ())  # filter on the server; (): all
    # None: earliest in a batch, latest in a streaming query; a sequence is inclusive.
    starting_offsets: Position | None = option(  # noqa: RUF009  # a field, as all of these
        "startingOffsets", values.position("earliest", "latest"), None
    )
    # End of a batch read; a sequence is exclusive.
    ending_offsets: Position = option("endingOffsets", values.position("latest"), LATEST)  # noqa: RUF009
    # Overrides the offsets.
    starting_ns: int | None = option("startingTimestamp", values.moment, None)
    ending_ns: int | None = option("endingTimestamp", values.moment, None)  # exclusive
    # Times of single streams, in ns.
    starting_times: tuple[tuple[str, int], ...] = option("startingOffsetsByTimestamp", values.moments, ())
    ending_times: tuple[tuple[str, int], ...] = option("endingOffsetsByTimestamp", values.moments, ())
    fail_on_data_loss: bool = option("failOnDataLoss", values.boolean, True)
    # None: spark.default.parallelism or 8, fewer for small ranges
    min_partitions: int | None = option("minPartitions", values.count(high=100_000), None)
    max_records_per_partition: int = option(
        "maxRecordsPerPartition", values.count(), values.RECORDS_PER_PARTITION
    )
    max_rows_per_trigger: int | None = option(
        "maxRowsPerTrigger", values.count(), None, alias="maxOffsetsPerTrigger"
    )
    max_bytes_per_trigger: int | None = option("maxBytesPerTrigger", values.byte_size, None)
    min_rows_per_trigger: int | None = option(
        "minRowsPerTrigger", values.count(), None, alias="minOffsetsPerTrigger"
    )
    max_trigger_delay_s: float = option("maxTriggerDelay", values.seconds, 900.0)
    read_mode: str = option("readMode", values.one_of("auto", "consumer", "direct", "bulk"), "auto")
    path: str | None = option("path", values.text, None)  # path of a store directory, read without a server
    account: str = option("account", values.text, "$G")  # account in the store directory
    key_file: str = option("keyFile", values.text, "")  # for an encrypted store directory
    include_headers: str = option("includeHeaders", values.headers, "map")
    fetch_batch: int = option("fetchBatch", values.count(high=1_000_000), 10_000)
    fetch_expires_s: float = option("fetchExpires", values.seconds, 5.0)
    idle_timeout_s: float = option("idleTimeout", values.seconds, 30.0)
    # None: 65,536 for bulk reads and store directories, otherwise 10,000
    arrow_batch_rows: int | None = option("arrowBatchRows", values.count(high=10_000_000), None)
    pushdown: bool = option("pushdown", values.boolean, False)
    # Names, or patterns with *, of key-value buckets to read.
    buckets: tuple[str, ...] = option("bucket", values.bucket_names, ())
    keys: tuple[str, ...] = option("keys", values.subjects, ())  # filter on the server; (): all
    include_history: bool = option("includeHistory", values.boolean, False)
    # None: true in streaming queries and with includeHistory, otherwise false
    include_deletes: bool | None = option("includeDeletes", values.boolean, None)
    object_store: str = option("objectStore", values.bucket_name, "")  # a listing of this bucket's objects
    objects: tuple[str, ...] = option("objects", values.words, ())  # names; (): all
    max_object_size: int = option("maxObjectSize", values.byte_size, 64 << 20)
    # names of the options that the user gave
    said: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @property
    def is_table(self) -> bool:
        """Return whether the rows are entries of buckets or objects, not messages."""
        return bool(self.buckets or self.object_store)

    @property
    def place(self) -> StoreDirectory | None:
        """The store directory to read, or None to read from a server."""
        return StoreDirectory(self.path, self.account, self.key_file) if self.path is not None else None


def _servers(value: str) -> tuple[str, ...]:
    servers = values.words(value)
    try:
        for server in servers:
            parse_address(server)
    except SparkError as wrong:
        raise ValueError(f"addresses such as nats://host:4222, comma separated ({wrong})") from None
    return servers


# fmt: off
CONNECTION = (
    Option("servers", "connect.servers", _servers, is_secret=True),
    Option("user", "connect.user", values.text),
    Option("password", "connect.password", values.text, is_secret=True),
    Option("token", "connect.token", values.text, is_secret=True),
    Option("nkeySeedFile", "connect.nkey_seed_file", values.text),
    Option("credsFile", "connect.creds_file", values.text),
    Option("tls.ca", "connect.tls_ca", values.text),
    Option("tls.cert", "connect.tls_cert", values.text),
    Option("tls.key", "connect.tls_key", values.text),
    Option("tls.hostname", "connect.tls_hostname", values.text),
    Option("tls.first", "connect.tls_first", values.boolean),
    Option("jsDomain", "connect.api_prefix", values.domain),
    Option("apiPrefix", "connect.api_prefix", values.api_prefix),
    Option("requestTimeout", "connect.timeout_s", values.seconds),
)
# fmt: on
TABLE = stated_in(Options) + CONNECTION
BY_NAME = {name: option for option in TABLE for name in option.names}
TRIGGERS = ("maxRowsPerTrigger", "maxBytesPerTrigger", "minRowsPerTrigger", "maxTriggerDelay")
ENDS = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
INSTEAD = {  # hints for users who give an option of Spark's Kafka source
    "subscribepattern": "name the stream, with * for any text, by stream",
    "assign": "a stream has no partitions; name it by stream",
    "kafka.bootstrap.servers": "name the server, as nats://host:4222, by servers",
    "groupidprefix": "nothing is left on the server by a read; leave it out",
    "kafka.group.id": "nothing is left on the server by a read; leave it out",
}


def parse_options(given: Mapping[str, str]) -> Options:
    """Return the options of a read.

    Raises:
        OptionError: an option is missing, unknown or not allowed, or its value is not allowed.
    """
    known = _known(given)
    parsed = {option.target: value_of(option, said) for option, said in known}
    said_names = {option.name for option, _ in known}
    table_options.check(said_names)
    parsed = table_options.with_streams(parsed)
    if "streams" not in parsed:
        raise OptionError(
            'option stream is missing: name the stream to read, as .option("stream", "ORDERS"), '
            "or a bucket (bucket), or an object store (objectStore)"
        )
    _check_together(said_names, parsed)
    return Options(said=tuple(option.name for option, _ in known), **fields_of(parsed))


def fields_of(parsed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments for a class of options.

    Values whose names begin with "connect." become the argument `connect`, a ConnectSettings.
    """
    connect = {name.removeprefix("connect."): value for name, value in parsed.items() if "." in name}
    own = {name: value for name, value in parsed.items() if "." not in name}
    return {"connect": ConnectSettings(**connect), **own}


def _known(given: Mapping[str, str]) -> list[tuple[Option, str]]:
    return once(
        (BY_NAME[name.lower()] if name.lower() in BY_NAME else _unknown(name), name, str(said))
        for name, said in given.items()
    )


def once(given: Iterable[tuple[Option, str, str]]) -> list[tuple[Option, str]]:
    """Return each given option once, with its value.

    Raises:
        OptionError: an option is given under two names.
    """
    found: dict[str, tuple[Option, str, str]] = {}
    for option, name, said in given:
        before = found.get(option.name)
        if before is not None and before[1].lower() != name.lower():
            raise OptionError(f"options {before[1]} and {name} have the same meaning; give only one")
        found[option.name] = (option, name, said)
    return [(option, said) for option, _, said in found.values()]


def _unknown(name: str) -> NoReturn:
    if name.lower() in INSTEAD:
        raise OptionError(f"option {name} is of Kafka: {INSTEAD[name.lower()]}")
    raise unknown(name, BY_NAME)


def unknown(name: str, known: Mapping[str, Option]) -> OptionError:
    """Return the error for an unknown option."""
    shown = {each: option.name for each, option in known.items()}
    there = f"there are {', '.join(sorted(set(shown.values())))}"
    return OptionError(f"option {name} is unknown; {suggestion(name, shown, there)}")


def value_of(option: Option, said: str) -> object:
    """Return the parsed value of an option. Raises OptionError if the value is not allowed."""
    try:
        return option.parse(said)
    except ValueError as wrong:
        shown = "(hidden)" if option.is_secret else said
        raise OptionError(f"option {option.name}={shown} is not allowed; allowed: {wrong}") from None


def _check_together(said: set[str], parsed: Mapping[str, object]) -> None:
    """Raise OptionError for values that are valid alone, but not together."""
    check_connect(said)
    _check_place(said, parsed)
    _check_mode(said, parsed)
    if "maxTriggerDelay" in said and "minRowsPerTrigger" not in said:
        raise OptionError(
            "option maxTriggerDelay is given without minRowsPerTrigger, which it limits; give both"
        )
    least, most = parsed.get("min_rows_per_trigger"), parsed.get("max_rows_per_trigger")
    if isinstance(least, int) and isinstance(most, int) and least > most:
        raise OptionError(f"option minRowsPerTrigger={least} is above maxRowsPerTrigger={most}")
    start, end = parsed.get("starting_ns"), parsed.get("ending_ns")
    if isinstance(start, int) and isinstance(end, int) and start > end:
        raise OptionError("option startingTimestamp is after endingTimestamp; nothing lies between them")


def check_connect(said: set[str]) -> None:
    """Raise OptionError for connection options that exclude or need each other.

    `said` has the names of the given options.
    """
    for one, other in (("tls.cert", "tls.key"), ("tls.key", "tls.cert"), ("password", "user")):
        if one in said and other not in said:
            raise OptionError(f"option {one} is given without {other}; give both")
    if {"jsDomain", "apiPrefix"} <= said:
        raise OptionError("options jsDomain and apiPrefix have the same meaning; give only one")


def _check_place(said: set[str], parsed: Mapping[str, object]) -> None:
    """Raise OptionError for options of a server if a store directory is given, and vice versa."""
    if "path" not in said:
        why = "is for reading a store directory; give path too, or leave it out"
        refuse(said, ("account", "keyFile"), why)
        return
    why = "asks a server, and path reads files; read its stream (KV_..., OBJ_...) by stream"
    refuse(said, ("bucket", "objectStore"), why)
    of_server = (*(option.name for option in CONNECTION), "fetchBatch", "fetchExpires", "idleTimeout")
    refuse(said, of_server, "is of a server, and path reads files without one; give one of them")
    if parsed.get("read_mode", "auto") != "auto":
        raise OptionError(
            f"option readMode={parsed['read_mode']} asks a server, and path reads files; leave it out"
        )


def _check_mode(said: set[str], parsed: Mapping[str, object]) -> None:
    """Raise OptionError for options that have no effect on reads in the selected mode."""
    mode = str(parsed.get("read_mode", "auto"))
    unused = {"bulk": ("fetchBatch", "fetchExpires"), "direct": ("fetchExpires",)}.get(mode, ())
    refuse(said, unused, f"has no effect with readMode={mode}; leave one of them out")


def check_batch(options: Options) -> None:
    """Raise OptionError for an option that is not allowed in a batch read."""
    if options.buckets and not options.include_history:
        table_options.check_latest(options)
    else:
        _check_consumer(options)
    refuse(options.said, TRIGGERS, "is not allowed in a batch, which has no triggers; leave it out")
    has_time = options.starting_ns is not None or options.starting_times
    if options.starting_offsets == LATEST and not has_time:
        raise OptionError(
            "option startingOffsets=latest is not allowed in a batch: it would read nothing; allowed: earliest, JSON"
        )


def check_stream(options: Options) -> None:
    """Raise OptionError for an option that is not allowed in a streaming read."""
    table_options.check_stream(options)
    _check_consumer(options)
    if options.pushdown:
        raise OptionError(
            "option pushdown is not allowed in a streaming read, of which Spark hands over no filters; leave it out, "
            "and choose by subjects"
        )
    why = "is not allowed in a streaming read: a directory does not report new messages; read it as a batch, or "
    refuse(options.said, ("path",), f"{why}name the server with servers")
    refuse(options.said, ENDS, "is not allowed in a streaming read, which has no end; leave it out")


def _check_consumer(options: Options) -> None:
    """Raise OptionError for readMode=consumer with filters that overlap, since no server accepts them."""
    name, chosen = ("keys", options.keys) if options.buckets else ("subjects", options.subjects)
    if options.read_mode != "consumer":
        return
    for one, other in combinations(chosen, 2):
        if overlaps(one, other):
            raise OptionError(
                f"option readMode=consumer: a server takes no filters that overlap, as {one} and {other} of "
                f"option {name} do; use readMode=auto"
            )
