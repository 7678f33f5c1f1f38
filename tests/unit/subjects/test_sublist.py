"""The subscription list against a plain list of filters, through inserts, removes and cached routes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pyjs.core.account import Account
from pyjs.core.sink import PySink, Request, Turn
from pyjs.subjects.sublist import Sublist, Subscription
from pyjs.subjects.tokens import is_valid_subject, subject_matches


class Listener:
    """An account with handlers that note who got what."""

    def __init__(self) -> None:
        self.turn = Turn()
        self.account = Account("A", self.turn)
        self.subs: list[tuple[Subscription, bytes]] = []

    def subscribe(self, subject: bytes, queue: bytes = b"") -> None:
        sink = PySink(self.turn, self.note)
        self.subs.append((self.account.subscribe(subject, sink, queue), subject))

    def note(self, request: Request) -> None:
        """Stand as the handler; the requests themselves are looked at."""

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
    listener = Listener()
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
            listener.account.subs.trim()


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


def test_the_cache_is_bounded_and_outdated_routes_are_freed() -> None:
    listener = Listener()
    listener.account.subs.cache_max = 100
    listener.subscribe(b"a.*")
    for number in range(1000):
        listener.receivers(b"a.%d" % number)
        listener.account.subs.trim()
    assert listener.account.subs.num_cached() <= 200
    listener.subscribe(b"*.x")
    while listener.account.subs.trim():
        pass
    assert listener.account.subs.num_cached() == 0


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
    assert subs.match(deep[2].subject) == [deep[2]]  # what is left goes with the list


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
