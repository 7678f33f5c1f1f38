"""The names of clients in log lines."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pyjs.core.auth.handshake import ConnectOptions
from pyjs.core.auth.identity import log_label
from pyjs.core.auth.users import User


def label(who: User | None = None, account: str = "A", tag: str = "", **options: Any) -> str:
    session: Any = SimpleNamespace(
        options=ConnectOptions(**options), user=who, account=SimpleNamespace(name=account, tag=tag)
    )
    return log_label(session)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, ""),
        ({"version": "1"}, ' - "v1"'),
        ({"lang": "py", "name": "n"}, ' - "py:n"'),
        ({"version": "1", "lang": "py", "name": "n"}, ' - "v1:py:n"'),
        ({"user": "u"}, ' - "A/user:u"'),
        ({"nkey": "U1", "user": "u"}, ' - "A/nkey:U1"'),
        ({"auth_token": "secret"}, ' - "A/token"'),
        ({"name": "n", "user": "u"}, ' - "n" - "A/user:u"'),
        ({"name": 'a"\r\nb'}, ' - "a\\"\\r\\nb"'),
    ],
)
def test_a_label_has_the_library_and_the_user(options: dict[str, Any], said: str) -> None:
    assert label(**options) == said


def test_the_default_user_is_named() -> None:
    assert label(User("guest", "")) == ' - "A/user:guest"'
    assert label(User("U1", "", nkey=b"k")) == ' - "A/nkey:U1"'


def test_the_tag_of_an_account_follows_its_name() -> None:
    assert label(User("u", ""), tag="ORDERS") == ' - "A/ORDERS/user:u"'
    assert label(User("u", ""), tag="A") == ' - "A/user:u"'
