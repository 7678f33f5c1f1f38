"""Options of writing: their table, and the parser of the strings from Spark.

The connection options are the same as for reading. A write refuses all other options of reading, and vice
versa, so that no option is accepted and then ignored.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyjs_spark.errors import OptionError
from pyjs_spark.nats.settings import ConnectSettings
from pyjs_spark.options import values
from pyjs_spark.options.reading import (
    CONNECTION,
    TABLE,
    Option,
    check_connect,
    fields_of,
    once,
    option,
    stated_in,
    unknown,
    value_of,
)

EXACTLY_ONCE = "exactlyOnce"
AT_LEAST_ONCE = "atLeastOnce"
FROM_HEADERS = "header"
KEY = r"[-_=A-Za-z0-9]{1,%d}"  # valid both as one token of a subject, and as a key of a bucket
KEY_HINT = "up to %d letters, digits, '-', '_' and '='"


def _stream(value: str) -> str:
    names = values.stream_names(value)
    if len(names) > 1 or "*" in names[0]:
        raise ValueError("the name of one stream: all messages of a write go to it")
    return names[0]


def _subject(value: str) -> str:
    wrong = subject_fault(value)
    if wrong:
        raise ValueError(f"one subject without wildcards such as orders.copied; it has {wrong}")
    return value


def subject_fault(value: str) -> str:
    """Return the reason why a string cannot be the subject of a message, or "" if it can be one."""
    if not value:
        return "no character"
    if re.search(r"[\x00-\x20\x7f]", value):
        return "a space or a control character"
    tokens = value.split(".")
    if not all(tokens):
        return "an empty token: two dots in a row, or one at an end"
    return next((f"the wildcard {token}" for token in tokens if token in ("*", ">")), "")


_key = values.like(KEY % 200, KEY_HINT % 200)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The checked options of one write."""

    stream: str = option("stream", _stream)  # the target stream, which must store all messages
    connect: ConnectSettings = field(default_factory=ConnectSettings)
    subject: str = option("subject", _subject, "", alias="topic")  # for all messages; "": column `subject`
    msg_id_column: str = option("msgIdColumn", values.text, "")  # "": the column msg_id, if it exists
    # header: a row's header Nats-Msg-Id is its message id
    msg_id: str = option("msgId", values.one_of("auto", FROM_HEADERS), "auto")
    sink_id: str = option("sinkId", _key, "")  # "": the id of the query; for a batch write, a new id
    delivery: str = option("delivery", values.one_of(EXACTLY_ONCE, AT_LEAST_ONCE), EXACTLY_ONCE)
    progress_bucket: str = option("progressBucket", _key, "pyjs-sinks")
    # Whether every message has a header Nats-Expected-Stream with the name of the target stream.
    expected_stream: bool = option("expectedStream", values.boolean, False)
    max_in_flight: int = option("maxInFlight", values.count(high=1_000_000), 4000)
    ack_timeout_s: float = option("ackTimeout", values.seconds, 30.0)
    retries: int = option("retries", values.count(low=0, high=1000), 5)


SINK_TABLE = stated_in(SinkOptions) + CONNECTION
BY_NAME = {name: option for option in SINK_TABLE for name in option.names}
READ_ONLY = {name: option.name for option in TABLE for name in option.names if name not in BY_NAME}
WRITE_ONLY = {
    name: option.name for name, option in BY_NAME.items() if option not in TABLE and name != "stream"
}
# options that Spark itself uses for a streaming query, and passes on
SPARKS = ("checkpointlocation", "queryname")


def is_of_writing(given: Mapping[str, str]) -> bool:
    """Return whether an option in `given` shows that the options are those of a write."""
    return any(_means_writing(name.lower()) for name in given)


def _means_writing(name: str) -> bool:
    known = {*BY_NAME, *READ_ONLY}
    near = [] if name in known else difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return name in SPARKS or name in WRITE_ONLY or (bool(near) and near[0] in WRITE_ONLY)


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Return the options of a write.

    Raises:
        OptionError: an option is missing, unknown or not allowed, or its value is not allowed.
    """
    ours = [(name, said) for name, said in given.items() if name.lower() not in SPARKS]
    known = once((_known(name), name, str(said)) for name, said in ours)
    parsed = {option.target: value_of(option, said) for option, said in known}
    if "stream" not in parsed:
        raise OptionError(
            'option stream is missing: name the stream to write to, as .option("stream", "ORDERS")'
        )
    said = {option.name for option, _ in known}
    check_connect(said)
    if "msgIdColumn" in said and parsed.get("msg_id") == FROM_HEADERS:
        raise OptionError("options msgIdColumn and msgId=header name two places of the id; give one")
    if parsed.get("delivery") == AT_LEAST_ONCE:
        why = f"has no use with delivery={AT_LEAST_ONCE}; leave it out"
        values.refuse(said, ("sinkId", "progressBucket"), why)
    return SinkOptions(**fields_of(parsed))


def _known(name: str) -> Option:
    lower = name.lower()
    if lower in BY_NAME:
        return BY_NAME[lower]
    if lower == "path":
        raise OptionError("option path: a write goes to a stream; call save() or start() without a path")
    if lower in READ_ONLY:
        raise OptionError(f"option {READ_ONLY[lower]} is for reading; leave it out of a write")
    raise unknown(name, BY_NAME)
