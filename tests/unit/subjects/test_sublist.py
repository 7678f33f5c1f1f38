"""The subscription list, compared with a plain list of filters: inserts, removals and cached routes."""

from __future__ import annotations

import gc
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyjs.base.clock import NS_PER_S
from pyjs.core.account import Account
from pyjs.core.sink import PySink, Request, Turn
from pyjs.subjects.routes import RouteCache
from pyjs.subjects.sublist import Sublist, Subscription
from pyjs.subjects.tokens import is_subset, is_valid_subject, subject_matches

ONE_SEGMENT = 140_000  # bytes: each trim frees the only segment


class Listener:
    """An account with handlers that record their calls."""

    def __init__(self, routes: RouteCache | None = None) -> None:
        self.turn = Turn()
        self.account = Account("A", self.turn, routes=routes or RouteCache())
        self.subs: list[tuple[Subscription, bytes]] = []

    def subscribe(self, subject: bytes, queue: bytes = b"") -> None:
        sink = PySink(self.turn, self.note)
        self.subs.append((self.account.subscribe(subject, sink, queue), subject))

    def note(self, request: Request) -> None:
        """Replaces the handler; the tests look at the recorded requests."""

    def unsubscribe(self, at: int) -> None:
        sub, _ = self.subs.pop(at)
        self.account.unsubscribe(sub)

    def receivers(self, subject: bytes) -> int:
        self.turn.take("requests")
        count = self.account.send(subject, b"x")
        assert count == len(self.turn.take("requests"))
        return count

    def expected(self, subject: bytes) -> int:
        plain = [sub for sub, pattern in self.subs if not sub.queue and subject_matches(subject, pattern)]
        groups = {sub.queue for sub, pattern in self.subs if sub.queue and subject_matches(subject, pattern)}
        return len(plain) + len(groups)


WORDS = st.sampled_from([b"a", b"b", b"*", b">", b"_INBOX", b"$JS", b"ACK"])
PATTERNS = st.lists(WORDS, min_size=1, max_size=6).map(b".".join).filter(is_valid_subject)
LITERALS = st.lists(st.sampled_from([b"a", b"b", b"_INBOX", b"$JS", b"ACK"]), min_size=1, max_size=7).map(
    b".".join
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("sub"), PATTERNS, st.sampled_from([b"", b"", b"q", b"r"])),
        st.tuples(st.just("unsub"), st.integers(0, 30), st.none()),
        st.tuples(st.just("send"), LITERALS, st.none()),
        st.tuples(st.just("trim"), st.none(), st.none()),
    ),
    max_size=40,
)


@settings(max_examples=400, deadline=None)
@given(STEPS)
def test_every_message_finds_exactly_the_matching_subscriptions(
    steps: list[tuple[str, object, object]],
) -> None:
    listener = Listener(RouteCache(ONE_SEGMENT))
    for step, a, b in steps:
        if step == "sub":
            assert isinstance(a, bytes)
            assert isinstance(b, bytes)
            listener.subscribe(a, b)
        elif step == "unsub" and listener.subs:
            assert isinstance(a, int)
            listener.unsubscribe(a % len(listener.subs))
        elif step == "send":
            assert isinstance(a, bytes)
            assert listener.receivers(a) == listener.expected(a)
            assert listener.receivers(a) == listener.expected(a)
        elif step == "trim":
            listener.account.subs.cache.trim(1)


TAILS = st.lists(st.sampled_from([b"a", b"b", b"*", b">"]), max_size=3)
INBOXES = TAILS.map(lambda tail: b".".join([b"_INBOX.id", *tail])).filter(is_valid_subject)


@settings(max_examples=400, deadline=None)
@given(st.lists(INBOXES, max_size=6), st.lists(st.sampled_from([b"a", b"b"]), max_size=3))
def test_a_message_to_an_inbox_finds_exactly_the_matching_subscriptions(
    patterns: list[bytes], tail: list[bytes]
) -> None:
    listener = Listener()
    for pattern in patterns:
        listener.subscribe(pattern)
    subject = b".".join([b"_INBOX.id", *tail])

    assert [listener.receivers(subject) for _ in range(2)] == [listener.expected(subject)] * 2


@pytest.mark.parametrize(
    ("patterns", "subject", "receivers"),
    [
        ([b"$KV.b.>", b"$KV.b.*.age"], b"$KV.b.k", 1),
        ([b"_INBOX.id.>", b"_INBOX.id.*.x"], b"_INBOX.id.5", 1),
        ([b"_INBOX.id", b"_INBOX.id.*.x"], b"_INBOX.id.5", 0),
    ],
)
def test_a_wildcard_with_more_tokens_than_a_subject_does_not_match_it(
    patterns: list[bytes], subject: bytes, receivers: int
) -> None:
    listener = Listener()
    for pattern in patterns:
        listener.subscribe(pattern)

    assert listener.receivers(subject) == receivers


