"""Logins with jobs: bcrypt runs outside the turn, one attempt at a time, with equal work for each refusal."""

from __future__ import annotations

import bcrypt
import pytest

from pyjs.base.clock import NS_PER_S
from pyjs.config.options import AccountOptions, Options, PermissionOptions, SubjectPermissions, UserOptions
from pyjs.core.auth import users as auth
from pyjs.core.auth.handshake import ConnectOptions
from pyjs.core.auth.users import Authenticator, PasswordCheck, User
from pyjs.core.link import RELOADED, shown_reason
from pyjs.testing import RawClient, VirtualNode

LOGIN = b'CONNECT {"verbose":false,"pedantic":false,"user":"%b","pass":"%b"}\r\n'
HASHED = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
VIOLATION = b"-ERR 'Authorization Violation'\r\n"


def options_with(*users: UserOptions, **more: object) -> Options:
    options = Options(**more)  # type: ignore[arg-type]
    options.authorization.users = users
    return options


def hashed_node() -> VirtualNode:
    node = VirtualNode(options_with(UserOptions("h", HASHED), UserOptions("plain", "p")))
    node.hold_jobs = True
    return node


def reload(node: VirtualNode, options: Options) -> None:
    """Apply `options` as the server does on SIGHUP."""
    node.node.apply_options(options)
    for session in list(node.node.sessions.values()):
        session.reauthorize()
    node.turn()


def release(node: VirtualNode) -> None:
    node.hold_jobs = False
    node.turn()
    node.hold_jobs = True


def queued_jobs(node: VirtualNode) -> int:
    return len(node.node.turn_state.jobs)


# -- bcrypt is a job ---------------------------------------------------------------------------------------------


def test_input_waits_for_the_verdict_and_is_parsed_after_it() -> None:
    node = hashed_node()
    client = node.client(connect=None)

    client.send(LOGIN % (b"h", b"secret") + b"SUB a 1\r\nPUB a 1\r\nx\r\nPING\r\n")
    assert client.take() == b""
    assert not client.link.reading

    release(node)
    assert client.take().startswith(b"MSG a 1 1\r\nx\r\nPONG\r\n")
    assert client.link.reading


def test_a_wrong_password_is_refused_after_its_check() -> None:
    node = hashed_node()
    client = node.client(connect=None)
    client.send(LOGIN % (b"h", b"wrong") + b"PING\r\n")
    release(node)
    assert client.take() == VIOLATION
    assert client.session.closed_reason == "Authentication Failure"


def test_reads_that_arrive_during_a_check_stay_in_order() -> None:
    node = hashed_node()
    client = node.client(connect=None)
    client.send(LOGIN % (b"h", b"secret") + b"SUB a 1\r\nPU")
    client.send(b"B a 1\r\nx\r\nPUB a 1\r\n")
    client.send(b"y\r\n")
    release(node)
    assert b"MSG a 1 1\r\nx\r\nMSG a 1 1\r\ny\r\n" in client.take()


def test_a_verified_pair_is_not_checked_twice() -> None:
    node = hashed_node()
    client = node.client(connect=None)
    client.send(LOGIN % (b"h", b"secret") * 100 + b"PING\r\n")
    release(node)
    assert b"PONG" in client.take()
    assert queued_jobs(node) == 0

    again = node.client(connect=None)
    again.send(LOGIN % (b"h", b"secret") + b"PING\r\n")
    assert b"PONG" in again.take()


def test_a_reload_forgets_the_verified_pairs() -> None:
    node = hashed_node()
    first = node.client(connect=None)
    first.send(LOGIN % (b"h", b"secret"))
    release(node)

    reload(node, node.options)
    node.client(connect=None).send(LOGIN % (b"h", b"secret") + b"PING\r\n")

    assert queued_jobs(node) == 1


