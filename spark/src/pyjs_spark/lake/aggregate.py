"""Windowed aggregates of streams: the validated definition, and its Spark expressions.

    [pipeline]
    kind = "aggregate"
    stream = "ORDERS"                       # a name, a pattern with *, or a list of both
    target = "kv:RATES"                     # a bucket, or subject:stats.orders
    checkpoint = "/data/checkpoints/rates"  # a folder, or a URI that Spark has a file system for
    window = "1m"
    slide = "30s"                           # windows that overlap; the window's size if not given
    late = "10m"                            # how late messages may be
    by = "subject"                          # or all, or tokens of the subject such as $1.$3
    emit = "updates"                        # of each window as it grows (only into a bucket); or final
    time = "at"                             # a JSON field with the time; the time of storing if not given
    create = true                           # make the bucket if it is not there
    master = "local[*]"

    [values]
    orders = "count"
    revenue = "sum(amount)"                 # of the field amount of a message in JSON

    [options]                               # of the data source; those of the sink stand in [sink]

The result of one window and one group is one message, in JSON: its start, end and group, then the values in their
order. In a bucket its key is `<start>.<group>`, so that writing it again changes nothing. Numbers are decimals with
nine decimal places: sums do not depend on the order of messages. Knows nothing of servers and files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyjs_spark.errors import OptionError
from pyjs_spark.lake import config
from pyjs_spark.options import uses
from pyjs_spark.options import values as option_values
from pyjs_spark.options.reading import TABLE, Options, check_stream, parse_options
from pyjs_spark.options.writing import parse_sink_options
from pyjs_spark.subjects import is_subject

KEYS = (
    "kind", "stream", "target", "checkpoint", "window", "slide", "late", "by", "emit", "time", "create", "master",
)  # fmt: skip
SECTIONS = ("pipeline", "values", "options", "sink", "spark")
EMITS = ("updates", "final")
LATE = "10m"
BUCKET = re.compile(r"[A-Za-z0-9_-]+")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
FIELD = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
VALUE = re.compile(r"(\w+)(?:\(([^()]*)\))?")
TOKENS = re.compile(r"\$[1-9]\d?(\.\$[1-9]\d?)*")
CONNECTION = {option.name.lower() for option in TABLE if option.target.startswith("connect.")}
SINK_OWN = ("stream", "subject", "msgid", "msgidcolumn")
TAKEN = ("start", "end", "group")
# How each function looks in Spark; {x} is the field as a decimal, {t} as a text. NULL: it is no number, or not there.
FUNCTIONS = {
    "sum": "try_sum({x})",
    "min": "min({x})",
    "max": "max({x})",
    "avg": "try_avg({x})",
    "distinct": "size(collect_set({t}))",
    "approx_distinct": "approx_count_distinct({t})",
}
DECIMALS = ("sum", "min", "max", "avg")


@dataclass(frozen=True, slots=True)
class Value:
    """One number of a result."""

    name: str
    function: str  # count, or one of FUNCTIONS
    path: str = ""  # of a JSON field, dots between; "" for a count of all messages

    def __str__(self) -> str:
        return f"{self.function}({self.path})" if self.path else self.function


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregating pipeline, checked."""

    options: Options
    given: Mapping[str, str]  # the options as they were said, for Spark
    target: str
    checkpoint: str
    window_s: int
    slide_s: int
    late_s: int
    values: tuple[Value, ...]
    by: str = "subject"
    emit: str = "updates"
    time: str = ""
    create: bool = False
    sink: Mapping[str, str] = field(default_factory=dict)  # with the connection
    master: str = config.MASTER
    spark: Mapping[str, str] = field(default_factory=dict)

    @property
    def bucket(self) -> str:
        """Return the bucket of the results, "" if they go to a subject."""
        return self.target.removeprefix("kv:") if self.target.startswith("kv:") else ""

    def definition(self) -> dict[str, object]:
        """Return the identity of a checkpoint: its state cannot be used with another one."""
        return {
            "streams": list(self.options.streams),
            "subjects": list(self.options.subjects),
            "target": self.target,
            "window_s": self.window_s,
            "slide_s": self.slide_s,
            "late_s": self.late_s,
            "by": self.by,
            "emit": self.emit,
            "time": self.time,
            "values": {value.name: str(value) for value in self.values},
        }


# -- texts ----------------------------------------------------------------------------------------------------------