def test_a_subject_with_an_empty_token_reaches_nobody() -> None:
    listener = Listener()
    listener.subscribe(b">")
    assert listener.receivers(b"foo..bar") == 0
    assert listener.receivers(b".foo") == 0
    assert listener.receivers(b"foo.") == 0
    assert listener.receivers(b"_INBOX..x") == 0


def test_inboxes_share_one_route() -> None:
    listener = Listener()
    listener.subscribe(b"_INBOX.abc.*")
    for number in range(100):
        assert listener.receivers(b"_INBOX.abc.%d" % number) == 1
    assert listener.account.subs.misses == 2
    assert listener.account.subs.num_cached() == 1


def test_a_literal_inbox_subscription_ends_the_sharing() -> None:
    listener = Listener()
    listener.subscribe(b"_INBOX.abc.*")
    assert listener.receivers(b"_INBOX.abc.1") == 1
    listener.subscribe(b"_INBOX.abc.2")
    assert listener.receivers(b"_INBOX.abc.2") == 2
    assert listener.receivers(b"_INBOX.abc.1") == 1


def test_queue_group_members_share_the_messages() -> None:
    listener = Listener()
    for _ in range(3):
        listener.subscribe(b"work", b"q")
    for _ in range(300):
        assert listener.receivers(b"work") == 1
    assert all(sub.delivered > 50 for sub, _ in listener.subs)


def test_a_used_up_member_is_passed_over() -> None:
    listener = Listener()
    listener.subscribe(b"work", b"q")
    listener.subscribe(b"work", b"q")
    listener.subs[0][0].closed = True
    assert [listener.receivers(b"work") for _ in range(20)] == [1] * 20
    assert listener.subs[1][0].delivered == 20


def test_a_subject_is_cached_when_it_is_looked_for_again() -> None:
    listener = Listener()
    listener.subscribe(b"a.*")
    subs = listener.account.subs
    listener.receivers(b"a.1")
    assert subs.num_cached() == 0
    listener.receivers(b"a.1")
    assert subs.num_cached() == 1
    misses = subs.misses
    listener.receivers(b"a.1")
    assert subs.misses == misses
    assert subs.cached_fanout() == (1, 1)


def test_subjects_that_are_published_to_once_cost_no_memory() -> None:
    listener = Listener()
    listener.subscribe(b">")
    for number in range(50_000):
        listener.receivers(b"once.%d" % number)
    assert listener.account.subs.num_cached() < 500  # two in 65,536 have equal hashes
    assert listener.account.subs.cache.size < 1_000_000


def test_the_cache_is_bounded_in_bytes() -> None:
    cache = RouteCache(4_000_000)
    listener = Listener(cache)
    for number in range(5_000):
        for _ in range(2):
            listener.account.send(b"%d." % number + b"x" * 3_900, b"")
        cache.trim(1)
        assert cache.size <= 4_000_000 + 200_000
    assert 500 < listener.account.subs.num_cached() < 1_100


def test_the_lists_of_a_node_share_the_bound() -> None:
    cache = RouteCache(2_000_000)
    listeners = [Listener(cache) for _ in range(20)]
    for number in range(200):
        for listener in listeners:
            listener.account.send(b"%d." % number + b"x" * 1_000, b"")
            listener.account.send(b"%d." % number + b"x" * 1_000, b"")
        cache.trim(1)
    assert cache.size <= 2_200_000
    assert sum(listener.account.subs.num_cached() for listener in listeners) == cache.count


def test_routes_that_are_used_survive_those_that_are_not() -> None:
    cache = RouteCache(2_000_000)
    listener = Listener(cache)
    listener.subscribe(b"used.*")
    subs = listener.account.subs
    used = [b"used.%d" % number for number in range(100)]
    for number in range(40_000):
        listener.account.send(used[number % 100], b"")
        listener.account.send(b"other.%d" % number, b"")
        listener.account.send(b"other.%d" % number, b"")
        if number % 50 == 0:
            cache.trim(1)
    misses = subs.misses
    for subject in used:
        assert listener.account.send(subject, b"") == 1
    assert subs.misses - misses < 50


def test_a_cache_at_rest_gives_its_memory_back() -> None:
    cache = RouteCache()
    listener = Listener(cache)
    cache.trim(1)
    for number in range(50_000):
        listener.account.send(b"known.%d" % number, b"")
        listener.account.send(b"known.%d" % number, b"")
    assert cache.count == 50_000
    assert cache.next_trim_ns > 0
    for second in range(100):
        cache.trim(second * NS_PER_S)
    assert cache.size < 2_500_000
    assert cache.count < 20_000


