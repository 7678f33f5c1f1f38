"""The position of a consumer in its stream, with a store in memory."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.support.packed import pack

from pyjs.jetstream.consumer.delivery.cursor import DeliveryCursor, Skips
from pyjs.store.memory import MemStore


class CursorFixture:
    """A cursor over the messages of subject `a`, and its store."""

    def __init__(self, subjects: str = "", skips: tuple[int, ...] = ()) -> None:
        self.store = MemStore()
        self.store.catalogue.drops.tracked = True
        self.fill(subjects)
        self.cursor = DeliveryCursor(self.store)
        self.cursor.set_filters((b"a",))
        self.cursor.begin(1, Skips(pack(skips)), max(skips, default=0))

    def fill(self, subjects: str) -> None:
        """Store a message for each subject; each letter of `subjects` is one."""
        for subject in subjects:
            self.store.store(subject.encode(), b"", b"", 1)

    def take(self) -> int:
        """Deliver the next message; return its sequence, or 0 if there is none."""
        seq = self.cursor.find()
        if seq:
            self.cursor.pass_by(seq)
        return seq

    def take_all(self) -> list[int]:
        """Deliver all available messages; return their sequences."""
        return list(iter(self.take, 0))

    def remove(self, seq: int, *, told: bool = True) -> None:
        """Remove a message, and notify the cursor now if `told`."""
        self.store.drop_seq(seq)
        if told:
            self.tell()

    def tell(self) -> None:
        """Notify the cursor of removals that match its filter."""
        for seq, subject in self.store.catalogue.drops.take():
            if subject == b"a":
                self.cursor.dropped(seq)


# -- which is next ---------------------------------------------------------------------------------------------


def test_matches_come_in_order_and_then_none() -> None:
    assert CursorFixture("abaab").take_all() == [1, 3, 4]


def test_a_search_without_a_match_stands_behind_the_end() -> None:
    at = CursorFixture("abb")
    at.take_all()

    assert at.cursor.next_seq == 4


def test_what_comes_after_the_end_is_found() -> None:
    at = CursorFixture("ab")
    at.take_all()
    at.fill("ba")

    assert at.take_all() == [4]


def test_the_last_of_each_subject_come_first_and_nothing_else_up_to_there() -> None:
    at = CursorFixture("aaaaa", skips=(2, 4))

    assert at.take_all() == [2, 4, 5]


def test_a_wake_passes_what_is_no_match() -> None:
    at = CursorFixture("ab")
    at.take_all()
    at.fill("bbba")

    at.cursor.woken(6)

    assert at.cursor.next_seq == 6
    assert (at.cursor.num_pending(), at.take()) == (1, 6)


@pytest.mark.parametrize("seq", [0, 2], ids=["unknown", "behind"])
def test_a_wake_that_says_nothing_new_moves_nothing(seq: int) -> None:
    at = CursorFixture("ab")
    at.take_all()

    at.cursor.woken(seq)

    assert at.cursor.next_seq == 3


def test_a_wake_while_matches_are_left_moves_nothing() -> None:
    at = CursorFixture("aaa")
    at.take()

    at.cursor.woken(9)

    assert at.take() == 2


def test_a_purge_moves_the_cursor_forward_only() -> None:
    at = CursorFixture("aaaaaa")
    at.take()

    at.cursor.purged(4)
    at.cursor.purged(2)

    assert at.cursor.next_seq == 4


@pytest.mark.parametrize(("last", "found"), [(1, 2), (3, 3), (9, 3)])
def test_a_cursor_past_the_end_goes_back_to_behind_it(last: int, found: int) -> None:
    at = CursorFixture("aa")
    at.take_all()

    at.cursor.fit(last)

    assert at.cursor.next_seq == found


def test_a_cursor_before_the_first_message_goes_on_to_it() -> None:
    at = CursorFixture("aaa")
    at.remove(1)
    at.remove(2)

    at.cursor.fit(3)

    assert at.cursor.next_seq == 3


# -- how many are left -----------------------------------------------------------------------------------------


def test_a_removal_that_is_told_late_is_counted_once() -> None:
    at = CursorFixture("aaa")
    at.remove(2, told=False)

    before = at.cursor.num_pending()
    at.tell()

    assert (before, at.cursor.num_pending()) == (2, 2)


def test_a_removal_after_the_count_is_subtracted_when_it_is_told() -> None:
    at = CursorFixture("aaa")
    counted = at.cursor.num_pending()
    at.remove(2, told=False)

    before = at.cursor.num_pending()
    at.tell()

    assert (counted, before, at.cursor.num_pending()) == (3, 3, 2)


def test_what_is_passed_by_is_counted_no_more() -> None:
    at = CursorFixture("abaa")
    before = at.cursor.num_pending()

    at.take()

    assert (before, at.cursor.num_pending()) == (3, 2)


def test_a_removal_behind_first_ones_is_counted() -> None:
    at = CursorFixture("aaaa", skips=(2, 3))
    before = at.cursor.num_pending()

    at.remove(4)

    assert (before, at.cursor.num_pending()) == (3, 2)


def test_a_count_made_elsewhere_is_believed() -> None:
    at = CursorFixture("aab")

    at.cursor.take_count(2, 3)

    assert at.cursor.num_pending() == 2


@pytest.mark.parametrize("why", ["it has moved", "there are first ones", "a removal is not told yet"])
def test_a_count_made_elsewhere_is_not_believed(why: str) -> None:
    at = CursorFixture("aab", skips=(1,) if why == "there are first ones" else ())
    if why == "it has moved":
        at.take()
    elif why == "a removal is not told yet":
        at.remove(1, told=False)
        at.fill("a")

    at.cursor.take_count(7, 3)

    assert at.cursor.num_pending() < 3


def test_a_count_that_is_read_between_the_steps_of_a_removal_stays_exact() -> None:
    at = CursorFixture("aaaa")
    assert at.cursor.num_pending() == 4
    at.store.changing = True
    at.remove(1, told=False)
    assert at.cursor.num_pending() == 3  # as a monitoring page reads it
    at.tell()
    at.store.changing = False
    assert at.cursor.num_pending() == 3


class CursorMachine(RuleBasedStateMachine):
    """Compares `num_pending` with the number of messages that the store has after the cursor.

    The consumer first delivers the messages in `skips`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.at = CursorFixture()
        self.live: dict[int, str] = {}
        self.skips: set[int] = set()

    @initialize(subjects=st.text("ab", max_size=12), chosen=st.sets(st.integers(1, 12)))
    def begin(self, subjects: str, chosen: set[int]) -> None:
        """Begin with some of the messages, as a consumer with `last_per_subject` does."""
        self.publish(subjects)
        self.skips = {seq for seq in chosen if self.live.get(seq) == "a"}
        self.at.cursor.begin(1, Skips(pack(sorted(self.skips))), max(self.skips, default=0))

    @rule(subjects=st.text("ab", min_size=1, max_size=5))
    def publish(self, subjects: str) -> None:
        for subject in subjects:
            self.live[self.at.store.last_seq + 1] = subject
            self.at.fill(subject)

    @rule(wake=st.booleans())
    def deliver(self, wake: bool) -> None:
        expected = next(iter(self.left()), 0)
        if wake:
            self.at.cursor.woken(0)
        assert self.at.take() == expected

    @rule(place=st.floats(0, 1))
    def remove(self, place: float) -> None:
        seq = 1 + int(place * self.at.store.last_seq)
        self.live.pop(seq, None)
        self.at.remove(seq)

    @rule(place=st.floats(0, 1))
    def purge(self, place: float) -> None:
        first = 1 + int(place * self.at.store.last_seq)
        if first == 1:
            return
        self.live = {seq: subject for seq, subject in self.live.items() if seq >= first}
        self.at.store.purge(self.at.store.make_filter(()), first)
        list(self.at.store.catalogue.drops.take())
        self.at.cursor.purged(first)

    @invariant()
    def the_count_is_that_of_the_store(self) -> None:
        assert self.at.cursor.num_pending() == len(self.left())

    def left(self) -> list[int]:
        """Return the sequences that are to be delivered."""
        end = max(self.skips, default=0)
        matches = sorted(seq for seq, subject in self.live.items() if subject == "a")
        return [seq for seq in matches if seq >= self.at.cursor.next_seq and (seq > end or seq in self.skips)]


