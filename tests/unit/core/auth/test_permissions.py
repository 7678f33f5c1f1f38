"""Long lists of permissions lead to the same decisions as short ones."""

from __future__ import annotations

from itertools import product

import pytest

from pyjs.core.auth.permissions import Permissions

FILLERS = tuple(f"filler.{number}" for number in range(100))
ENTRIES = ("a.*", "b.>", "c.*.d", "e", "*.f", "g.> q", "h q.*", "i.*")
SUBJECTS = (
    b"a.b",
    b"a.*",
    b"a.>",
    b"b",
    b"b.c.d",
    b"b.>",
    b"c.*.d",
    b"c.x.d",
    b"e",
    b"x.f",
    b"*.f",
    b"g.x",
    b"h",
    b">",
    b"i.j",
)
QUEUES = (b"", b"q", b"q.x", b"other")


@pytest.mark.parametrize("role", ["allow", "deny"])
def test_a_trie_decides_as_a_walk_along_the_list(role: str) -> None:
    few, many = (
        Permissions(**{f"publish_{role}": plain, f"subscribe_{role}": entries})  # type: ignore[arg-type]
        for entries, plain in ((ENTRIES, ENTRIES[:5]), (ENTRIES + FILLERS, ENTRIES[:5] + FILLERS))
    )
    for subject, queue in product(SUBJECTS, QUEUES):
        assert few.may_subscribe(subject, queue) == many.may_subscribe(subject, queue), (subject, queue)
        assert few.filters_messages(subject, queue) == many.filters_messages(subject, queue), subject
    for subject in (b"a.b", b"b.c.d", b"c.x.d", b"e", b"x.f", b"g.x", b"h", b"i.j", b"none"):
        assert few.may_publish(subject) == many.may_publish(subject), subject
        for queue in (b"", b"q"):
            assert few.may_receive(subject, queue) == many.may_receive(subject, queue), subject


def test_remembered_decisions_are_bounded() -> None:
    permissions = Permissions(publish_allow=("a.>",))
    for number in range(3 * 1024):
        assert permissions.may_publish(b"a.%d" % number)
        assert not permissions.may_publish(b"b." + b"x" * 4_000 + b"%d" % number)
    assert len(permissions.decisions) <= 1024


def test_equal_lists_are_the_same() -> None:
    assert Permissions(publish_allow=("a",)).same_as(Permissions(publish_allow=("a",)))
    assert not Permissions(publish_allow=("a",)).same_as(Permissions(publish_deny=("a",)))
    assert not Permissions().same_as(None)


def test_a_deny_entry_with_a_queue_filters_the_messages_of_that_queue() -> None:
    permissions = Permissions(subscribe_deny=["foo.bar dev", "v.* q*"])

    assert not permissions.may_receive(b"foo.bar", b"dev")
    assert permissions.may_receive(b"foo.bar", b"prod")
    assert permissions.may_receive(b"foo.bar", b"")


def test_an_empty_token_matches_no_entry() -> None:
    permissions = Permissions(publish_allow=["foo.*", "a.>"])

    assert not permissions.may_publish(b"foo.")
    assert not permissions.may_publish(b"a..b")


def test_a_deny_entry_refuses_a_wider_subscription_below_it() -> None:
    assert not Permissions(subscribe_deny=["deep.*"]).may_subscribe(b"deep.>", b"")
    assert Permissions(subscribe_deny=["deep.*"]).may_subscribe(b"deep.a.b", b"")
