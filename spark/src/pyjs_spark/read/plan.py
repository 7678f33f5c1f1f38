"""Plans of a read: ranges of sequences, the next offset and lost messages, computed from the states of streams.

The functions are pure: they compute with counts and sequences, and send no requests. All ranges are [low, high). A
range of n sequences has n messages, or fewer if some were deleted. So limits on rows are never exceeded, and a reader
must not rely on counts of messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from pyjs_spark.errors import OptionError, ProtocolError, SeqTooLarge
from pyjs_spark.options.values import SEQ_MAX, Position
from pyjs_spark.read.offsets import Cut, Offsets, StreamOffset

PARALLELISM = 8  # tasks of a read if neither minPartitions nor spark.default.parallelism is set
# Starting a task for fewer rows takes longer than reading them; not used if minPartitions is set.
WORTHWHILE_ROWS = 10_000
# If a stream has more sequences per message than this, ranges may exceed maxRecordsPerPartition; otherwise most
# tasks would have no message.
SPARSE = 4


@dataclass(frozen=True, slots=True)
class StreamState:
    """The state of a stream, from STREAM.INFO at one moment."""

    name: str
    created: str
    first_seq: int  # at least 1; for an empty stream, the sequence of the next message
    last_seq: int  # 0 if there never was a message
    messages: int
    size: int  # bytes in the stream's store
    # Workqueue or interest: consumers remove messages that they have read, which is no loss.
    is_consumed: bool = False

    @property
    def end(self) -> int:
        """Return the sequence of the next message."""
        return self.last_seq + 1

    def until(self, end: int) -> StreamState:
        """Return the state as if the stream had no messages from sequence `end` on."""
        return replace(self, first_seq=min(self.first_seq, end), last_seq=min(self.last_seq, end - 1))


@dataclass(frozen=True, slots=True)
class Span:
    """A range of one stream's sequences to read: [low, high)."""

    stream: str
    low: int
    high: int
    created: str

    def __post_init__(self) -> None:
        assert self.low >= 1
        assert self.low <= self.high

    @property
    def count(self) -> int:
        """Return the number of sequences, which is the maximum number of messages."""
        return self.high - self.low


@dataclass(frozen=True, slots=True)
class Gap:
    """Sequences that should be read but no longer exist."""

    stream: str
    low: int
    high: int  # exclusive; 0 if unknown
    why: str

    def __str__(self) -> str:
        last = f"to {self.high - 1}" if self.high else "and later"
        return f"stream {self.stream}: messages {self.low} {last} are gone: {self.why}"


def state_of(info: Mapping[str, Any]) -> StreamState:
    """Return the state in an answer to STREAM.INFO.

    Raises:
        SeqTooLarge: the stream's sequences do not fit into Spark's signed integers.
        ProtocolError: the answer has no state.
    """
    try:
        config, state, created = info["config"], info["state"], str(info["created"])
        name, is_consumed = str(config["name"]), config.get("retention", "limits") != "limits"
        first, last = int(state["first_seq"]), int(state["last_seq"])
        messages, size = int(state["messages"]), int(state["bytes"])
    except (AttributeError, LookupError, TypeError, ValueError) as wrong:
        raise ProtocolError(
            f"the server describes a stream without what is needed ({wrong!r:.100})"
        ) from None
    if last >= SEQ_MAX:
        raise SeqTooLarge(f"stream {name}: sequence {last} is above 2^63-1, which no column of Spark holds")
    return StreamState(name, created, max(1, min(first, last + 1)), last, messages, size, is_consumed)


# -- start and end of a read ----------------------------------------------------------------------------------------


def seq_of(position: Position, state: StreamState, option: str) -> int:
    """Return the sequence that a position denotes in one stream.

    Raises:
        OptionError: the position names other streams, but not this stream.
    """
    at: int | str | None = position.word or dict(position.streams).get(state.name)
    if at is None:
        raise OptionError(
            f"option {option} names {', '.join(name for name, _ in position.streams)} but not the stream "
            f"{state.name}, which is read too; add it, with a sequence, earliest or latest"
        )
    if isinstance(at, int):
        return at
    return state.first_seq if at == "earliest" else state.end


