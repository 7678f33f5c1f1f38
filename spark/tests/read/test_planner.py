"""Plans against both servers: positions, times, patterns, limits and losses."""

from __future__ import annotations

import logging
from collections.abc import Callable
from copy import copy

import pytest
from spark.tests.conftest import Filler
from tests.conformance.harness.process import ServerProcess

from pyjs_spark.errors import DataLoss, OptionError, StreamMissing
from pyjs_spark.nats.retry import PatientApi
from pyjs_spark.options.reading import parse_options
from pyjs_spark.read.offsets import Offsets
from pyjs_spark.read.planner import Planner
from pyjs_spark.read.pushdown import Bounds
from pyjs_spark.times import parse_rfc3339

MakePlanner = Callable[..., Planner]
ALWAYS = {"startingTimestamp": "2000-01-01T00:00:00Z", "endingTimestamp": "2100-01-01T00:00:00Z"}


@pytest.fixture
def planner(server: ServerProcess, filler: Filler) -> MakePlanner:
    """Make a planner for the test's stream with given options."""

    def make(**options: str) -> Planner:
        servers = f"nats://127.0.0.1:{server.port}"
        parsed = parse_options({"stream": filler.name, "servers": servers, **options})
        return Planner(parsed, PatientApi(parsed.connect, 5.0), parallelism=2)

    return make


def ranges(planner: Planner, bounds: Bounds | None = None) -> list[tuple[int, int]]:
    """Return the ranges of a batch."""
    return [(span.low, span.high) for span in planner.batch(bounds or Bounds())]


def beside(filler: Filler, name: str) -> Filler:
    """Return a filler for another stream that uses the same connection."""
    other = copy(filler)
    other.name, other.subject = name, name.lower().encode()
    return other


def nexts(offsets: Offsets) -> list[int]:
    return [at.next for _, at in sorted(offsets.items())]


def time_of(filler: Filler, seq: int) -> int:
    message = filler.api(f"STREAM.MSG.GET.{filler.name}", seq=seq)["message"]
    assert isinstance(message, dict)
    return parse_rfc3339(message["time"])


def latest(planner: Planner, start: Offsets, waited_s: float = 0.0, target: Offsets | None = None) -> Offsets:
    """Return the next offset as Spark requests it if an option sets a limit."""
    return planner.latest(start, is_limited=True, waited_s=waited_s, target=target)


# -- batch ----------------------------------------------------------------------------------------------------------


def test_a_batch_reads_what_is_there(planner: MakePlanner, filler: Filler) -> None:
    filler.create()
    filler.fill(10)

    assert ranges(planner()) == [(1, 11)]
    assert ranges(planner(minPartitions="2")) == [(1, 6), (6, 11)]
    assert ranges(planner(maxRecordsPerPartition="4")) == [(1, 4), (4, 7), (7, 11)]


def test_a_batch_of_an_empty_stream_reads_nothing(planner: MakePlanner, filler: Filler) -> None:
    filler.create()

    assert ranges(planner()) == []


def test_a_batch_begins_where_the_stream_does(planner: MakePlanner, filler: Filler) -> None:
    filler.create()
    filler.fill(10)
    filler.api(f"STREAM.PURGE.{filler.name}", seq=4)

    assert ranges(planner()) == [(4, 11)]


def test_a_batch_between_two_sequences(planner: MakePlanner, filler: Filler) -> None:
    filler.create()
    filler.fill(10)
    start, end = f'{{"{filler.name}": 3}}', f'{{"{filler.name}": 7}}'

    assert ranges(planner(startingOffsets=start, endingOffsets=end)) == [(3, 7)]
    with pytest.raises(OptionError, match="startingOffsets 7 lies after the read's end, 3"):
        ranges(planner(startingOffsets=end, endingOffsets=start))


def test_a_batch_between_two_times(planner: MakePlanner, filler: Filler) -> None:
    filler.create()
    filler.fill(10)
    third, seventh = time_of(filler, 3), time_of(filler, 7)
    first_of = {
        seq: min(at for at in range(1, 11) if time_of(filler, at) >= time_of(filler, seq)) for seq in (3, 7)
    }

    found = planner().batch(Bounds(low_ns=third, high_ns=seventh))

    assert [(span.low, span.high) for span in found] == [(first_of[3], first_of[7])]
    assert ranges(planner(**ALWAYS)) == [(1, 11)]
    assert ranges(planner(startingTimestamp="2100-01-01T00:00:00Z")) == []
    assert ranges(planner(endingTimestamp="2000-01-01T00:00:00Z")) == []