def test_routes_to_thousands_go_soon_after_the_client_that_subscribed() -> None:
    # given
    cache = RouteCache()
    listener, quiet = Listener(cache), Listener(cache)
    quiet.subscribe(b"quiet")
    for number in range(100_000):
        listener.subscribe(b"*." * (number % 2) + b">")
    cache.trim(1)
    for account in (listener.account, quiet.account):
        for _ in range(3):
            account.send(b"quiet", b"")
    listener.account.send(b"a.b", b"")
    listener.account.send(b"a.b", b"")
    large = cache.size
    cache.trim(2)
    assert cache.size == large
    # when
    for _ in listener.account.unsubscribe_steps([sub for sub, _ in listener.subs]):
        pass
    # then
    assert cache.next_trim_ns <= 2
    cache.trim(3)
    assert cache.size < large / 2
    misses = quiet.account.subs.misses
    assert quiet.receivers(b"quiet") == 1
    assert quiet.account.subs.misses == misses  # routes in use were kept


def test_routes_of_a_list_that_is_gone_go_with_their_segment() -> None:
    cache = RouteCache(ONE_SEGMENT)
    gone, stays = Listener(cache), Listener(cache)
    for listener in (gone, stays):
        listener.subscribe(b"a")
        assert [listener.receivers(b"a") for _ in range(3)] == [1, 1, 1]
    assert cache.count == 2
    del gone, listener
    gc.collect()
    for _ in range(4):
        assert stays.receivers(b"a") == 1
        cache.trim(1)
    assert cache.count <= 1


def test_a_subscription_with_wildcards_outdates_routes() -> None:
    listener = Listener()
    listener.subscribe(b"a.*")
    assert [listener.receivers(b"a.x") for _ in range(3)] == [1, 1, 1]
    listener.subscribe(b"*.x")
    assert [listener.receivers(b"a.x") for _ in range(3)] == [2, 2, 2]
    listener.unsubscribe(0)
    assert [listener.receivers(b"a.x") for _ in range(3)] == [1, 1, 1]


