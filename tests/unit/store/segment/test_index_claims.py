"""Index files with a valid checksum that contradict their segment: the segment takes precedence."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.jetstream.jsfixture import JetStreamFixture
from tests.unit.store.file_state import open_store, state_of
from tests.unit.store.segment_files import IndexWriter, resealed

from pyjs.base.log import ListLog
from pyjs.jetstream.manage.scrub import SegmentStep
from pyjs.store.file.store import FileStore

SEGMENT_SIZE = 1000
ENTRY = struct.Struct("<QqIIIHHII")
Lie = Callable[[IndexWriter], None]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A cleanly stopped store of several segments, with gaps, removals, an erased message and headers."""
    store = open_store(tmp_path / "msgs", segment_size=SEGMENT_SIZE)
    for number in range(80):
        headers = b"NATS/1.0\r\nA: b\r\n\r\n" if number % 3 == 0 else b""
        subject = b"once" if number == 78 else b"s.%d" % (number % 5)
        store.store(subject, headers, b"payload-%d" % number, 1000 + number)
        if number % 10 == 4:
            store.skip_seq()
        if number % 7 == 6:
            store.flush()
            store.drop_seq(store.last_seq - 3, number == 27)
    store.drop_seq(1)
    store.drop_seq(2)
    store.close()
    return tmp_path / "msgs"


def changed(writer: IndexWriter, number: int, **values: int) -> None:
    """Change fields of one entry."""
    names = ("seq", "ts", "offset", "size", "header_len", "subject_len", "flags", "subject_id", "prev")
    fields = dict(zip(names, ENTRY.unpack(writer.entries[number]), strict=True))
    writer.entries[number] = ENTRY.pack(*{**fields, **values}.values())


def field(writer: IndexWriter, number: int, name: str) -> int:
    names = ("seq", "ts", "offset", "size", "header_len", "subject_len", "flags", "subject_id", "prev")
    return dict(zip(names, ENTRY.unpack(writer.entries[number]), strict=True))[name]


def messages(writer: IndexWriter) -> list[int]:
    return [number for number in range(len(writer.entries)) if field(writer, number, "flags") & 1]


def hide(writer: IndexWriter) -> None:
    """State that the message of the segment's rarest subject never existed."""
    name, (_, number, _, place) = next(
        (n, r) for n, r in writer.subjects.items() if r[0] >= 1 and r[1] == r[2]
    )
    size = field(writer, number, "size") + field(writer, number, "subject_len")
    writer.with_headers -= field(writer, number, "header_len") > 0
    changed(
        writer, number, offset=0, size=0, header_len=0, subject_len=0, flags=0, subject_id=0xFFFFFFFF, prev=0
    )
    writer.messages, writer.message_bytes = writer.messages - 1, writer.message_bytes - size
    del writer.subjects[name]
    for each in messages(writer):
        if field(writer, each, "subject_id") > place:
            changed(writer, each, subject_id=field(writer, each, "subject_id") - 1)


def raise_floor(writer: IndexWriter) -> None:
    writer.first_seq = writer.base_seq + len(writer.entries) - 1


def remove_more(writer: IndexWriter) -> None:
    writer.removals.append(writer.base_seq)


def remove_another(writer: IndexWriter) -> None:
    writer.removals[0] += 1


def forget_removals(writer: IndexWriter) -> None:
    writer.removals.clear()


def move_times(writer: IndexWriter) -> None:
    writer.first_ts, writer.last_ts = writer.first_ts + 1, writer.last_ts + 1


def drop_end(writer: IndexWriter) -> None:
    """State that the last message never existed, nor its sequence."""
    number = len(writer.entries) - 1
    hidden = ENTRY.unpack(writer.entries.pop())
    row = next(row for row in writer.subjects.values() if row[3] == hidden[7])
    row[0], row[2] = row[0] - 1, number - hidden[8]
    writer.messages, writer.message_bytes = writer.messages - 1, writer.message_bytes - hidden[3] - hidden[5]
    writer.with_headers -= hidden[4] > 0


def begin_between(writer: IndexWriter) -> None:
    """Make a message begin inside the previous one, with sizes that add up."""
    first, second = messages(writer)[:2]
    changed(writer, first, size=field(writer, first, "size") - 3)
    changed(
        writer,
        second,
        offset=field(writer, second, "offset") - 3,
        size=field(writer, second, "size") + 3,
    )


def swap_subjects(writer: IndexWriter) -> None:
    """Exchange the names of two subjects of equal length."""
    (a, first), (b, second), *rest = writer.subjects.items()
    writer.subjects = {b: first, a: second, **dict(rest)}


def change_time(writer: IndexWriter) -> None:
    number = messages(writer)[1]
    changed(writer, number, ts=field(writer, number, "ts") + 1)


