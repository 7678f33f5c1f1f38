"""Users, tokens and permissions, seen by a client."""

from __future__ import annotations

import bcrypt
import pytest

from pyjs.config.options import (
    AccountLimits,
    AccountOptions,
    Options,
    PermissionOptions,
    ResponsePermission,
    SubjectPermissions,
    UserOptions,
)
from pyjs.testing import VirtualNode

USER = b'{"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"user":"%b","pass":"%b"}'


def with_users(*users: UserOptions) -> VirtualNode:
    options = Options()
    options.authorization.users = users
    return VirtualNode(options)


def permitted(**lists: SubjectPermissions | ResponsePermission) -> VirtualNode:
    permissions = PermissionOptions(**lists)  # type: ignore[arg-type]
    return with_users(UserOptions("u", "p", permissions), UserOptions("all", "p"))


def test_a_server_with_users_requires_one() -> None:
    node = with_users(UserOptions("u", "p"))
    client = node.client(connect=None)
    assert b'"auth_required":true' in client.info
    client.send(b"PING\r\n")
    assert client.take() == b"-ERR 'Authorization Violation'\r\n"
    assert client.session.closed_reason == "Authentication Failure"


@pytest.mark.parametrize(
    ("user", "password", "welcome"),
    [
        (b"u", b"p", True),
        (b"u", b"x", False),
        (b"x", b"p", False),
        (b"h", b"secret", True),
        (b"h", b"p", False),
    ],
)
def test_plain_and_hashed_passwords_are_compared(user: bytes, password: bytes, welcome: bool) -> None:
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode().replace("$2b$", "$2a$")
    node = with_users(UserOptions("u", "p"), UserOptions("h", hashed))
    client = node.client(USER % (user, password))
    assert client.link.closed is not welcome


def test_a_token_is_compared() -> None:
    options = Options()
    options.authorization.token = "s3cr3t"
    node = VirtualNode(options)
    assert not node.client(b'{"auth_token":"s3cr3t"}').link.closed
    assert node.client(b'{"auth_token":"other"}').link.closed
    assert node.client(b"{}").link.closed


def test_silence_ends_with_the_authentication_timeout() -> None:
    node = with_users(UserOptions("u", "p"))
    client = node.client(connect=None)
    node.advance(seconds=1)
    assert client.take() == b""
    node.advance(seconds=2)
    assert client.take() == b"-ERR 'Authentication Timeout'\r\n"
    assert client.session.closed_reason == "Authentication Timeout"


def test_no_auth_user_stands_in_for_whoever_says_nothing() -> None:
    options = Options()
    options.accounts = {"A": AccountOptions("A", (UserOptions("u", "p", None, "A"),))}
    options.no_auth_user = "u"
    node = VirtualNode(options)
    silent, connected = node.client(connect=None), node.client()
    assert b"auth_required" not in silent.info
    silent.send(b"PING\r\n")
    assert silent.session.account.name == "A"
    assert connected.session.account.name == "A"


def test_two_accounts_do_not_see_each_other() -> None:
    options = Options()
    options.accounts = {
        name: AccountOptions(name, (UserOptions(name.lower(), "p", None, name),)) for name in ("A", "B")
    }
    node = VirtualNode(options)
    a, b, a2 = (node.client(USER % (user, b"p")) for user in (b"a", b"b", b"a"))
    a.send(b"SUB > 1\r\n")
    b.send(b"SUB > 1\r\n")
    a2.send(b"PUB foo 1\r\nx\r\n")
    assert a.payloads() == [b"x"]
    assert b.payloads() == []


def test_account_limits_on_connections_subscriptions_and_payload() -> None:
    options = Options()
    limits = AccountLimits(max_connections=2, max_subscriptions=1, max_payload=3)
    options.accounts = {"A": AccountOptions("A", (UserOptions("u", "p", None, "A"),), limits=limits)}
    node = VirtualNode(options)
    first, second = node.client(USER % (b"u", b"p")), node.client(USER % (b"u", b"p"))
    third = node.client(USER % (b"u", b"p"))
    first.send(b"SUB a 1\r\n")
    second.send(b"SUB b 1\r\nSUB c 2\r\n")  # each client has its own limit
    assert first.take() == b""
    assert third.session.closed_reason == "Maximum Account Connections Exceeded"
    assert second.take() == b"-ERR 'maximum subscriptions exceeded'\r\n"
    second.send(b"PUB a 4\r\n")
    assert second.take() == b"-ERR 'Maximum Payload Violation'\r\n"