def test_a_time_between_deleted_messages_means_the_next_one_that_is_there(
    planner: MakePlanner, filler: Filler
) -> None:
    # In a block of 8 MiB, nats-server 2.15.1 finds only the last of the deleted messages, and so no message.
    filler.create(storage="file")
    filler.fill(12, size=1 << 20)
    times = [time_of(filler, seq) for seq in range(1, 13)]
    filler.delete(*range(5, 10))

    assert ranges(planner(), Bounds(low_ns=times[5])) == [(10, 13)]
    assert ranges(planner(), Bounds(low_ns=times[6])) == [(10, 13)]
    assert ranges(planner(), Bounds(high_ns=times[6])) == [(1, 10)]


def test_times_work_on_streams_that_no_consumer_may_read(planner: MakePlanner, filler: Filler) -> None:
    filler.create(retention="workqueue")
    filler.fill(10)

    assert ranges(planner(**ALWAYS)) == [(1, 11)]


def test_a_work_queue_that_others_read_meanwhile_is_no_loss(planner: MakePlanner, filler: Filler) -> None:
    filler.create(retention="workqueue")
    filler.fill(10)
    start = planner(startingOffsets="earliest").initial()
    filler.delete(1, 2, 3)

    assert nexts(latest(planner(), start)) == [11]
    assert [(span.low, span.high) for span in planner().between(start, latest(planner(), start))] == [(4, 11)]


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_a_stream_whose_consumers_remove_what_they_read_is_refused_to_them(
    planner: MakePlanner, filler: Filler, retention: str
) -> None:
    filler.create(retention=retention)
    said = f"option readMode=consumer: the stream {filler.name} is a work queue or interest stream"

    with pytest.raises(OptionError, match=said):
        planner(readMode="consumer").batch(Bounds())
    with pytest.raises(OptionError, match=said):
        planner(readMode="consumer").initial()
    assert ranges(planner(readMode="direct")) == []


def test_filters_narrow_a_batch(planner: MakePlanner, filler: Filler) -> None:
    filler.create()
    filler.fill(10)

    assert ranges(planner(), Bounds(seq_low=4, seq_high=6)) == [(4, 6)]
    assert ranges(planner(), Bounds(streams=frozenset({"OTHER"}))) == []
    assert ranges(planner(), Bounds(seq_low=6, seq_high=6)) == []


def test_sequences_that_are_gone_are_a_loss(
    planner: MakePlanner, filler: Filler, caplog: pytest.LogCaptureFixture
) -> None:
    filler.create()
    filler.fill(10)
    filler.api(f"STREAM.PURGE.{filler.name}", seq=6)
    positions = {"startingOffsets": f'{{"{filler.name}": 3}}', "endingOffsets": f'{{"{filler.name}": 11}}'}

    with pytest.raises(DataLoss, match=f"stream {filler.name}: messages .* are gone.*failOnDataLoss=false"):
        ranges(planner(**positions))
    with caplog.at_level(logging.WARNING, "pyjs_spark"):
        left = ranges(planner(**positions, failOnDataLoss="false"))

    assert left == [(6, 11)]
    assert "are gone" in caplog.text


@pytest.mark.parametrize("careless", [{}, {"failOnDataLoss": "false"}])
def test_a_start_behind_the_end_of_the_stream_is_refused_in_batches_and_queries(
    planner: MakePlanner, filler: Filler, careless: dict[str, str]
) -> None:
    filler.create()
    filler.fill(10)
    at_end, behind = ({"startingOffsets": f'{{"{filler.name}": {seq}}}'} for seq in (11, 12))
    said = f'startingOffsets={{"{filler.name}": 12}}: the last sequence of stream {filler.name} is 10; .* 11'

    with pytest.raises(OptionError, match=said):
        ranges(planner(**behind, **careless))
    with pytest.raises(OptionError, match=said):
        planner(**behind, **careless).initial()
    assert ranges(planner(**at_end, **careless)) == []
    assert nexts(planner(**at_end, **careless).initial()) == [11]


def test_an_end_behind_the_end_of_the_stream_is_refused_or_cut_off(
    planner: MakePlanner, filler: Filler, caplog: pytest.LogCaptureFixture
) -> None:
    filler.create()
    filler.fill(10)
    positions = {"endingOffsets": f'{{"{filler.name}": 30}}'}

    with pytest.raises(
        OptionError, match=f'endingOffsets={{"{filler.name}": 30}}: the last sequence of .* is 10'
    ):
        ranges(planner(**positions))
    with caplog.at_level(logging.WARNING, "pyjs_spark"):
        assert ranges(planner(**positions, failOnDataLoss="false")) == [(1, 11)]

    assert "the last sequence of stream" in caplog.text