AT_START: dict[str, tuple[int, Lie]] = {
    "a message that it does not know": (-1, hide),
    "a first sequence behind most messages": (2, raise_floor),
    "a removal that there never was": (2, remove_more),
    "the removal of another message": (2, remove_another),
    "no removals": (2, forget_removals),
    "other times": (2, move_times),
    "an open segment that ends sooner": (-1, drop_end),
}
WHEN_LOADED: dict[str, tuple[int, Lie]] = {
    "a message that begins in the one before": (2, begin_between),
    "subjects swapped": (2, swap_subjects),
    "a time": (2, change_time),
}


def tell_lie(directory: Path, number: int, lie: Lie) -> Path:
    """Make an index file contradict its segment; return its path."""
    segments = sorted(directory.glob("*.seg"))
    segment = segments[number]
    writer = IndexWriter(segment.read_bytes())
    path = segment.with_suffix(".idx")
    right = writer.data()
    lie(writer)
    assert writer.data() != right
    path.write_bytes(resealed(writer.data()))
    return path


def truth(directory: Path) -> dict[str, object]:
    copy = directory.with_name("truth")
    shutil.copytree(directory, copy)
    for path in copy.glob("*.idx"):
        path.unlink()
    store = open_store(copy, segment_size=SEGMENT_SIZE)
    state = state_of(store)
    store.close()
    return {**state, "segments": 0}


@pytest.mark.parametrize("name", AT_START)
def test_an_index_file_that_hides_messages_is_not_used(directory: Path, name: str) -> None:
    expected = truth(directory)
    path = tell_lie(directory, *AT_START[name])
    log = ListLog()
    store = open_store(directory, log, SEGMENT_SIZE)
    state = state_of(store)
    store.close()
    assert {**state, "segments": 0} == expected
    assert [str(path) in line for _, line in log.lines] == [True]


@pytest.mark.parametrize("name", WHEN_LOADED)
def test_a_wrong_index_file_is_found_when_a_message_is_loaded_and_nothing_is_lost(
    directory: Path, name: str
) -> None:
    expected = truth(directory)
    path = tell_lie(directory, *WHEN_LOADED[name])
    log, asked = ListLog(), []
    store = open_store(directory, log, SEGMENT_SIZE)
    store.examiner.on_mistake = lambda: asked.append(1)
    if name == "a time":  # no reader notices it
        step = SegmentStep(store.files.disk, store, 3)
        assert step() is None
        assert step.apply() == 1
    else:
        for seq in range(1, store.last_seq + 1):
            try:
                store.get(seq)
            except Exception as error:
                assert type(error).__name__ == "NotNow"  # noqa: PT017
    assert store.mistaken
    assert asked == [1]
    assert store.lost is None
    assert not path.exists()
    store.release()
    again = open_store(directory, log, SEGMENT_SIZE)
    assert {**state_of(again), "segments": 0} == expected
    again.close()


@pytest.mark.parametrize("name", WHEN_LOADED)
def test_the_check_in_the_background_finds_a_wrong_index_file(directory: Path, name: str) -> None:
    path = tell_lie(directory, *WHEN_LOADED[name])
    store = open_store(directory, segment_size=SEGMENT_SIZE)
    for number in store.sealed_numbers():
        step = SegmentStep(store.files.disk, store, number)
        assert step() is None
        assert step.apply() == (number == int(path.stem))
    assert store.mistaken
    assert store.lost is None
    store.close()


def test_an_index_file_of_another_beginning_tells_of_no_lost_end(directory: Path) -> None:
    """The index file states that the segment was longer, and is wrong about the part that exists."""
    segment = sorted(directory.glob("*.seg"))[-1]
    whole = segment.read_bytes()
    writer = IndexWriter(whole)
    begin_between(writer)
    cut = ENTRY.unpack(writer.entries[-1])[2]
    segment.write_bytes(whole[:cut])
    segment.with_suffix(".idx").write_bytes(writer.data())
    expected = truth(directory)
    store = open_store(directory, segment_size=SEGMENT_SIZE)
    assert {**state_of(store), "segments": 0} == expected
    assert store.lost is None
    store.close()


def test_a_stream_with_a_wrong_index_file_is_opened_again_and_serves_everything() -> None:
    js = JetStreamFixture()
    js.add("S", subjects=["s.>"], storage="file", max_bytes=1_000_000)
    for number in range(400):
        js.publish(f"s.{number % 4}", b"%03d" % number + b"x" * 1500)
    expected = js.payloads("S")
    js.node.stop()
    (files,) = Path(js.directory.name).rglob("msgs")
    tell_lie(files, 0, begin_between)
    tell_lie(files, 1, swap_subjects)
    js = js.restart()
    for seq in range(1, 401):
        js.ask("$JS.API.STREAM.MSG.GET.S", {"seq": seq})
        js.turn()
    assert js.payloads("S") == expected
    stream = js.stream("S").store
    assert isinstance(stream, FileStore)
    assert stream.lost is None
    assert "lost" not in js.state("S")
