"""The smallest of three limits applies; a negative one means no limit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyjs.config.options import AccountLimits
from pyjs.core.auth.limits import SUBSCRIPTIONS_MAX, limits_of
from pyjs.core.auth.users import User, UserToken
from pyjs.core.host import SessionSettings

TOKEN = UserToken("U", 0, "A", "", 0, -1, -1, False, False, "", "", ())
SETTINGS = SessionSettings(max_payload=100, max_subscriptions=10)


def user(**limits: Any) -> User:
    return User("u", "", token=replace(TOKEN, **limits))


def account(payload: int, subscriptions: int) -> AccountLimits:
    return AccountLimits(max_payload=payload, max_subscriptions=subscriptions)


def test_without_others_the_limits_of_the_server_count() -> None:
    assert limits_of(SETTINGS, None, None) == (100, 10)
    assert limits_of(SETTINGS, account(-1, -1), user()) == (100, 10)
    assert limits_of(SETTINGS, None, User("u", "p")) == (100, 10)


def test_a_server_without_a_limit_of_subscriptions_has_that_of_the_account() -> None:
    unlimited = SessionSettings(max_payload=100, max_subscriptions=0)
    assert limits_of(unlimited, None, None) == (100, SUBSCRIPTIONS_MAX)
    assert limits_of(unlimited, account(-1, 3), None) == (100, 3)


def test_the_smallest_counts_whosever_it_is() -> None:
    assert limits_of(SETTINGS, account(50, 5), None) == (50, 5)
    assert limits_of(SETTINGS, account(50, 5), user(payload=20, subs=7)) == (20, 5)
    assert limits_of(SETTINGS, account(200, 20), user(payload=300, subs=2)) == (100, 2)


def test_a_limit_of_zero_allows_nothing() -> None:
    assert limits_of(SETTINGS, account(0, 0), None) == (0, 0)
    assert limits_of(SETTINGS, None, user(payload=0, subs=0)) == (0, 0)
