from __future__ import annotations

import pytest
from tests.unit.config.conftest import Load

from pyjs.config.access.permissions import is_subject
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
