"""An operator's connection: its logins, encryption, and errors if the other end is not a server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.certificates import COMMON, LOCAL, Authority, subject

from pyjs.aio import ServerThread
from pyjs.operating import connection as operating
from pyjs.operating.connection import AskFailed, Login, OperatorConnection, TlsFiles
from pyjs.operating.login import read_login
from pyjs.testing.jwt import Key, write_example

NOBODY, NO_FILES = Login(), TlsFiles()
INFO = b'INFO {"server_id":"A","server_name":"fake"}\r\n'
PING = "$SYS.REQ.SERVER.PING.IDZ"


@contextmanager
def saying(*parts: bytes) -> Iterator[str]:
    """Listen once: say the first part at once, and each other one after something was received; yield the address."""

    def serve() -> None:
        client, _ = listener.accept()
        with client:
            for at, part in enumerate(parts):
                if at and not client.recv(65536):
                    return
                client.sendall(part)
            client.shutdown(socket.SHUT_WR)
            while client.recv(65536):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def connected(url: str, login: Login = NOBODY, files: TlsFiles = NO_FILES) -> OperatorConnection:
    return OperatorConnection(url, login, files, 5.0)


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (
            (b"HTTP/1.1 400 Bad Request\r\n",),
            "is not the client port of a NATS server: give its address as --server",
        ),
        (
            (b"x" * (operating.LINE_SIZE_MAX + 2),),
            "is not the client port of a NATS server: give its address as --server",
        ),
        ((b"",), "closed the connection"),
        ((b"INFO [1]\r\n",), "sends no JSON object: is it a NATS server?"),
        ((b"INFO {\r\n",), "sends no JSON object: is it a NATS server?"),
        ((INFO, b"-ERR 'maximum connections exceeded'\r\n"), "refuses: maximum connections exceeded"),
        ((INFO, b"-ERR 'Authorization \x1b[31m'\r\n"), "refuses: Authorization \\x1b[31m"),
        ((INFO,), "closed the connection"),
        (
            (INFO.replace(b"{", b'{"tls_required":true,') + b"PONG\r\n",),
            "sends more than its INFO before the encryption",
        ),
        ((INFO.replace(b"{", b'{"tls_required":true,') + b"-ERR 'full'\r\n",), "refuses: full"),
    ],
)
def test_what_is_not_a_server_is_told(said: tuple[bytes, ...], text: str) -> None:
    with saying(*said) as address, pytest.raises(AskFailed) as failure:
        connected(address)

    assert str(failure.value).startswith(f"{address} {text}" if text[0] != ":" else address)


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (b"MSG a.0 1 999999999999\r\n", "announces an answer of 1,000,000,000,001 bytes"),
        (b"-ERR 'Permissions Violation for Publish to \"a\"'\r\n", "Permissions Violation for Publish"),
        (b"MSG a.0 1 2\r\nhi\r\n", "sends no JSON object"),
        (
            b"HMSG a.0 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
            "does not answer this user: log in as a user of the system account",
        ),
    ],
)
def test_an_answer_that_cannot_be_used_is_told(said: bytes, text: str) -> None:
    with (
        saying(INFO, b"PING\r\nPONG\r\n", said) as address,
        connected(address) as connection,
        pytest.raises(AskFailed) as failure,
    ):
        connection.request("a", b"")

    assert text in str(failure.value)


def test_an_answer_with_headers_is_read() -> None:
    with (
        saying(INFO, b"PONG\r\n", b'HMSG a.0 1 12 20\r\nNATS/1.0\r\n\r\n{"a": 1}\r\n') as address,
        connected(address) as connection,
    ):
        assert connection.request("a", b"") == {"a": 1}


def test_who_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(AskFailed) as failure:
        OperatorConnection(f"127.0.0.1:{silent.getsockname()[1]}", NOBODY, NO_FILES, 0.05)

    assert "sends nothing: is it the client port of a NATS server?" in str(failure.value)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        (
            "127.0.0.1:1",
            "no connection to 127.0.0.1:1 (connection refused): start the server, or give its address",
        ),
        ("nats://host:port", "nats://host:port is no address: give its address as --server nats://HOST:PORT"),
        (
            "ws://127.0.0.1",
            "the scheme ws:// is not supported here: give its address as --server nats://HOST:PORT",
        ),
    ],
)
def test_an_address_that_cannot_be_reached_is_told(url: str, text: str) -> None:
    with pytest.raises(AskFailed) as failure:
        connected(url)

    assert str(failure.value).startswith(text)


def test_a_login_may_be_in_the_url() -> None:
    with ServerThread(authorization={"user": "joe", "password": "s@cret"}) as server:
        address = server.client_url.removeprefix("nats://")
        with connected(f"nats://joe:s%40cret@{address}") as connection:
            assert connection.info["server_id"]
        with pytest.raises(AskFailed):
            connected(f"nats://joe:wrong@{address}")
    with (
        ServerThread(authorization={"token": "t0ken"}) as server,
        connected(server.client_url.replace("://", "://t0ken@")),
    ):
        pass


def test_a_user_with_an_nkey_signs(tmp_path: Path) -> None:
    key = Key("user")
    (tmp_path / "user.nk").write_text(key.seed + "\n")
    (tmp_path / "server.conf").write_text(
        f"listen: '127.0.0.1:-1'\naccounts {{ OPS {{ users: [{{nkey: {key.public}}}] }} }}\nsystem_account: OPS"
    )

    login = read_login({"nkey": str(tmp_path / "user.nk")}, {})
    assert login is not None

    with ServerThread(tmp_path / "server.conf") as server, connected(server.client_url, login) as connection:
        assert connection.request(PING, b"")["id"]


def test_a_user_of_an_operator_logs_in_with_credentials(tmp_path: Path) -> None:
    write_example(str(tmp_path))
    config = tmp_path / "server.conf"
    config.write_text("listen: '127.0.0.1:-1'\n" + config.read_text())

    login = read_login({}, {"NATS_CREDS": str(tmp_path / "admin.creds")})
    assert login is not None

    with ServerThread(config) as server, connected(server.client_url, login) as connection:
        assert connection.request(PING, b"")["id"]


def test_a_server_that_encrypts_is_asked_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("server", subject(("server", COMMON)), *LOCAL)
    (tmp_path / "server.conf").write_text(
        f"listen: '127.0.0.1:-1'\ntls {{ cert_file: '{issued.cert_file}', key_file: '{issued.key_file}'"
        f", ca_file: '{authority.ca_file}', verify: true }}"
    )
    files = TlsFiles(str(authority.ca_file), str(issued.cert_file), str(issued.key_file))

    with ServerThread(tmp_path / "server.conf") as server:
        address = server.client_url.rpartition("/")[2]
        with connected(address, files=files) as connection:
            assert connection.info["tls_required"]
        with pytest.raises(AskFailed) as failure:
            connected(f"tls://{address}")

    assert str(failure.value).startswith(f"no encrypted connection to {address} (")
    assert str(failure.value).endswith("): give the certificate of its authority as --tlsca FILE")


def test_a_seed_of_another_kind_is_told() -> None:
    with saying(INFO, b"PONG\r\n") as address:
        with pytest.raises(AskFailed) as failure:
            connected(address, Login(seed=Key("account").seed))
        with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))):
            pass

    assert str(failure.value) == "the key is not the seed of a user: it begins with SU"