def time_of(at_ns: int | None, times: Iterable[tuple[str, int]], name: str, option: str) -> int | None:
    """Return the start or end time of a stream in ns.

    This is `at_ns`, or else the stream's own time in `times`, or None if there are no times.

    Raises:
        OptionError: `times`, the value of `option`, has only times of other streams.
    """
    own = dict(times)
    if at_ns is not None or not own:
        return at_ns
    if name not in own:
        raise OptionError(
            f"option {option} names {', '.join(own)} but not the stream {name}, which is read too; add it"
        )
    return own[name]


def check_named(position: Position, streams: Iterable[str], option: str) -> None:
    """Raise OptionError if a position names a stream that is not read."""
    strangers = [name for name, _ in position.streams if name not in set(streams)]
    if strangers:
        raise OptionError(
            f"option {option} names the stream {strangers[0]}, which is not read; read are {', '.join(streams)}"
        )


# -- lost ranges --------------------------------------------------------------------------------------------------


def clamp(span: Span, state: StreamState) -> tuple[Span, list[Gap]]:
    """Split `span` into the part that the stream still has, and the ranges that it no longer has."""
    if span.created and span.created != state.created:
        gone = Gap(span.stream, span.low, span.high, recreated(span.created, state.created))
        return replace(span, high=span.low), [gone] if span.count else []
    gaps = []
    low = min(max(span.low, state.first_seq), span.high)
    if low > span.low and not state.is_consumed:
        gaps.append(Gap(span.stream, span.low, low, f"the stream now begins at {state.first_seq}"))
    high = max(low, min(span.high, state.end))
    if high < span.high:
        gaps.append(Gap(span.stream, high, span.high, f"the stream now ends at {state.last_seq}"))
    return replace(span, low=low, high=high), gaps


def recreated(then: str, now: str) -> str:
    """Return the reason for a gap in a stream that was deleted and re-created."""
    return f"the stream was deleted and re-created (planned was the one of {then}, there is the one of {now})"


def reconcile(
    start: Mapping[str, StreamOffset], states: Mapping[str, StreamState]
) -> tuple[Offsets, list[Gap]]:
    """Return the position from which each stream continues, and the ranges lost since `start`.

    A new or re-created stream is read from its first message. The offset of a deleted stream is kept. An
    offset decreases only if the stream was re-created, or lost its end.
    """
    base: Offsets = {}
    gaps: list[Gap] = []
    for name in sorted({*start, *states}):
        at, state = start.get(name), states.get(name)
        if state is None:
            assert at is not None
            base[name] = at
            gaps.append(Gap(name, at.next, 0, "the stream is no longer there"))
        elif at is None:
            base[name] = StreamOffset(state.first_seq, state.created)
        else:
            base[name], gap = _go_on(at, state)
            gaps += gap
    return base, gaps


def _go_on(at: StreamOffset, state: StreamState) -> tuple[StreamOffset, list[Gap]]:
    if at.created != state.created:
        gap = Gap(state.name, at.next, 0, recreated(at.created, state.created))
        return StreamOffset(state.first_seq, state.created), [gap]
    if at.next < state.first_seq:
        gap = Gap(state.name, at.next, state.first_seq, f"the stream now begins at {state.first_seq}")
        return replace(at, next=state.first_seq), [] if state.is_consumed else [gap]
    if at.next > state.end:
        gap = Gap(state.name, state.end, at.next, f"the stream now ends at {state.last_seq}")
        return replace(at, next=state.end), [gap]
    return at, []


# -- limits of a batch ----------------------------------------------------------------------------------------------


def backlog(base: Mapping[str, StreamOffset], states: Mapping[str, StreamState]) -> dict[str, int]:
    """Return the number of sequences in each stream after its offset."""
    return {name: max(0, state.end - base[name].next) for name, state in states.items()}


