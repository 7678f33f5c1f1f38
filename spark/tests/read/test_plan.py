"""Plans: ranges are complete, limits hold, offsets do not decrease, and losses are reported."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyjs_spark.errors import OptionError, SeqTooLarge
from pyjs_spark.options.values import Position
from pyjs_spark.read import plan
from pyjs_spark.read.offsets import Cut, StreamOffset
from pyjs_spark.read.plan import Gap, Span, StreamState

OLD, NEW = "2026-01-01T00:00:00Z", "2026-02-02T00:00:00Z"
SEQS = st.integers(1, 10**12)
NAMES = st.sampled_from(["A", "B", "C", "D"])


def stream(
    first: int, last: int, name: str = "S", created: str = OLD, messages: int | None = None
) -> StreamState:
    """The state of a stream whose messages have 100 bytes."""
    count = last + 1 - first if messages is None else messages
    return StreamState(name, created, first, last, count, 100 * count)


@st.composite
def streams(draw: st.DrawFn, name: str = "S") -> StreamState:
    first = draw(SEQS)
    last = first - 1 + draw(st.integers(0, 10**7))
    messages = draw(st.integers(min(1, last + 1 - first), last + 1 - first))
    return StreamState(name, draw(st.sampled_from([OLD, NEW])), first, last, messages, messages * 7)


@st.composite
def many_streams(draw: st.DrawFn) -> dict[str, StreamState]:
    return {name: draw(streams(name)) for name in draw(st.sets(NAMES))}


STARTS = st.dictionaries(NAMES, st.builds(StreamOffset, SEQS, st.sampled_from([OLD, NEW])))


# -- state ----------------------------------------------------------------------------------------------------------


def info(first: int, last: int) -> dict[str, object]:
    state = {"first_seq": first, "last_seq": last, "messages": 0, "bytes": 0}
    return {"created": OLD, "config": {"name": "S"}, "state": state}


@pytest.mark.parametrize(
    ("first", "last", "begins", "ends"), [(0, 0, 1, 1), (1, 0, 1, 1), (7, 6, 7, 7), (3, 6, 3, 7)]
)
def test_an_empty_stream_begins_where_it_ends(first: int, last: int, begins: int, ends: int) -> None:
    state = plan.state_of(info(first, last))

    assert (state.first_seq, state.end) == (begins, ends)


def test_sequences_that_spark_cannot_hold_are_refused() -> None:
    with pytest.raises(SeqTooLarge, match="sequence 9223372036854775807 is above"):
        plan.state_of(info(1, 2**63 - 1))


# -- positions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "seq"),
    [
        (Position("earliest"), 5),
        (Position("latest"), 10),
        (Position(streams=(("S", 7),)), 7),
        (Position(streams=(("S", "latest"),)), 10),
    ],
)
def test_a_position_is_a_sequence_in_the_stream(position: Position, seq: int) -> None:
    assert plan.seq_of(position, stream(5, 9), "startingOffsets") == seq


def test_a_position_must_name_every_stream_and_no_other() -> None:
    position = Position(streams=(("T", 7),))

    with pytest.raises(OptionError, match="names T but not the stream S"):
        plan.seq_of(position, stream(5, 9), "startingOffsets")
    with pytest.raises(OptionError, match="names the stream T, which is not read; read are S"):
        plan.check_named(position, ["S"], "startingOffsets")
    plan.check_named(position, ["T"], "startingOffsets")


# -- losses ---------------------------------------------------------------------------------------------------------


def test_what_was_trimmed_below_a_range_is_told() -> None:
    kept, gaps = plan.clamp(Span("S", 1, 20, OLD), stream(10, 30))

    assert (kept.low, kept.high) == (10, 20)
    assert [str(gap) for gap in gaps] == [
        "stream S: messages 1 to 9 are gone: the stream now begins at 10",
    ]


def test_a_range_that_was_trimmed_whole_is_told() -> None:
    kept, gaps = plan.clamp(Span("S", 1, 20, OLD), stream(100, 130))

    assert kept.count == 0
    assert gaps == [Gap("S", 1, 20, "the stream now begins at 100")]


def test_what_consumers_removed_is_no_loss() -> None:
    state = replace(stream(10, 30), is_consumed=True)

    kept, gaps = plan.clamp(Span("S", 1, 20, OLD), state)

    assert (kept.low, kept.high, gaps) == (10, 20, [])
    assert plan.reconcile({"S": StreamOffset(1, OLD)}, {"S": state}) == ({"S": StreamOffset(10, OLD)}, [])


def test_an_end_that_is_not_there_any_more_is_told() -> None:
    kept, gaps = plan.clamp(Span("S", 1, 20, OLD), stream(1, 15))

    assert (kept.low, kept.high) == (1, 16)
    assert gaps == [Gap("S", 16, 20, "the stream now ends at 15")]


def test_a_recreated_stream_has_nothing_of_a_range() -> None:
    kept, gaps = plan.clamp(Span("S", 1, 20, OLD), stream(1, 30, created=NEW))

    assert kept.count == 0
    assert "deleted and re-created" in gaps[0].why


@given(SEQS, st.integers(0, 10**7), streams())
def test_what_is_kept_and_what_is_lost_make_up_the_range(low: int, count: int, state: StreamState) -> None:
    span = Span("S", low, low + count, OLD)

    kept, gaps = plan.clamp(span, state)

    assert span.low <= kept.low <= kept.high <= span.high
    assert kept.count + sum(gap.high - gap.low for gap in gaps) == span.count


@given(streams(), st.data())
def test_a_range_inside_the_stream_loses_nothing(state: StreamState, data: st.DataObject) -> None:
    low = data.draw(st.integers(state.first_seq, state.end))
    span = Span("S", low, data.draw(st.integers(low, state.end)), state.created)

    assert plan.clamp(span, state) == (span, [])


def test_a_stream_that_has_gone_keeps_its_offset() -> None:
    base, gaps = plan.reconcile({"S": StreamOffset(5, OLD)}, {})

    assert base == {"S": StreamOffset(5, OLD)}
    assert str(gaps[0]) == "stream S: messages 5 and later are gone: the stream is no longer there"


def test_a_new_stream_is_read_from_its_first_message() -> None:
    assert plan.reconcile({}, {"S": stream(5, 9)}) == ({"S": StreamOffset(5, OLD)}, [])


def test_a_recreated_stream_is_read_from_its_first_message() -> None:
    base, gaps = plan.reconcile({"S": StreamOffset(500, OLD)}, {"S": stream(1, 9, created=NEW)})

    assert base == {"S": StreamOffset(1, NEW)}
    assert len(gaps) == 1


def test_a_stream_that_lost_its_end_goes_on_there() -> None:
    base, gaps = plan.reconcile({"S": StreamOffset(500, OLD)}, {"S": stream(1, 9)})

    assert base == {"S": StreamOffset(10, OLD)}
    assert gaps == [Gap("S", 10, 500, "the stream now ends at 9")]


@given(STARTS, many_streams(), st.integers(1, 10**6))
def test_offsets_never_go_back_without_a_loss_being_told(
    start: dict[str, StreamOffset], states: dict[str, StreamState], rows_max: int
) -> None:
    base, gaps = plan.reconcile(start, states)

    end = plan.advance(base, plan.share(rows_max, plan.backlog(base, states)))

    told = {gap.stream for gap in gaps}
    assert set(end) == {*start, *states}
    assert all(end[name].next >= start[name].next for name in start if name not in told)
    assert all(end[name].next <= max(state.end, base[name].next) for name, state in states.items())


@given(STARTS, many_streams())
def test_what_was_reconciled_once_has_no_further_loss(
    start: dict[str, StreamOffset], states: dict[str, StreamState]
) -> None:
    base, _ = plan.reconcile(start, states)

    again, gaps = plan.reconcile({name: base[name] for name in states}, states)

    assert again == {name: base[name] for name in states}
    assert gaps == []


# -- how much at a time ---------------------------------------------------------------------------------------------


@given(st.integers(1, 10**6), st.dictionaries(NAMES, st.integers(0, 10**6)))
def test_a_limit_is_used_up_and_never_exceeded(rows_max: int, counts: dict[str, int]) -> None:
    given_rows = plan.share(rows_max, counts)

    assert sum(given_rows.values()) == min(rows_max, sum(counts.values()))
    assert all(0 <= given_rows[name] <= counts[name] for name in counts)


@given(st.integers(4, 10**6), st.dictionaries(NAMES, st.integers(1, 10**9), min_size=1))
def test_no_stream_waits_while_others_are_read(rows_max: int, counts: dict[str, int]) -> None:
    assert all(plan.share(rows_max, counts).values())


def test_rows_are_shared_by_backlog() -> None:
    assert plan.share(100, {"A": 100, "B": 300}) == {"A": 25, "B": 75}


def test_bytes_become_rows_by_the_mean_message() -> None:
    states = {"A": stream(1, 1000, "A"), "B": stream(1, 0, "B")}

    assert plan.rows_of_bytes(5_000, {"A": 1000, "B": 0}, states) == 50
    assert plan.rows_of_bytes(1, {"A": 1000, "B": 0}, states) == 1
    assert plan.rows_of_bytes(10**9, {"A": 1000, "B": 0}, states) == 1000


@pytest.mark.parametrize(
    ("rows", "rows_min", "waited_s", "due"),
    [(0, None, 0.0, True), (9, 10, 0.0, False), (10, 10, 0.0, True), (9, 10, 60.0, True)],
)
def test_a_small_batch_waits_until_its_time(
    rows: int, rows_min: int | None, waited_s: float, due: bool
) -> None:
    assert plan.is_due(rows, rows_min, waited_s, 60.0) is due


def test_until_hides_what_came_later() -> None:
    state = stream(5, 90)

    assert (state.until(50).first_seq, state.until(50).end) == (5, 50)
    assert (state.until(3).first_seq, state.until(3).end) == (3, 3)
    assert state.until(100) == state


# -- partitions -----------------------------------------------------------------------------------------------------


@given(STARTS, STARTS)
def test_what_lies_between_offsets_starts_where_the_last_one_ended(
    start: dict[str, StreamOffset], end: dict[str, StreamOffset]
) -> None:
    for span in plan.between(start, end):
        was = start.get(span.stream)
        same = was is not None and was.created == span.created
        assert span.low == (was.next if same and was else 1)
        assert span.high == end[span.stream].next


def partitions(
    spans: list[tuple[Span, StreamState]], wanted: int | None, parallelism: int, rows_max: int
) -> list[Span]:
    """Cut spans by `minPartitions` or, without it, by Spark's parallelism."""
    least = 0 if wanted else plan.WORTHWHILE_ROWS
    return plan.partitions(spans, Cut(wanted or parallelism, least, rows_max))


