"""Requests of a plan to the server: names and states of streams, and the first message after a time.

There are three API requests: STREAM.NAMES, STREAM.INFO and STREAM.MSG.GET. None of them changes anything on
the server, so a plan can be discarded. All three also work on workqueue and interest streams.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from pyjs_spark.errors import ApiError, SparkError, StreamMissing, suggestion
from pyjs_spark.nats.retry import PatientApi
from pyjs_spark.options.reading import Options
from pyjs_spark.read.plan import StreamState, state_of
from pyjs_spark.times import NS_PER_S, format_rfc3339

STREAM_NOT_FOUND = 10059
NO_MESSAGE = 10037
LAST_NS = 253402300800 * NS_PER_S  # the year 10000, which no server accepts


class Api(Protocol):
    """The methods of a Client that plans use."""

    def api(self, name: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send one JetStream API request; raises ApiError."""


def is_pattern(stream: str) -> bool:
    """Return whether `stream` is a pattern of stream names."""
    return "*" in stream


def fits(pattern: str, name: str) -> bool:
    """Return whether a name matches a pattern with *."""
    return _regex(pattern).fullmatch(name) is not None


def stream_names(client: Api, wanted: Iterable[str]) -> list[str]:
    """Return the sorted names of the wanted streams.

    A pattern in `wanted` stands for all streams that match it. A name is returned even if no such stream exists.
    """
    wanted = tuple(wanted)
    patterns = [_regex(each) for each in wanted if is_pattern(each)]
    names = {each for each in wanted if not is_pattern(each)}
    if patterns:
        names |= {name for name in _all_names(client) if any(regex.fullmatch(name) for regex in patterns)}
    return sorted(names)


def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in pattern.split("*")))


def _all_names(client: Api) -> list[str]:
    names: list[str] = []
    while True:
        page = client.api("STREAM.NAMES", {"offset": len(names)})
        more = page.get("streams") or []
        names += more
        if not more or len(names) >= int(page["total"]):
            return names


def stream_info(client: Api, name: str) -> dict[str, Any] | None:
    """Return the answer to STREAM.INFO, or None if the stream does not exist."""
    try:
        return client.api(f"STREAM.INFO.{name}")
    except ApiError as error:
        if error.err_code == STREAM_NOT_FOUND:
            return None
        raise


def stream_state(client: Api, name: str) -> StreamState | None:
    """Return the state of a stream, or None if it does not exist."""
    info = stream_info(client, name)
    return None if info is None else state_of(info)


def missing(client: Api, name: str) -> StreamMissing:
    """Return the error for a missing stream, with the most similar name.

    For a pattern, the error reports that no stream matches.
    """
    if is_pattern(name):
        return StreamMissing(f"option stream={name}: no stream has such a name")
    hint = suggestion(name, _all_names(client), "create it, or name another")
    return StreamMissing(f"option stream={name}: there is no such stream; {hint}")


def seq_at(client: Api, state: StreamState, at_ns: int) -> int:
    """Return the sequence of the first message stored at `at_ns` (ns since 1970) or later.

    If there is none, return the stream's end.
    """
    if not 0 < at_ns < LAST_NS:
        return state.first_seq if at_ns <= 0 else state.end
    # Without a subject, nats-server finds no message if the first message after the time was deleted.
    found = _message_seq(client, state.name, {"start_time": format_rfc3339(at_ns), "next_by_subj": ">"})
    return state.end if found is None else min(found, state.end)


def next_seq(client: Api, state: StreamState, seq: int, subjects: tuple[str, ...]) -> int:
    """Return the sequence of the first message from `seq` on with one of the subjects.

    If there is none, the end of the stream is returned.
    """
    return min([*_seqs_from(client, state.name, seq, subjects), state.end])


def has_message(client: Api, stream: str, low: int, high: int, subjects: tuple[str, ...]) -> bool:
    """Return whether a stream has a message in [low, high) with one of the subjects."""
    if len(subjects) > 1 and not has_message(client, stream, low, high, ()):
        return False  # the usual case, with one request
    return any(seq < high for seq in _seqs_from(client, stream, low, subjects))


def _seqs_from(client: Api, stream: str, seq: int, subjects: tuple[str, ...]) -> Iterator[int]:
    """For each subject, yield the sequence of its first message from `seq` on, if there is one."""
    for subject in subjects or (">",):
        found = _message_seq(client, stream, {"seq": seq, "next_by_subj": subject})
        if found is not None:
            yield found


def _message_seq(client: Api, stream: str, body: Mapping[str, object]) -> int | None:
    try:
        return int(client.api(f"STREAM.MSG.GET.{stream}", body)["message"]["seq"])
    except ApiError as error:
        if error.err_code == NO_MESSAGE:
            return None
        if "start_time" in body and error.code == 400:
            raise SparkError(
                f"stream {stream}: the server does not find messages by time ({error}); use startingOffsets"
            ) from error
        raise


def api_of(options: Options) -> Api:
    """Return the API that answers the requests of a plan: a server, or the files of a store directory."""
    if options.place is None:
        return PatientApi(options.connect, options.idle_timeout_s)
    # imported lazily: needs numpy and pyarrow, which other plans do not need
    from pyjs_spark.store.api import StoreApi

    return StoreApi(options.place)