def make(
    head: Mapping[str, str],
    values: Mapping[str, str],
    options: Mapping[str, str],
    sink: Mapping[str, str] | None = None,
    spark: Mapping[str, str] | None = None,
) -> Aggregate:
    """Return the pipeline of texts. Raises OptionError."""
    for name in options:
        if name.lower() == "stream":
            raise OptionError(
                f"option {name}: the stream of a pipeline is named beside its target, not as an option"
            )
    given = {**options, "stream": _needed(head, "stream")}
    parsed = parse_options(given)
    check_stream(parsed)
    uses.check("an aggregate", parsed)
    target = _target(_needed(head, "target"))
    window = _whole_seconds("window", _needed(head, "window"))
    slide = _whole_seconds("slide", head.get("slide", head["window"]))
    if slide > window:
        raise OptionError(f"slide={head['slide']} is longer than window={head['window']}: messages between")
    emit = head.get("emit", "updates" if target.startswith("kv:") else "final")
    return Aggregate(
        options=parsed,
        given=given,
        target=target,
        checkpoint=_needed(head, "checkpoint"),
        window_s=window,
        slide_s=slide,
        late_s=_whole_seconds("late", head.get("late", LATE)),
        values=_values(values),
        by=_by(head.get("by", "subject")),
        emit=_emit(emit, target),
        time=_path("time", head["time"]) if "time" in head else "",
        create=_create(head.get("create", "false"), target),
        sink=_sink(sink or {}, options),
        master=head.get("master", config.MASTER),
        spark=dict(spark or {}),
    )


def from_tables(said: Mapping[str, object], more: Mapping[str, str]) -> Aggregate:
    """Return the pipeline of a file's tables; `more` are options that take precedence over the file's."""
    config.refuse_unknown(said, SECTIONS, "section")
    head, values, options, sink, spark = (config.table(said, name) for name in SECTIONS)
    config.refuse_unknown(head, KEYS, "key")
    texts = {key: config.text(head, key) for key in head}
    return make(
        texts, dict(config.flat(values)), config.options_of(options, more), dict(config.flat(sink)),
        dict(config.flat(spark)),
    )  # fmt: skip


def _needed(head: Mapping[str, str], key: str) -> str:
    if not head.get(key, "").strip():
        raise OptionError(f"key {key} is missing or empty in an aggregate; its keys are {', '.join(KEYS)}")
    return head[key].strip()


def _target(said: str) -> str:
    kind, _, name = said.partition(":")
    if kind == "kv" and BUCKET.fullmatch(name):
        return said
    if kind == "subject" and is_subject(name) and not {"*", ">"} & set(name.split(".")):
        return said
    raise OptionError(
        f"target={said} is not allowed; allowed: kv:BUCKET, or subject:SUBJECT such as subject:stats.orders"
    )


def _whole_seconds(key: str, said: str) -> int:
    try:
        found = option_values.seconds(said)
    except ValueError as wrong:
        raise OptionError(f"{key}={said} is not allowed; allowed: {wrong}") from None
    if found != int(found):
        raise OptionError(f"{key}={said} is not allowed; allowed: whole seconds")
    return int(found)


def _values(said: Mapping[str, str]) -> tuple[Value, ...]:
    if not said:
        raise OptionError("an aggregate needs a value at least, such as orders=count or revenue=sum(amount)")
    return tuple(_value(name, text) for name, text in said.items())


def _value(name: str, said: str) -> Value:
    if not NAME.fullmatch(name) or name in TAKEN:
        why = "the result has it already" if name in TAKEN else "letters, digits and _, no digit first"
        raise OptionError(f"value {name} is no name for a value: {why}")
    match = VALUE.fullmatch(said.strip())
    function, path = (match[1], match[2]) if match else (said, None)
    config.refuse_unknown([function], ("count", *FUNCTIONS), f"value {name}: function")
    if path is None and function != "count":
        raise OptionError(f"value {name}={said}: name a JSON field of the messages, as {function}(amount)")
    return Value(name, function, _path(f"value {name}", path) if path is not None else "")


def _path(key: str, said: str) -> str:
    if not FIELD.fullmatch(said.strip()):
        raise OptionError(f"{key}={said} is no JSON field; write names with dots between, as customer.id")
    return said.strip()


def _by(said: str) -> str:
    if said not in ("subject", "all") and not TOKENS.fullmatch(said):
        raise OptionError(
            f"by={said} is not allowed; allowed: subject, all, or tokens of the subject such as $1.$3"
        )
    return said


def _sink(said: Mapping[str, str], of_source: Mapping[str, str]) -> dict[str, str]:
    """Return the options of the sink; its connection is that of the source if it names no servers of its own."""
    for name in said:
        if name.lower() in SINK_OWN:
            raise OptionError(f"section sink: option {name}: an aggregate sets it itself; leave it out")
    own = {name.lower() for name in said}
    shared = (
        set() if "servers" in own else CONNECTION - own
    )  # secrets are for the servers that they came with
    same = {name: value for name, value in of_source.items() if name.lower() in shared}
    parse_sink_options({"stream": "RESULTS", **same, **said})  # only to see what is wrong
    return {**same, **said}


