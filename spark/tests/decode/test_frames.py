"""Publishes of rows and their acknowledgements: the plain and the compiled module give the same results."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyjs_spark.decode import frames
from pyjs_spark.decode.frames import ENOUGH, NEED_MORE, OTHER, Cells, Columns, Framing, HeaderCells, pub_ack

_frames = pytest.importorskip("pyjs_spark_fast.frames")
BOTH = pytest.mark.parametrize("module", [frames, _frames], ids=["plain", "compiled"])

INBOX = b"_INBOX.abc."
PLAIN = Framing(INBOX, b"out.x")
MARKED = Framing(INBOX, b"out.x", mark=b"pyjs:s:1:0:")
Headers = Sequence[tuple[bytes, Sequence[bytes]]]


def offsets(lengths: Sequence[int]) -> memoryview:
    ends = [0]
    for length in lengths:
        ends.append(ends[-1] + length)
    return memoryview(array("i", ends))


def cells(values: Sequence[bytes]) -> Cells:
    return offsets([len(value) for value in values]), memoryview(b"".join(values))


def header_cells(rows: Sequence[Headers]) -> HeaderCells:
    entries = [entry for row in rows for entry in row]
    values = [value for _, some in entries for value in some]
    return (
        offsets([len(row) for row in rows]),
        *cells([name for name, _ in entries]),
        offsets([len(some) for _, some in entries]),
        *cells(values),
    )


def sent(made: frames.Frames) -> list[bytes]:
    data, starts = bytes(made.data), [0, *made.ends[:-1]]
    return [data[start:end] for start, end in zip(starts, made.ends, strict=True)]


# -- publishes ----------------------------------------------------------------------------------------------------


@BOTH
def test_a_row_without_headers_is_a_pub(module: ModuleType) -> None:
    made = module.frame_rows(Columns(2, cells([b"one", b""])), 0, 2, PLAIN, 9)

    assert sent(made) == [b"PUB out.x _INBOX.abc.9 3\r\none\r\n", b"PUB out.x _INBOX.abc.10 0\r\n\r\n"]
    assert list(made.numbers) == [9, 10]


@BOTH
def test_a_row_with_everything(module: ModuleType) -> None:
    columns = Columns(
        2,
        cells([b"1", b"2"]),
        cells([b"a", b"b"]),
        header_cells([[(b"K", [b"x", b"y"]), (b"L", [b"z"])], []]),
        cells([b"", b"me"]),
        b"\0\1",
    )
    how = Framing(INBOX, mark=b"pyjs:s:1:0:", fixed=b"Nats-Expected-Stream: OUT\r\n")

    first, second = sent(module.frame_rows(columns, 0, 2, how, 0))

    assert first == (
        b"HPUB a _INBOX.abc.0 92 93\r\nNATS/1.0\r\nNats-Msg-Id: pyjs:s:1:0:0\r\nNats-Expected-Stream: OUT\r\n"
        b"K: x\r\nK: y\r\nL: z\r\n\r\n1\r\n"
    ).replace(b" 92 93", b" %d %d" % (size := first.index(b"\r\n\r\n") + 4 - first.index(b"NATS/"), size + 1))
    assert (
        b"\r\nNats-Msg-Id: me\r\nPyjs-Sink: pyjs:s:1:0:1\r\nNats-Expected-Stream: OUT\r\n\r\n2\r\n" in second
    )


@BOTH
def test_rows_that_are_skipped_keep_the_numbers_of_the_others(module: ModuleType) -> None:
    made = module.frame_rows(Columns(4, cells([b"0", b"1", b"2", b"3"])), 1, 4, PLAIN, 100, b"\0\0\1\0")

    assert [frame.split()[2] for frame in sent(made)] == [b"_INBOX.abc.101", b"_INBOX.abc.103"]
    assert list(made.numbers) == [101, 103]


@BOTH
def test_no_rows_are_no_frames(module: ModuleType) -> None:
    made = module.frame_rows(Columns(1, cells([b"0"])), 0, 1, PLAIN, 0, b"\1")

    assert (bytes(made.data), list(made.ends), list(made.numbers)) == (b"", [], [])


small = st.binary(max_size=12)
names = st.binary(min_size=1, max_size=5)


@st.composite
def batches(draw: st.DrawFn) -> tuple[Columns, int, int, bytes]:
    count = draw(st.integers(1, 6))
    column = st.lists(small, min_size=count, max_size=count)
    lists = st.lists(st.tuples(names, st.lists(small, max_size=3)), max_size=3)
    ids = draw(st.none() | column)
    flags = st.binary(min_size=count, max_size=count).map(lambda some: bytes(each & 1 for each in some))
    columns = Columns(
        count,
        cells(draw(column)),
        draw(st.none() | column.map(cells)),
        draw(st.none() | st.lists(lists, min_size=count, max_size=count).map(header_cells)),
        None if ids is None else cells(ids),
        draw(st.just(b"") | flags),
    )
    low = draw(st.integers(0, count))
    return columns, low, draw(st.integers(low, count)), draw(st.just(b"") | flags)


@settings(max_examples=500, deadline=None)
@given(
    batches(),
    st.sampled_from([b"", b"pyjs:s:1:0:"]),
    st.sampled_from([b"", b"F: x\r\n"]),
    st.integers(0, 2**50),
)
def test_both_make_the_same_frames(
    batch: tuple[Columns, int, int, bytes], mark: bytes, fixed: bytes, first: int
) -> None:
    columns, low, high, skip = batch
    how = Framing(INBOX, b"out.x", mark, fixed)

    plain = frames.frame_rows(columns, low, high, how, first, skip)
    compiled = _frames.frame_rows(columns, low, high, how, first, skip)

    assert bytes(compiled.data) == bytes(plain.data)
    assert (list(compiled.ends), list(compiled.numbers)) == (list(plain.ends), list(plain.numbers))


# -- acknowledgements ---------------------------------------------------------------------------------------------


def ack(row: int, seq: int, more: bytes = b"", sid: int = 7) -> bytes:
    payload = b'{"stream":"OUT", "seq":%d%b}' % (seq, more)
    return b"MSG %b%d %d %d\r\n%b\r\n" % (INBOX, row, sid, len(payload), payload)


def listening(module: ModuleType, rows: Sequence[int]) -> frames.Acks:
    acks: frames.Acks = module.Acks(INBOX)
    acks.listen(7)
    acks.learn(b'{"stream":"OUT", "seq":1}')
    acks.add(rows)
    return acks


@BOTH
def test_acknowledgements_are_counted_row_by_row(module: ModuleType) -> None:
    acks = listening(module, [5, 6, 8])
    data = bytearray(ack(6, 11) + ack(6, 11) + ack(7, 12) + ack(5, 10, b', "duplicate": true') + ack(8, 13))

    assert acks.decode(data, 0, len(data)) == len(data)
    assert (acks.state, acks.waiting, acks.last_seq, acks.duplicates) == (ENOUGH, 0, 13, 1)


@BOTH
def test_decoding_stops_when_few_enough_are_waited_for(module: ModuleType) -> None:
    acks = listening(module, [0, 1, 2])
    acks.enough = 1
    data = bytearray(ack(0, 1) + ack(1, 2) + ack(2, 3))

    assert acks.decode(data, 0, len(data)) == len(ack(0, 1) + ack(1, 2))
    assert [acks.is_waiting(row) for row in (-1, 0, 1, 2, 3)] == [False, False, False, True, False]


@BOTH
def test_an_acknowledgement_that_is_not_whole_asks_for_more(module: ModuleType) -> None:
    frame = ack(0, 1)
    for end in range(len(frame)):
        acks = listening(module, [0])
        data = bytearray(frame[:end])
        assert (acks.decode(data, 0, end), acks.state) == (0, NEED_MORE), end
        assert end < acks.need <= len(frame)


@BOTH
@pytest.mark.parametrize(
    "frame",
    [
        b"PING\r\n",
        b"HMSG _INBOX.abc.0 7 12 12\r\nNATS/1.0 503\r\n\r\n\r\n",
        ack(0, 1, sid=8),
        ack(0, 1, b', "val":"1"'),
        ack(0, 1, b', "duplicate": false'),
        ack(10**18, 1),
        ack(0, 10**18),
        b'MSG _INBOX.abc.0 7 14\r\n{"error":"no"}\r\n',
        b"MSG _INBOX.abd.0 7 0\r\n\r\n",
    ],
)
def test_anything_else_stops_the_decoder(module: ModuleType, frame: bytes) -> None:
    acks = listening(module, [0])
    data = bytearray(frame)

    assert (acks.decode(data, 0, len(data)), acks.state, acks.waiting) == (0, OTHER, 1)


@BOTH
def test_rows_can_be_settled_and_forgotten(module: ModuleType) -> None:
    acks = listening(module, [3, 4, 5])
    acks.settle(3, 9, True)
    acks.settle(3, 10, True)
    acks.settle(99, 11, True)
    assert (acks.waiting, acks.last_seq, acks.duplicates) == (2, 9, 1)

    acks.forget_before(4)
    acks.add([6])
    data = bytearray(ack(4, 20) + ack(5, 21) + ack(6, 22))
    acks.decode(data, 0, len(data))
    acks.forget_before(7)
    acks.forget_before(7)

    assert (acks.waiting, acks.last_seq) == (0, 22)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(0, 5), max_size=8),
    st.lists(
        st.sampled_from([b"", b', "duplicate": true', b',"duplicate":true', b', "x":1']),
        min_size=8,
        max_size=8,
    ),
    st.integers(0, 400),
    st.integers(0, 6),
)
def test_both_read_the_same(rows: list[int], more: list[bytes], cut: int, enough: int) -> None:
    data = bytearray(b"".join(ack(row, 100 + row, more[at]) for at, row in enumerate(rows)))
    end = max(0, len(data) - cut)
    found = []
    for module in (frames, _frames):
        acks = listening(module, [0, 1, 2, 3, 5])
        acks.enough = enough
        at = acks.decode(data, 0, end)
        waiting = [acks.is_waiting(row) for row in range(7)]
        need = acks.need if acks.state == NEED_MORE else 0
        found.append((at, acks.state, need, acks.waiting, acks.last_seq, acks.duplicates, waiting))

    assert found[0] == found[1]


def test_what_a_server_says_to_a_publish() -> None:
    full = b'{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"A","seq":0}'

    assert pub_ack(b'{"stream":"A","seq":3,"duplicate":true}') == ("A", 3, True, 0, 0, "")
    assert pub_ack(full) == ("A", 0, False, 503, 10077, "maximum messages exceeded")
    for wrong in (b"", b"+OK", b"[]", b'{"seq":"x"}', b'{"error":7}'):
        assert pub_ack(wrong) is None