@st.composite
def planned(draw: st.DrawFn) -> list[tuple[Span, StreamState]]:
    states = draw(many_streams())
    spans = []
    for name, state in sorted(states.items()):
        low = draw(st.integers(state.first_seq, state.end))
        spans.append((Span(name, low, draw(st.integers(low, state.end)), state.created), state))
    return spans


@given(planned(), st.none() | st.integers(1, 50), st.integers(1, 8), st.integers(10**4, 10**7))
def test_partitions_cover_exactly_and_never_overlap(
    spans: list[tuple[Span, StreamState]], partitions_min: int | None, cores: int, rows_max: int
) -> None:
    cut = partitions(spans, partitions_min, cores, rows_max)

    for span, state in spans:
        mine = [part for part in cut if part.stream == span.stream]
        assert [part.low for part in mine[1:]] == [part.high for part in mine[:-1]]
        assert not span.count or (mine[0].low, mine[-1].high) == (span.low, span.high)
        dense = span.count <= plan.SPARSE * state.messages
        assert all(0 < min(part.count, state.messages) <= rows_max for part in mine if dense)
        assert all(part.created == span.created for part in mine)


@given(planned(), st.integers(1, 50))
def test_there_are_as_many_partitions_as_asked_for(
    spans: list[tuple[Span, StreamState]], partitions_min: int
) -> None:
    cut = partitions(spans, partitions_min, 1, 10**9)

    assert len(cut) >= min(partitions_min, sum(span.count for span, _ in spans))


def test_without_a_wish_small_reads_are_not_cut() -> None:
    small, large = stream(1, 500), stream(1, 100_000)

    assert len(partitions([(Span("S", 1, 501, OLD), small)], None, 8, 10**6)) == 1
    assert len(partitions([(Span("S", 1, 100_001, OLD), large)], None, 8, 10**6)) == 8


def test_a_wide_range_with_few_messages_is_one_partition() -> None:
    sparse = stream(1, 10**9, messages=1000)

    assert len(partitions([(Span("S", 1, 10**9 + 1, OLD), sparse)], None, 8, 500_000)) == 1


def test_gaps_between_messages_do_not_become_tasks() -> None:
    sparse = stream(1, 10**12, messages=10**6)

    assert len(partitions([(Span("S", 1, 10**12 + 1, OLD), sparse)], None, 2, 500_000)) == 8