def test_lowered_limits_reach_the_clients_that_are_connected() -> None:
    def limited(**limits: int) -> Options:
        options = Options()
        users = (UserOptions("u", "p", None, "A"),)
        options.accounts = {"A": AccountOptions("A", users, limits=AccountLimits(**limits))}
        return options

    node = VirtualNode(limited())
    first, second, third = (node.client(USER % (b"u", b"p")) for _ in range(3))
    first.send(b"SUB a 1\r\nSUB b 2\r\n")
    node.node.apply_options(limited(max_connections=2, max_subscriptions=1))
    node.node.enforce_account_limits()
    node.turn()
    assert third.session.closed_reason == "Maximum Account Connections Exceeded"
    assert second.take() == b""
    assert first.take() == b"-ERR 'maximum subscriptions exceeded'\r\n"
    assert first.session.num_subscriptions == 2


def test_publishing_outside_the_allow_list_is_told_and_not_done() -> None:
    node = permitted(publish=SubjectPermissions(("ok.>",), ("ok.not",)))
    watcher = node.client(USER % (b"all", b"p"))
    watcher.send(b"SUB > 1\r\n")
    client = node.client(USER % (b"u", b"p"))
    client.send(b"PUB ok.a 1\r\na\r\nPUB ok.not 1\r\nb\r\nPUB other 1\r\nc\r\n")
    assert watcher.payloads() == [b"a"]
    assert client.take() == (
        b"-ERR 'Permissions Violation for Publish to \"ok.not\"'\r\n"
        b"-ERR 'Permissions Violation for Publish to \"other\"'\r\n"
    )


def test_subscribing_outside_the_lists_is_told() -> None:
    node = permitted(subscribe=SubjectPermissions(("ok.*", "q.> workers"), ("ok.not",)))
    client = node.client(USER % (b"u", b"p"))
    client.send(
        b"SUB ok.a 1\r\nSUB ok.not 2\r\nSUB > 3\r\nSUB q.a workers 4\r\nSUB q.a 5\r\nSUB q.a other 6\r\n"
    )
    assert client.take() == (
        b"-ERR 'Permissions Violation for Subscription to \"ok.not\"'\r\n"
        b"-ERR 'Permissions Violation for Subscription to \">\"'\r\n"
        b"-ERR 'Permissions Violation for Subscription to \"q.a\"'\r\n"
        b'-ERR \'Permissions Violation for Subscription to "q.a" using queue "other"\'\r\n'
    )
    assert sorted(client.session.subscriptions) == [b"1", b"4"]


def test_denied_messages_are_kept_from_a_wildcard_subscription() -> None:
    node = permitted(subscribe=SubjectPermissions(None, ("foo.secret",)))
    client = node.client(USER % (b"u", b"p"))
    client.send(b"SUB foo.* 1\r\nSUB foo.> 2\r\n")
    node.client(USER % (b"all", b"p")).send(b"PUB foo.secret 1\r\nx\r\nPUB foo.open 1\r\ny\r\n")
    assert client.payloads() == [b"y", b"y"]


def test_a_request_may_be_answered_as_often_and_as_long_as_allowed() -> None:
    node = permitted(publish=SubjectPermissions(()), allow_responses=ResponsePermission(2, 60_000_000_000))
    client, asker = node.client(USER % (b"u", b"p")), node.client(USER % (b"all", b"p"))
    client.send(b"SUB svc 1\r\n")
    asker.send(b"SUB _INBOX.z.* 1\r\nPUB svc _INBOX.z.1 0\r\n\r\n")
    client.take()
    client.send(b"PUB _INBOX.z.1 1\r\na\r\n" * 3)
    assert asker.payloads() == [b"a", b"a"]
    assert client.take() == b"-ERR 'Permissions Violation for Publish to \"_INBOX.z.1\"'\r\n"
    asker.send(b"PUB svc _INBOX.z.2 0\r\n\r\n")
    client.take()
    node.advance(seconds=61)
    client.send(b"PUB _INBOX.z.2 1\r\na\r\n")
    assert b"Permissions Violation" in client.take()
