from __future__ import annotations

from tests.unit.config.conftest import Load


def test_users_know_their_account(load: Load) -> None:
    options = load(
        "accounts {A {users [{user: a}]}, B {users [{user: b}]}}\nauthorization {users [{user: c}]}"
    )
    assert [(user.user, user.account) for user in options.users()] == [("c", "$G"), ("a", "A"), ("b", "B")]


def test_a_single_user_is_one_of_the_users(load: Load) -> None:
    options = load("authorization {username: a, pass: b}")
    assert [(user.user, user.password, user.account) for user in options.users()] == [("a", "b", "$G")]