def test_many_queue_groups_and_many_members_are_told_apart() -> None:
    listener = Listener()
    for number in range(3_000):
        listener.subscribe(b"w", b"group.%d" % (number % 1_000))
    assert [listener.receivers(b"w") for _ in range(3)] == [1_000] * 3
    while listener.subs:
        listener.unsubscribe(len(listener.subs) // 2)
    assert listener.receivers(b"w") == 0


def test_a_subject_of_many_tokens_is_no_deeper_than_memory() -> None:
    listener = Listener()
    deep = b".".join([b"a"] * 150_000)
    stars = b".".join([b"*"] * 150_000)
    listener.subscribe(deep)
    listener.subscribe(stars)
    assert listener.receivers(deep) == 2
    assert listener.account.subs.covering(stars) == [listener.subs[1][0]]
    listener.unsubscribe(0)
    assert listener.receivers(deep) == 1
    del listener
    gc.collect()


def test_a_walk_visits_a_node_once() -> None:
    listener = Listener()
    for number in range(1 << 12):
        bits = [b"*" if number >> at & 1 else b"a" for at in range(12)]
        listener.subscribe(b".".join(bits))
    before = listener.account.subs.visited
    assert listener.receivers(b".".join([b"a"] * 12)) == 1 << 12
    assert listener.account.subs.visited - before <= 4 << 12


def test_removing_costs_the_same_however_many_share_a_subject() -> None:
    subs = Sublist()
    sink = PySink(Turn(), Listener().note)
    many = [Subscription(sink, b"same.subject", b"q" if at % 2 else b"") for at in range(100_000)]
    for sub in many:
        subs.insert(sub)
    began = time.process_time()
    for sub in many:
        subs.remove(sub)
    # an earlier version walked over all remaining entries, which took minutes
    assert time.process_time() - began < 5
    assert len(subs) == 0


def test_a_filter_covers_what_it_matches_whole() -> None:
    subs = Sublist()
    sink = PySink(Turn(), Listener().note)
    for subject in (b"a.*", b"a.>", b"*.b", b">", b"a.b"):
        subs.insert(Subscription(sink, subject))
    covering = {b"a.b": 5, b"a.*": 3, b"a.>": 2, b"*.*": 1, b"*.b": 2, b">": 1, b"a": 1, b"a.b.c": 2}
    assert {subject: len(subs.covering(subject)) for subject in covering} == covering
    assert subs.matches(b"x.y")


def test_subjects_of_very_many_tokens_come_and_go() -> None:
    # given
    tokens = 150_000
    subs = Sublist()
    words = [b"a", b"*", b"a.b"]
    deep = [Subscription(object(), b".".join([word] * tokens)) for word in words]
    for sub in deep:
        subs.insert(sub)
    # when
    found = subs.match(b".".join([b"a"] * tokens))
    # then
    assert found == [deep[1], deep[0]]
    assert all(subs.remove(sub) for sub in deep[:2])
    assert subs.match(b".".join([b"a"] * tokens)) == []
    assert subs.match(deep[2].subject) == [deep[2]]  # the remaining one is removed together with the list


def test_a_subject_that_shares_no_token_is_one_node() -> None:
    for word in (b"a", b"a.*", b"*.a"):
        subs = Sublist()
        subject = b".".join([word] * 150_000)
        sub = Subscription(object(), subject)
        subs.insert(sub)
        assert subs.match(subject.replace(b"*", b"x")) == [sub]
        assert subs.match(subject + b".a") == subs.match(subject[:-2]) == []
        assert subs.visited < 10


def test_a_subject_that_leaves_another_one_in_the_middle_is_a_branch() -> None:
    subs = Sublist()
    made: dict[bytes, Subscription] = {}
    for subject in (b"a.b.c.d.e", b"a.b.x", b"a.b.c", b"a.b.c.d.e.>", b"a.b.*.d.e", b"a.b.*.d.*", b"a.bb.c"):
        made[subject] = Subscription(object(), subject)
        subs.insert(made[subject])
    assert subs.match(b"a.b.c.d.e") == [made[b"a.b.*.d.*"], made[b"a.b.*.d.e"], made[b"a.b.c.d.e"]]
    assert subs.match(b"a.b.c") == [made[b"a.b.c"]]
    assert subs.match(b"a.b") == subs.match(b"a") == subs.match(b"a.b.c.d") == []
    assert subs.match(b"a.b.c.d.e.f") == [made[b"a.b.c.d.e.>"]]
    assert subs.match(b"a.b.x") == [made[b"a.b.x"]]


SETS = st.lists(PATTERNS, max_size=12)


@settings(max_examples=200, deadline=None)
@given(SETS, PATTERNS)
def test_exactly_the_supersets_of_a_filter_cover_it(subjects: list[bytes], subject: bytes) -> None:
    subs = Sublist()
    made = [Subscription(object(), each) for each in subjects]
    for sub in made:
        subs.insert(sub)
    expected = {sub for sub in made if is_subset(subject, sub.subject)}
    assert set(subs.covering(subject)) == expected


def test_a_branch_goes_with_its_last_subscription_and_no_sooner() -> None:
    subjects = [b"a", b"a.b", b"a.b.c.d", b"a.*.c", b"a.b.>", b"x.y.z", b"x.y"]
    for first in subjects:
        subs = Sublist()
        made = {subject: Subscription(object(), subject) for subject in subjects}
        for sub in made.values():
            subs.insert(sub)
        subs.remove(made.pop(first))
        for subject, sub in made.items():
            literal = subject.replace(b"*", b"q").replace(b">", b"q")
            assert sub in subs.match(literal)
        for sub in made.values():
            assert subs.remove(sub)
        assert subs.match(b"a.b.c.d") == subs.match(b"x.y") == []


def test_removing_twice_is_told() -> None:
    turn = Turn()
    subs = Sublist()
    sub = Subscription(PySink(turn, Listener().note), b"a.b")
    subs.insert(sub)
    assert subs.remove(sub)
    assert not subs.remove(sub)
    assert len(subs) == 0
    assert subs.match(b"a.b") == []


def test_interest_watchers_hear_of_matching_subscriptions() -> None:
    listener = Listener()
    heard: list[str] = []

    def changed() -> None:
        heard.append("changed")

    listener.account.watch_interest(b"push.here", changed)
    listener.subscribe(b"push.*")
    listener.subscribe(b"other")
    listener.subscribe(b"push.here")
    listener.unsubscribe(2)
    assert len(heard) == 3
    listener.account.unwatch_interest(b"push.here", changed)
    listener.unsubscribe(0)
    assert len(heard) == 3


def test_subscriptions_that_left_leave_no_memory_behind() -> None:
    # given
    listener = Listener()
    listener.subscribe(b"stays")
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    # when
    for number in range(30_000):
        listener.subscribe(b"s.%d" % number, b"q%d" % number)
    while len(listener.subs) > 1:
        listener.unsubscribe(-1)
    # then
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 300_000
    assert listener.receivers(b"stays") == 1


def test_queue_groups_are_told_apart_after_all_others_left() -> None:
    # given
    listener = Listener()
    for number in range(100):
        listener.subscribe(b"s", b"q%d" % number)
    assert listener.receivers(b"s") == 100
    # when
    while listener.subs:
        listener.unsubscribe(0)
    for queue in (b"a", b"a", b"b", b""):
        listener.subscribe(b"s", queue)
    # then
    assert listener.receivers(b"s") == listener.expected(b"s") == 3
