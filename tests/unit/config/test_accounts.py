from __future__ import annotations

import pytest
from tests.unit.config.conftest import Load

from pyjs.config.accounts import is_subject
from pyjs.config.options import NS_PER_S, PermissionOptions


def permissions(load: Load, text: str) -> PermissionOptions:
    """Return the permissions of a user that are written as `text`."""
    found = load(f"authorization {{users: [{{user: a, permissions: {{ {text} }} }}]}}")
    own = found.authorization.users[0].permissions
    assert own is not None
    return own


@pytest.mark.parametrize(
    ("text", "allow", "deny"),
    [
        ("publish: a.b", ("a.b",), ()),
        ('publish: [a, "b.>"]', ("a", "b.>"), ()),
        ("publish {allow: a, deny: [b, c]}", ("a",), ("b", "c")),
        ("publish {deny: b}", None, ("b",)),
        ("publish {allow: a, deny: []}", ("a",), ()),
        ("pub: '$JS.API.>'", ("$JS.API.>",), ()),
    ],
)
def test_publish_permissions_take_each_form(
    load: Load, text: str, allow: tuple[str, ...] | None, deny: tuple[str, ...]
) -> None:
    publish = permissions(load, text).publish
    assert publish is not None
    assert (publish.allow, publish.deny) == (allow, deny)


def test_subscribe_entries_may_name_a_queue(load: Load) -> None:
    subscribe = permissions(load, 'subscribe {allow: ["a.* workers", b], deny: "c *.x"}').subscribe
    assert subscribe is not None
    assert (subscribe.allow, subscribe.deny) == (("a.* workers", "b"), ("c *.x",))


def test_an_empty_permission_map_says_nothing(load: Load) -> None:
    assert permissions(load, "publish {}").publish is None


def test_leave_to_respond_closes_what_was_open(load: Load) -> None:
    own = permissions(load, "allow_responses: true")
    assert own.allow_responses is not None
    assert own.publish is not None
    assert (own.allow_responses.max_msgs, own.allow_responses.expires_ns) == (1, 120 * NS_PER_S)
    assert own.publish.allow == ()


@pytest.mark.parametrize("order", ["publish: a, allow_responses: true", "allow_responses: true, publish: a"])
def test_leave_to_respond_adds_to_what_may_be_published(load: Load, order: str) -> None:
    publish = permissions(load, order).publish
    assert publish is not None
    assert publish.allow == ("a",)


def test_leave_to_respond_may_be_bounded(load: Load) -> None:
    responses = permissions(load, 'allow_responses {max: 5, expires: "1m"}').allow_responses
    assert responses is not None
    assert (responses.max_msgs, responses.expires_ns) == (5, 60 * NS_PER_S)
    assert permissions(load, "allow_responses: false").allow_responses is None


def test_default_permissions_reach_users_without_their_own(load: Load) -> None:
    text = "default_permissions {publish: d}, users [{user: a}, {user: b, permissions {publish: x}}]"
    for block in (f"authorization {{ {text} }}", f"accounts {{ A {{ {text} }} }}"):
        options = load(block)
        allowed = [user.permissions.publish.allow for user in options.users()]  # type: ignore[union-attr]
        assert allowed == [("d",), ("x",)]


def test_users_know_their_account(load: Load) -> None:
    options = load(
        "accounts {A {users [{user: a}]}, B {users [{user: b}]}}\nauthorization {users [{user: c}]}"
    )
    assert [(user.user, user.account) for user in options.users()] == [("c", "$G"), ("a", "A"), ("b", "B")]


def test_a_single_user_is_one_of_the_users(load: Load) -> None:
    options = load("authorization {username: a, pass: b}")
    assert [(user.user, user.password, user.account) for user in options.users()] == [("a", "b", "$G")]


@pytest.mark.parametrize(
    ("text", "ns"),
    [("5", 5 * NS_PER_S), ("1.5", 3 * NS_PER_S // 2), ('"500ms"', NS_PER_S // 2), ("5s", 5 * NS_PER_S)],
)
def test_the_auth_timeout_is_seconds_or_a_duration(load: Load, text: str, ns: int) -> None:
    options = load(f"authorization {{timeout: {text}}}")
    assert options.authorization.timeout_ns == ns
    assert options.warnings.mistakes == ()


def test_accounts_may_be_a_list_of_names(load: Load) -> None:
    accounts = load("accounts [A, B]").accounts
    assert [(name, account.name, account.users) for name, account in accounts.items()] == [
        ("A", "A", ()),
        ("B", "B", ()),
    ]


def test_an_account_may_be_made_of_variables(load: Load) -> None:
    text = "accounts { p {publish: x}, A {default_permissions: $p, users [{user: a}]} }"
    options = load(text)
    assert list(options.accounts) == ["A"]


@pytest.mark.parametrize(
    ("text", "enabled"),
    [("true", True), ("enabled", True), ("{}", True), ("false", False), ("disable", False)],
)
def test_jetstream_of_an_account_is_switched_in_each_way(load: Load, text: str, enabled: bool) -> None:
    assert (load(f"accounts {{A {{jetstream: {text}}}}}").accounts["A"].jetstream is not None) is enabled


def test_jetstream_limits_of_an_account_have_many_names(load: Load) -> None:
    text = "mem: 1KB, disk: 2KB, streams: 3, consumers: 4, max_bytes: true, memory_max_stream_bytes: 5"
    limits = load(f"accounts {{A {{jetstream {{ {text} }} }} }}").accounts["A"].jetstream
    assert limits is not None
    assert (limits.max_memory, limits.max_storage, limits.max_streams, limits.max_consumers) == (
        1024,
        2048,
        3,
        4,
    )
    assert (limits.max_bytes_required, limits.mem_max_stream_bytes, limits.max_ack_pending) == (True, 5, -1)


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("a", True),
        ("a.b.>", True),
        ("*.*", True),
        (">", True),
        ("a.b>", True),
        ("", False),
        ("a..b", False),
        (".a", False),
        ("a.", False),
        ("a b", False),
        (">.a", False),
        ("a\tb", False),
    ],
)
def test_a_subject_has_no_empty_tokens_and_no_spaces(text: str, valid: bool) -> None:
    assert is_subject(text) is valid