TestCursor = CursorMachine.TestCase
TestCursor.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


# -- counts in steps -------------------------------------------------------------------------------------------


class LongFixture(CursorFixture):
    """A cursor in the middle of a stream with more matching subjects than a count looks up at once."""

    def __init__(self) -> None:
        super().__init__()
        for at in range(80_000):
            self.store.store(b"a.%d" % at, b"", b"", 1)
        self.cursor.set_filters((b"a.*",))
        self.cursor.begin(10_001, Skips(b""), 0)
        self.fill("b")

    def tell(self) -> None:
        for seq, _ in self.store.catalogue.drops.take():
            self.cursor.dropped(seq)

    def count(self) -> int:
        """Count in steps; return num_pending."""
        while not self.cursor.count_some():
            pass
        return self.cursor.num_pending()


def test_a_long_count_takes_several_steps_and_none_when_it_is_done() -> None:
    js = LongFixture()
    assert not js.cursor.count_some()
    assert js.count() == 70_000
    assert js.cursor.count_some()


def test_a_long_count_is_exact_while_messages_come_and_go() -> None:
    js = LongFixture()
    js.cursor.count_some()
    js.remove(10_002)  # counted already
    js.remove(79_000)  # not counted yet
    js.store.store(b"a.new", b"", b"", 1)
    assert js.count() == 69_999


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_removals_that_are_reported_after_a_long_count_are_counted_once(steps: int) -> None:
    js = LongFixture()
    for _ in range(steps):
        js.cursor.count_some()
    js.remove(10_002, told=False)  # counted already, unless this is the first step
    js.cursor.count_some()
    js.remove(79_000, told=False)
    js.remove(10_003, told=False)
    before = js.count()
    js.tell()
    assert js.count() == 69_997
    assert before >= 69_997  # the reports still subtract what had been counted