def test_verified_pairs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "VERIFIED_MAX", 2)
    users = [User(name, HASHED) for name in "abc"]
    authenticator = Authenticator(users, hash_key=b"k" * 32)
    claims = [authenticator.claim(ConnectOptions(user=user.name, password="secret")) for user in users]
    for claim in claims:
        check = authenticator.check(claim, lambda _: None)
        check.run()
        check.finish(None)
    assert [authenticator.decide(claim) for claim in claims] == [None, True, True]


def test_the_time_to_log_in_goes_on_during_a_check() -> None:
    node = hashed_node()
    client = node.client(connect=None)
    client.send(LOGIN % (b"h", b"secret"))
    node.advance(seconds=3)
    assert client.take() == b"-ERR 'Authentication Timeout'\r\n"
    release(node)
    assert client.take() == b""


def test_a_connection_that_is_gone_needs_no_check() -> None:
    node = hashed_node()
    client = node.client(connect=None)
    client.send(LOGIN % (b"h", b"secret"))
    client.session.connection_lost()
    client.session.close("Client Closed")
    (job,) = node.node.turn_state.jobs
    assert isinstance(job, PasswordCheck)
    assert job.cancelled
    release(node)
    assert not job.matches


def test_attempts_take_turns_by_address_and_connection() -> None:
    node = hashed_node()
    clients = [node.client(connect=None) for _ in range(2)]
    for client, name in zip(clients, (b"h", b"nobody"), strict=True):
        client.send(LOGIN % (name, b"wrong"))
    owners = [job.owner for job in node.node.turn_state.jobs]
    assert owners == [(client.session.peer.ip, client.session.cid) for client in clients]
    release(node)


def test_a_client_that_fires_and_forgets_is_heard_after_its_check() -> None:
    node = hashed_node()
    listener = node.client(connect=None)
    listener.send(LOGIN % (b"plain", b"p") + b"SUB a 1\r\n")
    client = node.client(connect=None)
    client.send(LOGIN % (b"h", b"secret") + b"PUB a 1\r\nx\r\n")
    client.session.connection_lost()
    release(node)
    assert listener.payloads() == [b"x"]
    assert client.session.closed_reason == "Client Closed"


def test_users_that_change_during_a_check_decide() -> None:
    node = hashed_node()
    client = node.client(connect=None)
    client.send(LOGIN % (b"h", b"secret") + b"PING\r\n")
    reload(node, options_with(UserOptions("h", bcrypt.hashpw(b"other", bcrypt.gensalt(4)).decode())))
    release(node)
    assert client.take() == VIOLATION


def test_a_failed_check_refuses() -> None:
    node = hashed_node()
    client = node.client(connect=None)
    client.send(LOGIN % (b"h", b"secret"))
    (job,) = node.node.turn_state.take("jobs")
    node.node.turn_state.finished.append((job, MemoryError()))
    node.turn()
    assert client.take() == VIOLATION


def test_only_the_first_72_bytes_of_a_password_count() -> None:
    hashed = bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4)).decode()
    node = VirtualNode(options_with(UserOptions("h", hashed)))
    client = node.client(connect=None)
    client.send(LOGIN % (b"h", b"x" * 80) + b"PING\r\n")
    assert b"PONG" in client.take()  # nats-server 2.15.1 accepts it too


# -- refusals take the same work ---------------------------------------------------------------------------------


