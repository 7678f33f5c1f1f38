"""Plans of one read, from the server's answers, the options, and the pure rules of `plan.py`.

This module does not use Spark: `readers.py` turns its spans into partitions. Between calls, a planner keeps only the
list of reported losses; so the same offsets give the same plan in every process.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

from pyjs_spark.errors import DataLoss, OptionError, StreamMissing, no_consumer
from pyjs_spark.nats import buckets
from pyjs_spark.options.reading import EARLIEST, LATEST, Options, check_batch
from pyjs_spark.options.values import Position
from pyjs_spark.read import lookup, plan
from pyjs_spark.read.lookup import Api, api_of
from pyjs_spark.read.offsets import Cut, Offsets, StreamOffset
from pyjs_spark.read.plan import Gap, Span, StreamState
from pyjs_spark.read.pushdown import Bounds
from pyjs_spark.times import NS_PER_S, format_rfc3339

LOG = logging.getLogger("pyjs_spark")
SKEW_NS = 60 * NS_PER_S  # a time in the options may come from a clock that is ahead by up to this
# maximum number of subjects for which the first message is requested, with one request each
SUBJECTS_MAX = 20
# maximum number of log lines about losses: a query that runs for months may lose messages every second
TOLD_MAX = 1000
ADVICE = (
    "To go on without them set failOnDataLoss=false; to keep messages until they are read raise the stream's limits "
    "(max_age, max_bytes, max_msgs) or read more often; after a stream was re-created use a new checkpoint."
)


class LossCount:
    """The number of lost sequences of each stream in a query.

    A gap that several plans find is counted once.
    """

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._ends: dict[str, int] = {}  # stream -> sequence below which all lost sequences are counted

    def add(self, gap: Gap) -> None:
        """Count the new part of a gap; a gap without a known end counts as zero."""
        low = max(gap.low, self._ends.get(gap.stream, 0))
        if low < gap.high:
            self.counts[gap.stream] = self.counts.get(gap.stream, 0) + gap.high - low
            self._ends[gap.stream] = gap.high

    def begin_again(self, stream: str) -> None:
        """Forget which sequences of a re-created stream were counted, since its sequences begin at 1 again."""
        self._ends.pop(stream, None)


class Planner:
    """A planner of reads with one set of options."""

    def __init__(self, options: Options, api: Api, parallelism: int = plan.PARALLELISM) -> None:
        """Initialize the planner; `parallelism` is the number of tasks if the options do not set it."""
        self.options = options
        self.cut = Cut(
            options.min_partitions or parallelism,
            0 if options.min_partitions else plan.WORTHWHILE_ROWS,
            options.max_records_per_partition,
        )
        self._api = api
        self.losses = LossCount()
        self._told: set[str] = set()  # losses already logged; a query finds them again many times a second

    # -- batch ------------------------------------------------------------------------------------------------------

    def batch(self, bounds: Bounds) -> list[Span]:
        """Return the ranges of a batch read.

        Raises:
            StreamMissing: a named stream does not exist, or no stream matches the patterns.
            OptionError: a position does not fit the streams.
            DataLoss: messages were removed meanwhile, and failOnDataLoss is set.
        """
        if bounds.is_empty:
            return []
        states = self.states()
        if bounds.streams is not None:
            states = {name: state for name, state in states.items() if name in bounds.streams}
        spans = [span for state in states.values() if (span := self._bounded(state, bounds)) is not None]
        return self._partitions(spans, states, self.cut)

    def _bounded(self, state: StreamState, bounds: Bounds) -> Span | None:
        subjects = self.options.subjects if bounds.subjects is None else bounds.subjects
        low, high = self._first(state, EARLIEST, subjects), self._last(state)
        if low > high and isinstance(dict(self._starting(EARLIEST).streams).get(state.name), int):
            raise OptionError(f"stream {state.name}: startingOffsets {low} lies after the read's end, {high}")
        low, high = max(low, bounds.seq_low), min(high, bounds.seq_high)
        if bounds.low_ns is not None:
            low = max(low, lookup.seq_at(self._api, state, bounds.low_ns))
        if bounds.high_ns is not None:
            high = min(high, lookup.seq_at(self._api, state, bounds.high_ns))
        return Span(state.name, low, high, state.created) if low < high else None

    def _last(self, state: StreamState) -> int:
        options = self.options
        end_ns = plan.time_of(options.ending_ns, options.ending_times, state.name, "endingOffsetsByTimestamp")
        if end_ns is not None:
            return lookup.seq_at(self._api, state, end_ns)
        high = plan.seq_of(self.options.ending_offsets, state, "endingOffsets")
        if high > state.end:
            text = self._not_there("endingOffsets", high, state)
            if self.options.fail_on_data_loss:
                raise OptionError(f"{text}, latest, or set failOnDataLoss=false to read what is there")
            self._tell(text)
        return min(high, state.end)

    def _first(self, state: StreamState, default: Position, subjects: tuple[str, ...]) -> int:
        start_ns = self._start_ns(state.name)
        if start_ns is not None:
            return lookup.seq_at(self._api, state, start_ns)
        position = self._starting(default)
        low = plan.seq_of(position, state, "startingOffsets")
        is_told = isinstance(dict(position.streams).get(state.name), int)
        if low == state.first_seq and not is_told:
            return self._first_of(state, subjects)
        if low > state.end:  # the next message will have a lower sequence
            raise OptionError(f"{self._not_there('startingOffsets', low, state)}, the one that comes next")
        return low

    def _first_of(self, state: StreamState, subjects: tuple[str, ...]) -> int:
        """Return the first sequence with one of the subjects; messages removed before it are no loss."""
        is_useful = 0 < len(subjects) <= SUBJECTS_MAX and not state.is_consumed and self.options.path is None
        first_seq = state.first_seq
        return lookup.next_seq(self._api, state, first_seq, subjects) if is_useful else first_seq

    def _not_there(self, option: str, seq: int, state: StreamState) -> str:
        """Return the start of the error message for a position after the end of a stream."""
        name = state.name.removeprefix(buckets.KV_PREFIX) if self.options.buckets else state.name
        last = f"the last sequence of stream {state.name} is {state.last_seq}"
        return f'option {option}={{"{name}": {seq}}}: {last}; give at most {state.end}'

    def _start_ns(self, name: str) -> int | None:
        options = self.options
        return plan.time_of(options.starting_ns, options.starting_times, name, "startingOffsetsByTimestamp")

    def _starting(self, default: Position) -> Position:
        has_time = self.options.starting_ns is not None or self.options.starting_times
        return default if has_time else self.options.starting_offsets or default

    # -- streaming --------------------------------------------------------------------------------------------------

    def initial(self) -> Offsets:
        """Return the offset at which a new query starts.

        Raises:
            StreamMissing: a named stream does not exist, or no stream matches the patterns.
            OptionError: a position does not fit the streams, or a start time is in the future.
        """
        option = "startingTimestamp" if self.options.starting_ns is not None else "startingOffsetsByTimestamp"
        start_ns = max((self.options.starting_ns or 0, *(at for _, at in self.options.starting_times)))
        if start_ns > time.time_ns() + SKEW_NS:
            raise OptionError(
                f"option {option} lies in the future: a query would begin now, with what comes until "
                f"{format_rfc3339(start_ns)}; leave it out, or give a time that has been"
            )
        states = self.states()
        return {
            name: StreamOffset(self._first(state, LATEST, self.options.subjects), state.created)
            for name, state in states.items()
        }

    def newest(self) -> Offsets:
        """Return the current end of every stream."""
        return {name: StreamOffset(state.end, state.created) for name, state in self._states().items()}

    def latest(
        self, start: Offsets, *, is_limited: bool, waited_s: float, target: Offsets | None = None
    ) -> Offsets:
        """Return the end of the next batch, or `start` if there are no messages, or too few.

        `waited_s` is the time since the last batch, in seconds. `target` is the end of a query that reads only
        messages that were present when the query started.

        Raises:
            DataLoss: messages after `start` no longer exist, and failOnDataLoss is set.
            OptionError, StreamMissing: the options select other streams than `start` has, or name a missing stream.
        """
        self._check_known(start)
        states = self._states(known=start)
        self._check_there(states, start)
        if target is not None:
            states = {
                name: _until(state, (target.get(name), start.get(name)))
                for name, state in states.items()
                if name in target or name in start
            }
        for name, at in start.items():
            if name in states and states[name].created != at.created:
                self.losses.begin_again(name)
        base, gaps = plan.reconcile(start, states)
        self._lost(gaps)
        counts = plan.backlog(base, states)
        if not is_limited:
            return plan.advance(base, counts)
        least = self.options.min_rows_per_trigger if target is None else None
        if not plan.is_due(sum(counts.values()), least, waited_s, self.options.max_trigger_delay_s):
            return dict(start)
        return self._limited(base, counts, states)

    def _limited(
        self, base: Offsets, counts: Mapping[str, int], states: Mapping[str, StreamState]
    ) -> Offsets:
        rows_max = self.options.max_rows_per_trigger or sum(counts.values())
        if self.options.max_bytes_per_trigger is not None:
            rows_max = min(rows_max, plan.rows_of_bytes(self.options.max_bytes_per_trigger, counts, states))
        if sum(counts.values()) <= rows_max:
            return plan.advance(base, counts)
        near = {name: self._past_holes(base[name], state) for name, state in states.items()}
        return plan.advance({**base, **near}, plan.share(rows_max, plan.backlog(near, states)))

    def _past_holes(self, at: StreamOffset, state: StreamState) -> StreamOffset:
        """Return the offset of the next existing message that matches the subjects.

        So deleted and filtered messages do not count towards a limit.
        """
        is_dense = state.messages >= state.end - state.first_seq and not self.options.subjects
        if is_dense or at.next >= state.end:
            return at
        return replace(at, next=lookup.next_seq(self._api, state, at.next, self.options.subjects))

    def between(self, start: Offsets, end: Offsets, cut: Cut | None = None) -> list[Span]:
        """Return the ranges between two offsets, cut into tasks as in a batch read.

        Raises:
            DataLoss: messages were lost, and failOnDataLoss is set.
        """
        spans = plan.between(start, end)
        states = self._states_of(span.stream for span in spans)
        self._lost(
            Gap(span.stream, span.low, span.high, "the stream is no longer there")
            for span in spans
            if span.stream not in states
        )
        there = [span for span in spans if span.stream in states]
        # The cut uses only sequences. The number of messages changes, but a repeated batch must be cut in the same
        # way, since a sink recognises its rows by their partitions.
        full = {name: replace(state, messages=state.end) for name, state in states.items()}
        return self._partitions(
            [_from_first(span, start, states[span.stream]) for span in there], full, cut or self.cut
        )

    # -- both -------------------------------------------------------------------------------------------------------

    def _partitions(self, spans: Iterable[Span], states: Mapping[str, StreamState], cut: Cut) -> list[Span]:
        kept: list[tuple[Span, StreamState]] = []
        gaps: list[Gap] = []
        for span in spans:
            state = states[span.stream]
            left, lost = plan.clamp(span, state)
            kept.append((left, state))
            gaps += lost
        self._lost(gaps)
        return plan.partitions(kept, cut)

    def _lost(self, gaps: Iterable[Gap]) -> None:
        found = list(gaps)
        told = [str(gap) for gap in found]
        if told and self.options.fail_on_data_loss:
            raise DataLoss(f"{'; '.join(told)}. {ADVICE}")
        for gap, line in zip(found, told, strict=True):
            self.losses.add(gap)
            self._tell(line)

    def _tell(self, line: str) -> None:
        """Log a finding that does not end the read, unless the same finding was logged before."""
        if line not in self._told:
            if len(self._told) >= TOLD_MAX:
                self._told.clear()
            self._told.add(line)
            LOG.warning("%s; going on, as failOnDataLoss=false says", line)

    def states(self) -> dict[str, StreamState]:
        """Return the states of all streams that the options select.

        Raises:
            StreamMissing: a named stream does not exist, or no stream matches the patterns.
            OptionError: a position names a stream that is not selected.
        """
        states = self._states()
        self._check_there(states)
        if not states:
            raise self._missing(self.options.streams[0])
        for position, option in (
            (self.options.starting_offsets, "startingOffsets"),
            (self.options.ending_offsets, "endingOffsets"),
            (Position(streams=self.options.starting_times), "startingOffsetsByTimestamp"),
            (Position(streams=self.options.ending_times), "endingOffsetsByTimestamp"),
        ):
            if position is not None:
                plan.check_named(position, states, option)
        return states

    def _check_there(self, states: Mapping[str, StreamState], known: Iterable[str] = ()) -> None:
        """Raise StreamMissing if the options name a stream that neither exists nor is in `known`."""
        for wanted in self.options.streams:
            if not lookup.is_pattern(wanted) and wanted not in states and wanted not in known:
                raise self._missing(wanted)

    def _missing(self, name: str) -> StreamMissing:
        """Return the error for a stream name or pattern in the options that matches no stream."""
        return lookup.missing(self._api, name)

    def _check_known(self, start: Offsets) -> None:
        """Raise OptionError if a checkpoint has streams that the options do not select."""
        for name in start:
            if not any(lookup.fits(wanted, name) for wanted in self.options.streams):
                option = "bucket" if self.options.buckets else "stream"
                said = ",".join(self.options.buckets or self.options.streams)
                raise OptionError(
                    f"the checkpoint has the stream {name}, which option {option}={said} does not name; add it, or "
                    "begin with a new checkpoint directory"
                )

    def _states(self, known: Iterable[str] = ()) -> dict[str, StreamState]:
        return self._states_of({*known, *lookup.stream_names(self._api, self.options.streams)})

    def _states_of(self, names: Iterable[str]) -> dict[str, StreamState]:
        found = {name: lookup.stream_state(self._api, name) for name in sorted(set(names))}
        there = {name: state for name, state in found.items() if state is not None}
        for name, state in there.items():
            if state.is_consumed and self.options.read_mode == "consumer":
                raise no_consumer(name)
        return there


def _until(state: StreamState, offsets: Iterable[StreamOffset | None]) -> StreamState:
    """Return the state as if the stream ended at the last of these offsets.

    The offsets are the target and the start of a query. The start is after the target if the query starts at the end
    of the stream, and messages arrived after the target was set. A stream that was re-created since then has no
    messages to read.
    """
    ends = [at.next for at in offsets if at is not None and at.created == state.created]
    return state.until(max(ends, default=state.first_seq))


def _from_first(span: Span, start: Offsets, state: StreamState) -> Span:
    """Return the span without messages that were removed before this query knew the stream.

    The span is unchanged if its stream is not new to the query.
    """
    was = start.get(span.stream)
    if was is not None and was.created == span.created:
        return span
    return replace(span, low=max(span.low, min(state.first_seq, span.high)))


def spans_of(options: Options) -> list[Span]:
    """Return the range of each stream that a batch read selects; a range may be empty.

    Raises:
        SparkError: an error of the read, such as OptionError or StreamMissing.
    """
    check_batch(options)
    api = api_of(options)
    found: dict[str, Span] = {}
    for span in Planner(replace(options, min_partitions=1), api).batch(Bounds()):
        first = found.setdefault(span.stream, span)
        found[span.stream] = replace(first, high=span.high)
    names = lookup.stream_names(api, options.streams)
    return [found.get(name, Span(name, 1, 1, "")) for name in names]