def test_a_long_count_ends_although_purges_follow_each_other() -> None:
    js = LongFixture()
    for _ in range(2):
        assert not js.cursor.count_some()
        js.cursor.purged(10_001)
    assert js.cursor.count_some()
    assert js.cursor.num_pending() == 70_000


def test_a_search_after_the_last_message_finds_nothing_before_it() -> None:
    at = CursorFixture("a" * 1000 + "b")
    at.cursor.begin(1001, Skips(b""), 0)
    at.fill("a" * 8000)
    for seq in range(1002, 9002):
        at.remove(seq)
    assert at.take() == 0
    assert at.cursor.num_pending() == 0


def test_a_purge_begins_a_long_count_again() -> None:
    js = LongFixture()
    js.cursor.count_some()
    js.store.purge(js.store.make_filter(()), 20_001)
    js.cursor.purged(20_001)
    assert js.count() == 60_000


def test_num_pending_ends_a_long_count_at_once() -> None:
    js = LongFixture()
    js.cursor.count_some()
    assert js.cursor.num_pending() == 70_000


def test_removals_while_the_last_of_each_subject_are_delivered_count_once() -> None:
    js = CursorFixture("aaaa", skips=(2, 3))
    assert js.cursor.num_pending() == 3
    js.remove(4)
    js.remove(3)
    js.remove(1)  # never delivered
    assert js.cursor.num_pending() == 1
    assert js.take_all() == [2]
    assert js.cursor.num_pending() == 0


@pytest.mark.parametrize("told", [True, False])
def test_removed_messages_are_skipped_among_the_last_of_each_subject(told: bool) -> None:
    at = CursorFixture("aaaaaaa", skips=(2, 4, 6))
    assert at.cursor.num_pending() == 4
    for seq in (2, 6):
        at.remove(seq, told=told)
    assert at.take() == 4
    at.tell()
    assert at.cursor.num_pending() == 1
    assert at.take_all() == [7]
    assert at.cursor.num_pending() == 0


def test_only_what_is_left_of_the_last_of_each_subject_is_counted() -> None:
    at = CursorFixture("aaaaaaa", skips=(2, 4, 6))
    at.remove(4, told=False)
    assert at.cursor.num_pending() == 3
    at.tell()
    at.fill("ab")
    assert at.cursor.num_pending() == 4
    at.store.purge(at.store.make_filter(()), 7)
    at.cursor.purged(7)
    assert (at.cursor.num_pending(), at.take_all()) == (2, [7, 8])


def test_many_messages_among_the_last_of_each_subject_are_counted_and_skipped_in_steps() -> None:
    at = CursorFixture("a" * 50_000, skips=tuple(range(1, 50_001, 2)))
    assert not at.cursor.count_some()
    for seq in (1, 2, 40_001):
        at.remove(seq)
    assert at.cursor.num_pending() == 24_999
    for seq in range(3, 49_999):
        at.remove(seq)
    assert at.cursor.num_pending() == 2
    assert at.cursor.find_some() == 0
    assert at.cursor.searching
    assert at.take_all() == [49_999, 50_000]


def test_a_long_search_goes_on_in_steps() -> None:
    js = LongFixture()
    for at in range(20_000):
        js.store.store(b"c.%d" % (at + 1), b"", b"", 1)
    for _ in range(90_000):
        js.store.store(b"x", b"", b"", 1)
    js.store.store(b"c.1", b"", b"", 1)
    js.cursor.set_filters((b"c.*",))
    js.cursor.begin(100_002, Skips(b""), 0)
    assert js.cursor.find_some() == 0
    assert js.cursor.searching
    assert js.cursor.find() == js.store.last_seq
    assert not js.cursor.searching