def _create(said: str, target: str) -> bool:
    config.refuse_unknown([said], ("true", "false"), "create")
    if said == "true" and not target.startswith("kv:"):
        raise OptionError(f"create makes a bucket, and target={target} is none; leave it out")
    return said == "true"


def _emit(said: str, target: str) -> str:
    config.refuse_unknown([said], EMITS, "emit")
    if said == "updates" and not target.startswith("kv:"):
        raise OptionError(
            "emit=updates goes into a bucket, where each result replaces the one before; for a subject use final"
        )
    return said


# -- as Spark reads it ----------------------------------------------------------------------------------------------


def columns(pipeline: Aggregate) -> tuple[str, ...]:
    """Return the columns that are read; no other is decoded."""
    needs_data = pipeline.time or any(value.path for value in pipeline.values)
    return ("ts", *(("subject",) if pipeline.by != "all" else ()), *(("data",) if needs_data else ()))


def moment(pipeline: Aggregate) -> str:
    """Return the expression of a message's time.

    A field that is no time is the time of storing. So is one before 1970, and one that lies further in the future of
    the time of storing than messages may be late: one such time would move the watermark past all messages that come
    after it, for good, and at the ends of what Spark can hold it would end the query.
    """
    if not pipeline.time:
        return "ts"
    said = f"try_cast({_text(pipeline.time)} AS timestamp)"
    until = f"ts + INTERVAL '{pipeline.late_s}' SECOND"
    return f"CASE WHEN {said} BETWEEN timestamp'1970-01-01 00:00:00Z' AND {until} THEN {said} ELSE ts END"


def group(pipeline: Aggregate) -> str:
    """Return the expression of a message's group; a token that a subject lacks is `_`."""
    if pipeline.by == "all":
        return "'all'"
    if pipeline.by == "subject":
        return "subject"
    tokens = (
        f"coalesce(get(split(subject, '[.]'), {int(each[1:]) - 1}), '_')" for each in pipeline.by.split(".")
    )
    return f"concat_ws('.', {', '.join(tokens)})"


def inputs(values: Iterable[Value]) -> dict[str, str]:
    """Return the columns that a message gives to the values: name -> expression."""
    found = {}
    for index, value in enumerate(values):
        if value.path:
            text = _text(value.path)
            is_number = value.function in DECIMALS
            found[f"v{index}"] = f"try_cast({text} AS decimal(28,9))" if is_number else text
    return found


def aggregates(values: Iterable[Value]) -> list[str]:
    """Return the aggregate expressions of the values, each named r<index>."""
    found = []
    for index, value in enumerate(values):
        column = f"v{index}"
        text = "count(1)" if not value.path else f"count({column})"
        if value.function != "count":
            text = FUNCTIONS[value.function].format(x=column, t=column)
        found.append(f"{text} AS r{index}")
    return found


def payload(values: Iterable[Value]) -> str:
    """Return the expression of a result in JSON, of columns `window`, `name` and r<index>."""
    head = f"to_json(named_struct('start', {_stamp('window.start')}, 'end', {_stamp('window.end')}, 'group', name))"
    parts = [f"left({head}, length({head}) - 1)"]
    for index, value in enumerate(values):
        number = f"cast(r{index} AS string)"
        if value.function in DECIMALS:  # always with a point: 12.300000000 is 12.3, 100.000000000 is 100
            number = f"regexp_replace(cast(cast(r{index} AS decimal(38,9)) AS string), '[.]?0+$', '')"
        parts.append(f"""concat(',"{value.name}":', coalesce({number}, 'null'))""")
    return f"concat({', '.join(parts)}, '}}')"


def key() -> str:
    """Return the expression of a result's key; what no key of a bucket may hold is =XX, byte by byte."""
    allowed = "c rlike '[-/_.a-zA-Z0-9]'"
    escaped = f"transform(split(name, ''), c -> if({allowed}, c, regexp_replace(hex(c), '(..)', '=$1')))"
    return f"concat(date_format(window.start, \"yyyyMMdd'T'HHmmss'Z'\"), '.', array_join({escaped}, ''))"


def subject(pipeline: Aggregate) -> str:
    """Return the expression of a result's subject."""
    if pipeline.bucket:
        return f"concat('$KV.{pipeline.bucket}.', {key()})"
    base = pipeline.target.removeprefix("subject:").replace("\\", "\\\\").replace("'", "\\'")
    return f"'{base}'" if pipeline.by == "all" else f"concat('{base}.', name)"


def _text(path: str) -> str:
    return f"get_json_object(cast(data AS string), '$.{path}')"


def _stamp(column: str) -> str:
    return f"date_format({column}, \"yyyy-MM-dd'T'HH:mm:ss'Z'\")"