def test_a_stream_that_is_not_there_is_named_with_the_closest(planner: MakePlanner, filler: Filler) -> None:
    filler.create()

    with pytest.raises(StreamMissing, match=f"there is no such stream; did you mean {filler.name}"):
        ranges(planner(stream=filler.name + "X"))


def test_a_pattern_reads_every_stream_that_fits(planner: MakePlanner, filler: Filler) -> None:
    other = beside(filler, f"{filler.name}_B")
    filler.create()
    filler.fill(3)
    other.create()
    other.fill(5)

    spans = planner(stream=f"{filler.name}*").batch(Bounds())

    assert [(span.stream, span.low, span.high) for span in spans] == [
        (filler.name, 1, 4),
        (other.name, 1, 6),
    ]
    with pytest.raises(StreamMissing, match="no stream has such a name"):
        planner(stream="NOTHING_*").batch(Bounds())
    with pytest.raises(OptionError, match=f"but not the stream {other.name}"):
        planner(stream=f"{filler.name}*", startingOffsets=f'{{"{filler.name}": 2}}').batch(Bounds())
    with pytest.raises(OptionError, match="names the stream ELSE, which is not read"):
        planner(startingOffsets='{"ELSE": 2}').batch(Bounds())


def test_there_may_be_more_streams_than_one_answer_names(planner: MakePlanner, filler: Filler) -> None:
    names = [f"{filler.name}_{number:04}" for number in range(1030)]
    for name in names:
        beside(filler, name).create()
    try:
        found = planner(stream=f"{filler.name}_*").newest()
    finally:
        for name in names:
            filler.api(f"STREAM.DELETE.{name}")

    assert sorted(found) == names


# -- streaming ------------------------------------------------------------------------------------------------------


def test_a_query_starts_at_the_end_or_where_it_is_told(planner: MakePlanner, filler: Filler) -> None:
    filler.create()
    filler.fill(10)

    assert nexts(planner().initial()) == [11]
    assert nexts(planner(startingOffsets="earliest").initial()) == [1]
    assert nexts(planner(startingOffsets=f'{{"{filler.name}": 5}}').initial()) == [5]
    assert nexts(planner(startingTimestamp="2000-01-01T00:00:00Z", startingOffsets="latest").initial()) == [1]


def test_a_query_that_would_start_in_the_future_is_refused(planner: MakePlanner, filler: Filler) -> None:
    # It would begin now, with messages from before that time.
    filler.create()
    filler.fill(3)

    with pytest.raises(OptionError, match=r"startingTimestamp lies in the future.*until 2100-01-01T00:00:00"):
        planner(startingTimestamp="2100-01-01T00:00:00Z").initial()


