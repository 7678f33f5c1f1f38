"""The duplicate window, compared with a slow and simple one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyjs.jetstream.stream.dedupe import Dedupe


class PlainWindow:
    def __init__(self, window_ns: int) -> None:
        self.window_ns = window_ns
        self.seen: dict[bytes, tuple[int, int]] = {}

    def find(self, msg_id: bytes, now_ns: int) -> int:
        seq, at = self.seen.get(msg_id, (0, 0))
        return seq if at >= now_ns - self.window_ns else 0


def whole(window: Dedupe) -> bytes:
    return window.dump(0, len(window))


IDS = st.binary(min_size=1, max_size=3)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(IDS, st.integers(0, 30)), max_size=400))
def test_it_agrees_with_a_plain_window(steps: list[tuple[bytes, int]]) -> None:
    window, plain, now = Dedupe(100), PlainWindow(100), 1_000
    for seq, (msg_id, passed) in enumerate(steps, 1):
        now += passed
        assert window.find(msg_id, now) == plain.find(msg_id, now)
        if not plain.find(msg_id, now):
            window.add(msg_id, seq, now)
            plain.seen[msg_id] = (seq, now)


def test_many_ids_come_and_go() -> None:
    window = Dedupe(1_000)
    for i in range(50_000):
        window.add(b"id-%d" % i, i + 1, i)
        window.expire(i)
    assert len(window) == 1_001
    assert window.find(b"id-49999", 50_000) == 50_000
    assert window.find(b"id-1", 50_000) == 0
    window.expire(10**9)
    assert len(window) == 0
    window.add(b"again", 7, 10**9)
    assert window.find(b"again", 10**9) == 7


def test_a_dump_is_restored_and_goes_on() -> None:
    dedupe = Dedupe(1000)
    for number in range(500):
        dedupe.add(b"id-%d" % number, number + 1, number * 10)
    dedupe.expire(4000)
    again = Dedupe(1000)
    again.restore(dedupe.dump(0, 200), 200)
    assert len(again) == len(dedupe) == 200
    for number in range(500):
        assert again.find(b"id-%d" % number, 4000) == dedupe.find(b"id-%d" % number, 4000)
    for each in (dedupe, again):
        each.add(b"new", 501, 5000)
        assert (each.find(b"id-399", 5000), each.find(b"id-400", 5000), len(each)) == (0, 401, 101)
    assert whole(again) == whole(dedupe)


def test_what_is_no_dump_is_refused_and_leaves_nothing() -> None:
    dedupe = Dedupe(1000)
    dedupe.add(b"one", 1, 1)
    dedupe.add(b"two", 2, 2)
    data = whole(dedupe)
    for bad, count in ((data[:-1], 2), (data[:-4], 2), (data[:30], 2), (b"", 1), (data, 1 << 60)):
        again = Dedupe(1000)
        with pytest.raises(ValueError, match="message id"):
            again.restore(bad, count)
        assert len(again) == 0


@pytest.mark.parametrize("count", [1, 15, 16, 17, 64, 65, 5_000])
def test_a_restored_window_of_any_size_finds_and_forgets_as_before(count: int) -> None:
    window = Dedupe(1_000)
    for i in range(count):
        window.add(b"id-%d" % i, i + 1, i)
    restored = Dedupe(1_000)
    restored.restore(whole(window), count)

    window.add(b"another", count + 1, count)
    restored.add(b"another", count + 1, count)
    window.expire(count + 500)
    restored.expire(count + 500)

    assert len(restored) == len(window)
    ids = [b"id-%d" % i for i in range(count)] + [b"another", b"new"]
    assert [restored.find(each, count + 500) for each in ids] == [
        window.find(each, count + 500) for each in ids
    ]
    assert whole(restored) == whole(window)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 400), st.integers(0, 200), st.integers(1, 150))
def test_a_dump_in_parts_is_restored_like_one(count: int, forgotten: int, part: int) -> None:
    dedupe, again = Dedupe(1000), Dedupe(1000)
    for number in range(count):
        dedupe.add(b"id-%d" % number, number + 1, number * 10)
    dedupe.expire(1000 + forgotten * 10)
    for first in range(0, len(dedupe), part):
        size = min(part, len(dedupe) - first)
        again.restore(dedupe.dump(first, size), size)
    now = count * 10
    assert [again.find(b"id-%d" % n, now) for n in range(count)] == [
        dedupe.find(b"id-%d" % n, now) for n in range(count)
    ]
    again.add(b"one more", count + 1, now)
    assert again.find(b"one more", now) == count + 1


@pytest.mark.parametrize(("first", "count"), [(0, 4), (3, 1), (2, 2), (1, 2**64 - 1)])
def test_a_dump_of_more_than_there_is_is_refused(first: int, count: int) -> None:
    dedupe = Dedupe(1000)
    for number in range(3):
        dedupe.add(b"id-%d" % number, number + 1, 5)
    with pytest.raises(IndexError, match="there are 3 message ids"):
        dedupe.dump(first, count)
