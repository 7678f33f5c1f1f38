"""Templates, networks and times of users in tokens."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pyjs.claims.fields import Head
from pyjs.claims.roles import (
    EXPANSIONS_MAX,
    BadTemplate,
    Subjects,
    filled_grant,
    known_types,
    may_come_from,
    seconds_allowed,
)
from pyjs.claims.user import Grant, PermissionLists, UserClaims

USER = UserClaims(Head(name="joe", subject="U", tags=("team:red", "team:blue", "x:1")), Grant(), "A")
SUBJECTS = Subjects(USER, "ACME", ("site:north",))


def filled(**lists: tuple[str, ...]) -> PermissionLists:
    return filled_grant(Grant(PermissionLists(**lists)), SUBJECTS).permissions  # type: ignore[arg-type]


def test_values_of_the_user_and_its_account() -> None:
    entries = ("a.{{name()}}", "{{ subject() }}", "{{account-name()}}.{{account-subject()}}")
    assert filled(publish_allow=entries).publish_allow == ("a.joe", "U", "ACME.A")


def test_each_combination_of_tags() -> None:
    found = filled(subscribe_allow=("{{tag(team)}}.{{account-tag(site)}}.{{name()}}",)).subscribe_allow
    assert found == ("red.north.joe", "blue.north.joe")


def test_an_allow_list_of_which_nothing_is_left_denies_everything() -> None:
    lists = filled(publish_allow=("{{tag(none)}}",), subscribe_allow=("{{tag(none)}}.a",))
    assert (lists.publish_allow, lists.publish_deny) == ((), (">",))
    assert (lists.subscribe_allow, lists.subscribe_deny) == ((), (">",))


def test_a_deny_list_must_be_filled_in() -> None:
    with pytest.raises(BadTemplate):
        filled(publish_deny=("{{tag(none)}}",))
    with pytest.raises(BadTemplate, match="not defined"):
        filled(publish_allow=("{{nothing()}}",))


def test_the_number_of_subjects_is_bounded() -> None:
    many = UserClaims(Head(tags=tuple(f"t:{number}" for number in range(EXPANSIONS_MAX))), Grant())
    grant = Grant(PermissionLists(publish_allow=("{{tag(t)}}.{{tag(t)}}",)))
    with pytest.raises(BadTemplate, match="exceeds limit"):
        filled_grant(grant, Subjects(many, "", ()))


def test_networks() -> None:
    grant = Grant(sources=("10.0.0.0/8", "::1/128"))
    assert [may_come_from(grant, ip) for ip in ("10.1.2.3", "11.1.2.3", "::1", "here")] == [
        True,
        False,
        True,
        False,
    ]
    assert may_come_from(Grant(), "anywhere")


def test_times_of_the_day() -> None:
    noon = datetime(2026, 1, 5, 12, 0, tzinfo=UTC).timestamp()
    day = Grant(times=(("09:00:00", "17:00:00"),), zone="UTC")
    night = Grant(times=(("22:00:00", "06:00:00"),), zone="UTC")
    assert seconds_allowed(Grant(), noon) == 0
    assert seconds_allowed(day, noon) == 5 * 3600
    assert seconds_allowed(night, noon) is None
    assert seconds_allowed(night, noon + 11 * 3600) == 7 * 3600
    assert seconds_allowed(night, noon - 7 * 3600) == 3600
    assert seconds_allowed(Grant(times=(("x", "y"),), zone="UTC"), noon) is None


def test_kinds_of_connections() -> None:
    assert known_types(()) == frozenset()
    assert known_types(("standard", "SMOKE")) == {"STANDARD"}
    assert known_types(("SMOKE",)) is None