def test_what_was_told_is_not_remembered_forever(
    planner: MakePlanner, filler: Filler, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyjs_spark.read.planner.TOLD_MAX", 2)
    filler.create()
    filler.fill(10)
    made = planner(failOnDataLoss="false", startingOffsets="earliest")
    start = made.initial()

    with caplog.at_level(logging.WARNING, "pyjs_spark"):
        for seq in (3, 5, 7, 9):
            filler.api(f"STREAM.PURGE.{filler.name}", seq=seq)
            latest(made, start)

    assert caplog.text.count("are gone") == 4
    assert len(made._told) <= 2


@pytest.mark.parametrize("subject", ["0", "*,x.>"])
def test_other_subjects_that_leave_the_stream_before_the_first_message_asked_for_are_no_loss(
    planner: MakePlanner, filler: Filler, subject: str
) -> None:
    filler.create()
    filler.fill(9)
    if subject != "0":
        filler.delete(1, 2)
    made = planner(subjects=f"{filler.subject.decode()}.{subject}", startingOffsets="earliest")
    spans, start = made.batch(Bounds()), made.initial()
    filler.api(f"STREAM.PURGE.{filler.name}", seq=3)

    assert [(span.low, span.high) for span in spans] == [(3, 10)]
    assert nexts(start) == [3]
    assert nexts(latest(made, start)) == [10]
    assert made.between(start, latest(made, start)) == spans
    filler.api(f"STREAM.PURGE.{filler.name}", seq=4)
    with pytest.raises(DataLoss, match="messages 3 to 3 are gone"):
        latest(made, start)


def test_a_filter_that_nothing_passes_begins_at_the_end(planner: MakePlanner, filler: Filler) -> None:
    filler.create()
    filler.fill(9)
    nobody = Bounds(subjects=("nobody",))

    assert ranges(planner(), nobody) == []
    assert nexts(planner(subjects="nobody", startingOffsets="earliest").initial()) == [10]
    assert ranges(planner(), Bounds(subjects=tuple(f"nobody.{n}" for n in range(50)))) == [(1, 10)]


def test_limits_cut_a_batch(planner: MakePlanner, filler: Filler) -> None:
    filler.create()
    filler.fill(10, size=100)
    by_rows, by_bytes = planner(maxRowsPerTrigger="4"), planner(maxBytesPerTrigger="300")
    start = planner(startingOffsets="earliest").initial()

    assert nexts(latest(by_rows, start)) == [5]
    assert nexts(latest(by_rows, latest(by_rows, latest(by_rows, start)))) == [11]
    assert 2 <= nexts(latest(by_bytes, start))[0] <= 4
    assert nexts(by_rows.latest(start, is_limited=False, waited_s=0.0)) == [11]
    assert [(span.low, span.high) for span in by_rows.between(start, latest(by_rows, start))] == [(1, 5)]


def test_a_limit_does_not_count_what_was_deleted_or_filtered(planner: MakePlanner, filler: Filler) -> None:
    filler.create()
    filler.fill(10)
    filler.delete(1, 2, 3, 4, 5)
    start = planner(startingOffsets=f'{{"{filler.name}": 6}}').initial()
    filler.delete(7, 8, 9)
    filler.fill(5)

    after_six = latest(planner(maxRowsPerTrigger="1"), start)
    after_ten = latest(planner(maxRowsPerTrigger="1"), after_six)
    selective = planner(maxRowsPerTrigger="1", subjects=f"{filler.subject.decode()}.0")

    assert (nexts(after_six), nexts(after_ten)) == ([7], [11])
    assert nexts(latest(selective, after_ten)) == [14]


def test_a_small_batch_waits_for_more_or_for_its_time(planner: MakePlanner, filler: Filler) -> None:
    filler.create()
    filler.fill(3)
    slow = planner(minRowsPerTrigger="5", maxTriggerDelay="1m", startingOffsets="earliest")
    start = slow.initial()

    assert latest(slow, start, waited_s=59.0) == start
    assert nexts(latest(slow, start, waited_s=60.0)) == [4]
    assert nexts(latest(slow, start, target=slow.newest())) == [4]
    filler.fill(2)
    assert nexts(latest(slow, start)) == [6]


def test_a_query_with_a_target_reads_nothing_that_came_later(planner: MakePlanner, filler: Filler) -> None:
    filler.create()
    filler.fill(5)
    made = planner(startingOffsets="earliest")
    start, target = made.initial(), made.newest()
    filler.fill(5)

    end = made.latest(start, is_limited=False, waited_s=0.0, target=target)

    assert nexts(end) == [6]
    assert made.latest(end, is_limited=False, waited_s=0.0, target=target) == end


def test_messages_between_the_target_and_the_start_at_the_end_are_no_loss(
    planner: MakePlanner, filler: Filler
) -> None:
    filler.create()
    filler.fill(5)
    made = planner(stream=f"{filler.name}*", startingOffsets="latest")
    target = made.newest()  # Spark requests it first
    filler.fill(3)
    other = beside(filler, f"{filler.name}B")
    other.create()
    other.fill(2)
    try:
        start = made.initial()
        filler.fill(1)
        other.fill(1)

        assert nexts(start) == [9, 3]
        assert latest(made, start, target=target) == start
        assert made.latest(start, is_limited=False, waited_s=0.0, target=target) == start
    finally:
        other.raw.try_api(f"STREAM.DELETE.{other.name}")


def test_a_batch_that_comes_again_is_cut_the_same_way_whatever_came_meanwhile(
    planner: MakePlanner, filler: Filler
) -> None:
    filler.create()
    filler.fill(40)
    filler.delete(*range(2, 40))
    made = planner(startingOffsets="earliest", maxRecordsPerPartition="4")
    start = made.initial()
    end = latest(made, start)
    first = made.between(start, end)
    filler.fill(40)

    assert made.between(start, end) == first
    assert max(span.count for span in first) == 4


def test_a_checkpoint_of_other_streams_is_refused(planner: MakePlanner, filler: Filler) -> None:
    other = beside(filler, f"{filler.name}_B")
    filler.create()
    other.create()
    try:
        both = planner(stream=f"{filler.name}, {other.name}").initial()

        assert latest(planner(stream=f"{filler.name}*"), both) == both
        with pytest.raises(
            OptionError, match=f"has the stream {other.name}, which option stream={filler.name} does"
        ):
            latest(planner(), both)
        with pytest.raises(StreamMissing, match=f"did you mean {filler.name}"):
            latest(planner(stream=f"{filler.name}, {other.name}, {filler.name}X"), both)
    finally:
        other.raw.try_api(f"STREAM.DELETE.{other.name}")


def test_nothing_new_gives_the_same_offset(planner: MakePlanner, filler: Filler) -> None:
    filler.create()
    filler.fill(5)
    start = planner().initial()

    assert latest(planner(), start) == start
    assert planner().between(start, start) == []


def test_a_trimmed_stream_is_a_loss_and_told_once_in_the_log(
    planner: MakePlanner, filler: Filler, caplog: pytest.LogCaptureFixture
) -> None:
    filler.create()
    filler.fill(10)
    start = planner(startingOffsets="earliest").initial()
    filler.api(f"STREAM.PURGE.{filler.name}", seq=6)
    lenient = planner(failOnDataLoss="false")

    with pytest.raises(DataLoss, match="messages 1 to 5 are gone: the stream now begins at 6"):
        latest(planner(), start)
    with caplog.at_level(logging.WARNING, "pyjs_spark"):
        ends = [nexts(latest(lenient, start)) for _ in range(3)]

    assert ends == [[11]] * 3
    assert caplog.text.count("messages 1 to 5 are gone") == 1


def test_a_purge_between_plan_and_partitions_is_a_loss(planner: MakePlanner, filler: Filler) -> None:
    filler.create()
    filler.fill(10)
    start = planner(startingOffsets="earliest").initial()
    end = latest(planner(), start)
    filler.api(f"STREAM.PURGE.{filler.name}", seq=6)

    with pytest.raises(DataLoss, match="messages 1 to 5 are gone"):
        planner().between(start, end)
    kept = planner(failOnDataLoss="false").between(start, end)
    assert [(span.low, span.high) for span in kept] == [(6, 11)]


def test_a_recreated_stream_is_a_loss_and_is_read_from_its_beginning(
    planner: MakePlanner, filler: Filler
) -> None:
    filler.create()
    filler.fill(10)
    start = planner().initial()
    filler.api(f"STREAM.DELETE.{filler.name}")
    filler.create()
    filler.fill(3)
    lenient = planner(failOnDataLoss="false")

    with pytest.raises(DataLoss, match="deleted and re-created"):
        latest(planner(), start)
    end = latest(lenient, start)

    assert nexts(end) == [4]
    assert [(span.low, span.high) for span in lenient.between(start, end)] == [(1, 4)]


def test_a_recreated_stream_under_a_query_with_a_target_is_not_read(
    planner: MakePlanner, filler: Filler
) -> None:
    filler.create()
    filler.fill(10)
    lenient = planner(failOnDataLoss="false", startingOffsets="earliest")
    start, target = lenient.initial(), lenient.newest()
    filler.api(f"STREAM.DELETE.{filler.name}")
    filler.create()
    filler.fill(3)

    end = latest(lenient, start, target=target)

    assert nexts(end) == [1]
    assert latest(lenient, end, target=target) == end


def test_a_deleted_stream_is_a_loss(planner: MakePlanner, filler: Filler) -> None:
    filler.create()
    filler.fill(10)
    start = planner(startingOffsets="earliest").initial()
    end = latest(planner(), start)
    filler.api(f"STREAM.DELETE.{filler.name}")
    lenient = planner(failOnDataLoss="false")

    with pytest.raises(DataLoss, match="the stream is no longer there"):
        latest(planner(), start)
    with pytest.raises(DataLoss, match="messages 1 to 10 are gone: the stream is no longer there"):
        planner().between(start, end)

    assert latest(lenient, start) == start
    assert lenient.between(start, end) == []


def test_a_stream_that_comes_later_is_read_from_its_beginning(planner: MakePlanner, filler: Filler) -> None:
    other = beside(filler, f"{filler.name}_LATE")
    filler.create()
    made = planner(stream=f"{filler.name}*")
    start = made.initial()
    other.create()
    other.fill(5)
    other.api(f"STREAM.PURGE.{other.name}", seq=3)

    end = latest(made, start)

    assert nexts(end) == [1, 6]
    assert [(span.stream, span.low, span.high) for span in made.between(start, end)] == [(other.name, 3, 6)]