def rounds_of_refusal(users: list[User], name: str, password: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many rounds of bcrypt a refusal takes."""
    authenticator = Authenticator(users, hash_key=b"k" * 32)
    claim = authenticator.claim(ConnectOptions(user=name, password=password))
    assert authenticator.decide(claim) is None
    rounds: list[int] = []

    def checkpw(given: bytes, secret: bytes) -> bool:
        rounds.append(1 << int(secret[4:6]))
        return False

    def hashpw(given: bytes, salt: bytes) -> bytes:
        rounds.append(1 << int(salt[4:6]))
        return b""

    monkeypatch.setattr(bcrypt, "checkpw", checkpw)
    monkeypatch.setattr(bcrypt, "hashpw", hashpw)
    check = authenticator.check(claim, lambda _: None)
    check.run()
    return sum(rounds)


@pytest.mark.parametrize("name", ["cheap", "dear", "plain", "broken", "nobody", ""])
def test_every_refusal_takes_the_work_of_the_dearest_secret(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest = "." * 53
    users = [
        User("cheap", f"$2a$04${rest}"),
        User("dear", f"$2a$09${rest}"),
        User("plain", "p"),
        User("broken", "$2a$xx"),
    ]
    assert rounds_of_refusal(users, name or "?", "wrong", monkeypatch) == 1 << 9


def test_a_refusal_that_bcrypt_cannot_judge_takes_the_same_work(monkeypatch: pytest.MonkeyPatch) -> None:
    users = [User("odd", "$2a$05$short"), User("dear", "$2a$08$" + "." * 53)]
    authenticator = Authenticator(users, hash_key=b"k" * 32)
    claim = authenticator.claim(ConnectOptions(user="odd", password="x"))
    costs: list[bytes] = []
    monkeypatch.setattr(bcrypt, "hashpw", lambda given, salt: costs.append(salt[4:6]))
    authenticator.check(claim, lambda _: None).run()
    assert costs[-1] == b"08"


def test_servers_without_hashed_secrets_decide_at_once() -> None:
    authenticator = Authenticator([User("u", "p")])
    decide = authenticator.decide
    assert decide(authenticator.claim(ConnectOptions(user="u", password="p"))) is True
    assert decide(authenticator.claim(ConnectOptions(user="u", password="x"))) is False
    assert decide(authenticator.claim(ConnectOptions(user="nobody", password=""))) is False
    assert decide(authenticator.claim(ConnectOptions(auth_token="t"))) is False
    assert decide(authenticator.claim(ConnectOptions())) is False


# -- reload ------------------------------------------------------------------------------------------------------


def subscribed(node: VirtualNode, connect: bytes | None) -> RawClient:
    client = node.client(connect=None)
    client.send((b"" if connect is None else connect) + b"SUB a 1\r\n")
    client.take()
    return client


ANYONE = b'CONNECT {"verbose":false,"pedantic":false}\r\n'


@pytest.mark.parametrize("connect", [None, ANYONE])
def test_authorization_turned_on_ends_those_without_a_user(connect: bytes | None) -> None:
    node = VirtualNode()
    client = subscribed(node, connect)

    reload(node, options_with(UserOptions("u", "p")))

    assert client.take() == VIOLATION  # as nats-server 2.15.1
    assert client.link.closed
    other = node.client(connect=None)
    other.send(LOGIN % (b"u", b"p") + b"PUB a 1\r\nx\r\n")
    assert client.take() == b""


def test_a_client_without_connect_becomes_the_no_auth_user() -> None:
    node = VirtualNode()
    client = subscribed(node, None)
    deny = PermissionOptions(subscribe=SubjectPermissions(None, ("a",)), publish=SubjectPermissions((), ()))
    reload(node, options_with(UserOptions("u", "p", deny), no_auth_user="u"))
    assert client.take() == b'-ERR \'Permissions Violation for Subscription to "a" (sid "1")\'\r\n'
    client.send(b"PUB b 0\r\n\r\n")
    assert b"Permissions Violation for Publish" in client.take()


def test_a_client_without_connect_does_not_follow_into_another_account() -> None:
    node = VirtualNode()
    client = subscribed(node, None)
    options = Options(no_auth_user="u", accounts={"A": AccountOptions(users=(UserOptions("u", "p"),))})
    reload(node, options)
    assert client.take() == b""  # nats-server says nothing to clients whose account changed
    assert client.session.closed_reason == RELOADED
    assert shown_reason(RELOADED) == "Client Closed"


def test_users_that_moved_or_are_gone_are_closed_without_a_word() -> None:
    accounts = {
        "A": AccountOptions(users=(UserOptions("m", "p"), UserOptions("r", "p"), UserOptions("s", "p")))
    }
    node = VirtualNode(Options(accounts=accounts))
    moved, removed, staying = (subscribed(node, LOGIN % (name, b"p")) for name in (b"m", b"r", b"s"))
    accounts = {
        "A": AccountOptions(users=(UserOptions("s", "p"),)),
        "B": AccountOptions(users=(UserOptions("m", "p"),)),
    }
    reload(node, Options(accounts=accounts))
    assert (moved.take(), removed.take(), staying.take()) == (b"", b"", b"")
    assert [c.link.closed for c in (moved, removed, staying)] == [True, True, False]


def test_a_changed_password_is_a_violation() -> None:
    node = VirtualNode(options_with(UserOptions("u", "p")))
    client = subscribed(node, LOGIN % (b"u", b"p"))
    reload(node, options_with(UserOptions("u", "new")))
    assert client.take() == VIOLATION


@pytest.mark.parametrize(("password", "stays"), [(b"secret", True), (b"p", False)])
def test_a_changed_hash_is_checked_while_input_waits(password: bytes, stays: bool) -> None:
    node = VirtualNode(options_with(UserOptions("u", password.decode())))
    client = subscribed(node, LOGIN % (b"u", password))
    node.hold_jobs = True

    reload(node, options_with(UserOptions("u", HASHED)))
    client.send(b"PING\r\n")
    assert client.take() == b""

    release(node)
    assert client.take() == (b"PONG\r\n" if stays else VIOLATION)


def test_a_second_reload_during_a_check_asks_the_last_users() -> None:
    node = VirtualNode(options_with(UserOptions("u", "secret")))
    client = subscribed(node, LOGIN % (b"u", b"secret"))
    node.hold_jobs = True
    reload(node, options_with(UserOptions("u", HASHED)))
    reload(node, options_with(UserOptions("u", "changed")))
    release(node)
    assert client.take() == VIOLATION


def test_authorization_turned_off_lets_those_in_who_wait() -> None:
    node = VirtualNode(options_with(UserOptions("u", "p")))
    client = node.client(connect=None)
    reload(node, Options())
    node.advance(seconds=5)
    client.send(b"SUB a 1\r\nPING\r\n")
    assert b"+OK\r\nPONG\r\n" in client.take()
    assert client.session in node.node.accounts["$G"].sessions


# -- the log -----------------------------------------------------------------------------------------------------


def test_names_cannot_forge_log_lines() -> None:
    node = VirtualNode(options_with(UserOptions("u", "p")))
    client = node.client(connect=None)
    client.send(b'CONNECT {"user":"x\\n[1] forged \\"q\\" \\\\ \\u0007 \xc3\xa9","pass":"z"}\r\n')
    _, line = node.log.lines[-1]
    assert line.endswith('authentication error - User "x\\n[1] forged \\"q\\" \\\\ \\a é"')
    assert all("\n" not in line for _, line in node.log.lines)


def test_errors_and_subjects_of_clients_are_logged_in_one_line() -> None:
    none = PermissionOptions(subscribe=SubjectPermissions((), (">",)), publish=SubjectPermissions((), (">",)))
    node = VirtualNode(options_with(UserOptions("u", "p", none)))
    client = node.client(connect=None)
    client.send(LOGIN % (b"u", b"p"))
    client.send(b"PUB a\x1b\xff\"\\b 0\r\n\r\nSUB a\x1b\xff q\x01 s\x02\r\n-ERR '\x1b[31m \"\xff'\r\n")
    assert client.take() == (  # as nats-server 2.15.1
        b'-ERR \'Permissions Violation for Publish to "a\\x1b\\xff\\"\\\\b"\'\r\n'
        b'-ERR \'Permissions Violation for Subscription to "a\\x1b\\xff" using queue "q\\x01"\'\r\n'
    )
    text = "".join(line for _, line in node.log.lines)
    assert text.isprintable()
    assert "Client Error '\\x1b[31m \"\\xff'" in text


def test_the_ping_timer_starts_after_the_login() -> None:
    node = hashed_node()
    client = node.client(connect=None)
    client.send(LOGIN % (b"h", b"secret"))
    release(node)
    client.take()
    node.clock.advance(3 * NS_PER_S)
    node.turn()
    assert b"PING\r\n" in client.take()