def rows_of_bytes(size_max: int, counts: Mapping[str, int], states: Mapping[str, StreamState]) -> int:
    """Return the probable number of rows in `size_max` bytes, estimated from the mean message size of each stream.

    The result is at most the sum of `counts`.
    """
    rows = sum(counts.values())
    size = sum(
        count * states[name].size // states[name].messages
        for name, count in counts.items()
        if states[name].messages
    )
    return rows if size <= size_max else max(1, rows * size_max // size)


def share(rows_max: int, counts: Mapping[str, int]) -> dict[str, int]:
    """Return the number of rows of each stream, if `rows_max` rows are divided in proportion to the backlogs.

    Each stream with a backlog gets at least one row, if possible. `counts` has the backlogs.
    """
    total = sum(counts.values())
    if total <= rows_max:
        return dict(counts)
    waiting = sorted((name for name in counts if counts[name]), key=lambda name: (-counts[name], name))
    given = dict.fromkeys(counts, 0)
    for name in waiting[:rows_max]:
        given[name] = 1
    spare = rows_max - sum(given.values())
    rest = total - sum(given.values())
    for name in waiting:
        given[name] += (counts[name] - given[name]) * spare // rest
    for name in waiting:  # rows that the division left over, at most one for each stream
        more = min(rows_max - sum(given.values()), counts[name] - given[name])
        given[name] += more
    return given


def advance(base: Mapping[str, StreamOffset], rows: Mapping[str, int]) -> Offsets:
    """Return the offsets, each moved forward by the rows of its stream."""
    return {name: replace(at, next=at.next + rows.get(name, 0)) for name, at in base.items()}


def is_due(rows: int, rows_min: int | None, waited_s: float, delay_max_s: float) -> bool:
    """Return whether a batch of `rows` is large enough, or `waited_s` has reached `delay_max_s`."""
    return rows_min is None or rows >= rows_min or waited_s >= delay_max_s


# -- partitions -----------------------------------------------------------------------------------------------------


def between(start: Mapping[str, StreamOffset], end: Mapping[str, StreamOffset]) -> list[Span]:
    """Return the ranges between two offsets.

    A stream that is new in `end` is read from sequence 1.
    """
    spans = []
    for name, at in sorted(end.items()):
        was = start.get(name)
        low = was.next if was is not None and was.created == at.created else 1
        if low < at.next:
            spans.append(Span(name, low, at.next, at.created))
    return spans


def partitions(spans: Sequence[tuple[Span, StreamState]], cut: Cut) -> list[Span]:
    """Cut spans into the ranges of single tasks, in the order of streams and sequences.

    The number of ranges is `cut.partitions`, or lower if the ranges would then have fewer than `cut.rows_min`
    messages. No range has more than `cut.rows_max` sequences, unless most messages of a stream were deleted. Then the
    sequences of the remaining messages are unknown, and tasks for empty ranges would cost more than large tasks.
    """
    total = sum(span.count for span, _ in spans)
    pieces: list[Span] = []
    for span, state in spans:
        if span.count:
            wanted = -(-cut.partitions * span.count // total)
            pieces += split(span, _pieces(span, state, wanted, cut))
    return pieces


def _pieces(span: Span, state: StreamState, wanted: int, cut: Cut) -> int:
    rows, rows_max = min(span.count, state.messages), cut.rows_max
    if cut.rows_min:
        wanted = min(wanted, -(-rows // cut.rows_min))
    needed = min(-(-span.count // rows_max), SPARSE * -(-rows // rows_max)) if rows > rows_max else 1
    return min(max(wanted, needed, 1), span.count)


def split(span: Span, pieces: int) -> list[Span]:
    """Cut a span into `pieces` ranges whose sizes differ by at most one."""
    assert 1 <= pieces <= span.count
    cuts = [span.low + span.count * index // pieces for index in range(pieces + 1)]
    return [replace(span, low=low, high=high) for low, high in pairwise(cuts)]
