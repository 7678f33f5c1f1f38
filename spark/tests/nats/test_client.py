"""The blocking client against both servers; each kind of login, and TLS, against nats-server."""

from __future__ import annotations

import base64
import binascii
import json
import os
import pickle
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from spark.tests.conftest import Filler, Start
from spark.tests.support.certificates import make_certificates
from tests.conformance.harness.process import ServerProcess
from tests.support.raw import RawClient

from pyjs_spark.errors import (
    AccessDenied,
    ApiError,
    BadCredentials,
    ConnectionLost,
    NoResponders,
    RequestTimeout,
    ServerUnreachable,
    SparkError,
)
from pyjs_spark.nats import nkeys
from pyjs_spark.nats.client import Client, connected
from pyjs_spark.nats.settings import Address, ConnectSettings, parse_address

Connect = Callable[..., Client]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Return a function that connects to a port with given settings; all connections are closed at the end."""
    made: list[Client] = []

    def client(port: int, scheme: str = "nats", **settings: object) -> Client:
        servers = (f"{scheme}://127.0.0.1:{port}",)
        made.append(Client(ConnectSettings(**({"servers": servers} | settings))))  # type: ignore[arg-type]
        return made[-1]

    yield client
    for one in made:
        one.close()


def dead_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# -- both servers ------------------------------------------------------------------------------------------------


def test_a_request_gets_its_answer(server: ServerProcess, connect: Connect) -> None:
    client = connect(server.port)

    assert client.info["headers"] is True
    assert json.loads(client.request("$JS.API.INFO").payload)["type"].endswith("account_info_response")
    assert client.api("INFO")["streams"] >= 0


def test_headers_and_payload_of_any_bytes_pass(server: ServerProcess, connect: Connect) -> None:
    client = connect(server.port)
    inbox = client.new_inbox()
    client.subscribe(inbox)
    headers = b"NATS/1.0\r\nA: 1\r\nA: \xc3\xbc\r\n\r\n"
    payload = bytes(range(256)) * 8192

    client.publish(inbox, payload, b"back", headers)
    client.publish(inbox)
    got = [client.next_message(time.monotonic() + 10) for _ in range(2)]

    assert got[0] is not None
    assert got[1] is not None
    assert (got[0].headers, got[0].payload, got[0].reply, got[0].status) == (headers, payload, b"back", 0)
    assert got[0].header(b"A") == "ü".encode()
    assert got[0].header(b"B") == b""
    assert (got[1].headers, got[1].payload) == (b"", b"")


def test_an_api_error_has_its_codes(server: ServerProcess, connect: Connect) -> None:
    with pytest.raises(ApiError, match="stream not found") as caught:
        connect(server.port).api("STREAM.INFO.NONE")

    assert (caught.value.code, caught.value.err_code) == (404, 10059)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_nobody_there_is_told_at_once(server: ServerProcess, connect: Connect) -> None:
    client = connect(server.port)

    with pytest.raises(NoResponders, match=rf"127.0.0.1:{server.port}: nobody answers no.such.*prefix"):
        client.request("no.such")
    with pytest.raises(NoResponders):
        connect(server.port, api_prefix="$JS.nodomain.API").api("INFO")


def test_an_answer_that_does_not_come_is_a_timeout(server: ServerProcess, connect: Connect) -> None:
    client = connect(server.port)
    client.subscribe(b"deaf")
    client.ping()

    with pytest.raises(RequestTimeout, match=r"no answer from deaf in 0.05 s"):
        client.request("deaf", timeout_s=0.05)
    assert client.api("INFO")["streams"] >= 0


def test_a_ping_of_the_server_is_answered(start_peer: Start, connect: Connect) -> None:
    server = start_peer('ping_interval: "100ms"\nping_max: 1')
    client = connect(server.port)

    # after two unanswered pings, the server closes the connection
    assert client.next_message(time.monotonic() + 0.5) is None
    client.ping()


def test_a_closed_connection_is_told_and_made_again(start_peer: Start, connect: Connect) -> None:
    server = start_peer("")
    client = connect(server.port)
    server.kill()

    with pytest.raises(ConnectionLost, match=rf"127.0.0.1:{server.port}: "):
        client.request("x")
    with pytest.raises(ServerUnreachable, match=r"Connection refused.*servers"):
        client.reconnect()


def test_every_address_is_tried_and_named(server: ServerProcess, connect: Connect) -> None:
    dead, other = dead_port(), dead_port()
    servers = (f"nats://127.0.0.1:{dead}", f"127.0.0.1:{server.port}", f"nats://localhost:{other}")

    assert connect(0, servers=servers).address == f"127.0.0.1:{server.port}"
    with pytest.raises(ServerUnreachable) as caught:
        connect(0, servers=(servers[0], servers[2]))
    assert f"127.0.0.1:{dead}: Connection refused" in str(caught.value)
    assert f"localhost:{other}: " in str(caught.value)


def test_what_is_no_nats_server_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def serve() -> None:
            for said in (b"SSH-2.0-x\r\n", b""):
                peer, _ = listener.accept()
                peer.sendall(said)
                peer.close()

        thread = threading.Thread(target=serve)
        thread.start()
        for wanted in ("no NATS server; is the port right", "closed the connection"):
            with pytest.raises(ServerUnreachable, match=wanted):
                Client(ConnectSettings((f"127.0.0.1:{port}",), timeout_s=5))
        thread.join()


def test_a_silent_port_is_told_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        with pytest.raises(ServerUnreachable, match=r"said nothing; does it expect TLS first"):
            Client(ConnectSettings((f"127.0.0.1:{port}",), timeout_s=0.1))


def test_the_connection_of_a_process_is_kept_and_proved(server: ServerProcess) -> None:
    settings = ConnectSettings((f"nats://127.0.0.1:{server.port}",))
    client = connected(settings)
    inbox = client.new_inbox()

    assert connected(settings) is client
    client.close()
    assert connected(settings) is client
    assert client.new_inbox() != inbox
    child = os.fork()
    if child == 0:
        os._exit(connected(settings) is client)
    assert os.waitpid(child, 0)[1] == 0
    assert connected(settings) is client
    client.close()


def test_frames_left_by_an_ended_subscription_are_skipped(
    filler: Filler, connect: Connect, server: ServerProcess
) -> None:
    client = connect(server.port)
    sid = client.subscribe(b"noise")
    publisher = RawClient(server.port)
    client.ping()
    publisher.send(b"PUB noise 3\r\nabc\r\n" * 1000)
    publisher.fence()
    client.unsubscribe(sid)

    assert client.api("INFO")["streams"] >= 0
    publisher.close()


# -- logging in, nats-server alone -------------------------------------------------------------------------------


def test_user_and_password_log_in_and_are_checked(
    start_peer: Start, connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = start_peer('authorization: {user: "ann", password: "s3cret"}').port
    (tmp_path / "secret").write_text("s3cret\n")
    monkeypatch.setenv("NATS_SECRET", "s3cret")

    connect(port, user="ann", password="s3cret").ping()
    connect(port, user="ann", password="env:NATS_SECRET").ping()
    connect(port, user="ann", password=f"file:{tmp_path}/secret").ping()
    connect(port, servers=(f"nats://ann:s3cret@127.0.0.1:{port}",)).ping()
    with pytest.raises(ServerUnreachable, match=r"refused the connection: 'Authorization Violation'"):
        connect(port, user="ann", password="wrong")
    with pytest.raises(BadCredentials, match=r"password: the environment variable NOT_SET is not set"):
        connect(port, user="ann", password="env:NOT_SET")
    with pytest.raises(BadCredentials, match=r"password: the file .*nothere cannot be read"):
        connect(port, user="ann", password=f"file:{tmp_path}/nothere")


def test_a_token_logs_in(start_peer: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    port = start_peer('authorization: {token: "t0ken"}').port
    monkeypatch.setenv("NATS_TOKEN", "t0ken")

    connect(port, token="env:NATS_TOKEN").ping()
    connect(port, servers=(f"nats://t0ken@127.0.0.1:{port}",)).ping()
    with pytest.raises(ServerUnreachable, match="refused"):
        connect(port, token="t1ken")


def test_a_missing_permission_is_told(start_peer: Start, connect: Connect) -> None:
    user = '{user: "ann", password: "x", permissions: {publish: "ok", subscribe: "_INBOX.>"}}'
    client = connect(start_peer(f"authorization: {{users: [{user}]}}").port, user="ann", password="x")

    with pytest.raises(
        AccessDenied, match=r"Permissions Violation for Publish to .*forbidden.*needs that permission"
    ):
        client.request("forbidden")


def seed_of(prefix: int, key: Ed25519PrivateKey) -> str:
    raw = bytes([18 << 3 | prefix >> 5, (prefix & 31) << 3]) + key.private_bytes_raw()
    return base64.b32encode(raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")).decode().rstrip("=")


def public_of(prefix: int, key: Ed25519PrivateKey) -> str:
    return nkeys.encoded(bytes([prefix]) + key.public_key().public_bytes_raw())


def test_a_seed_logs_in(start_peer: Start, connect: Connect, tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    seed = tmp_path / "user.nk"
    seed.write_text(f"# a user\n{seed_of(20 << 3, key)}\n")
    server = start_peer(f"authorization: {{users: [{{nkey: {public_of(20 << 3, key)}}}]}}")

    assert seed.read_text().split()[-1].startswith("SU")
    connect(server.port, nkey_seed_file=str(seed)).ping()
    seed.write_text(seed_of(20 << 3, Ed25519PrivateKey.generate()))
    with pytest.raises(ServerUnreachable, match="refused"):
        connect(server.port, nkey_seed_file=str(seed))
    seed.write_text("SU" + "A" * 56)
    with pytest.raises(BadCredentials, match="checksum is wrong"):
        connect(server.port, nkey_seed_file=str(seed))
    seed.write_text("nothing")
    with pytest.raises(BadCredentials, match="no user seed"):
        connect(server.port, nkey_seed_file=str(seed))
    with pytest.raises(BadCredentials, match="cannot be read"):
        connect(server.port, nkey_seed_file=str(tmp_path / "none"))
    seed.write_text(seed_of(20 << 3, key))
    with pytest.raises(BadCredentials, match="nkey_seed_file is given, but the server asks for no key"):
        connect(start_peer("").port, nkey_seed_file=str(seed))


def jwt_of(issuer: Ed25519PrivateKey, issuer_prefix: int, subject: str, kind: str, name: str) -> str:
    claims = {
        "jti": name, "iat": int(time.time()), "iss": public_of(issuer_prefix, issuer), "name": name, "sub": subject,
        "nats": {"type": kind, "version": 2},
    }  # fmt: skip
    if kind == "account":
        limits = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
        claims["nats"]["limits"] = limits | {"wildcards": True}  # type: ignore[index]
    if kind == "user":
        claims["nats"] |= {"pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1}  # type: ignore[operator]

    def part(value: object) -> bytes:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

    signed = part({"typ": "JWT", "alg": "ed25519-nkey"}) + b"." + part(claims)
    return (signed + b"." + base64.urlsafe_b64encode(issuer.sign(signed)).rstrip(b"=")).decode()


def test_a_creds_file_logs_in(start_peer: Start, connect: Connect, tmp_path: Path) -> None:
    operator, account, user = (Ed25519PrivateKey.generate() for _ in range(3))
    account_id = public_of(0, account)
    operator_jwt = jwt_of(operator, 14 << 3, public_of(14 << 3, operator), "operator", "O")
    account_jwt = jwt_of(operator, 14 << 3, account_id, "account", "A")
    user_jwt = jwt_of(account, 0, public_of(20 << 3, user), "user", "U")
    port = start_peer(
        f"operator: {operator_jwt}\nresolver: MEMORY\nresolver_preload: {{{account_id}: {account_jwt}}}"
    ).port
    creds = tmp_path / "user.creds"
    creds.write_text(
        f"-----BEGIN NATS USER JWT-----\n{user_jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed_of(20 << 3, user)}\n------END USER NKEY SEED------\n"
    )

    connect(port, creds_file=str(creds)).ping()
    creds.write_text("no jwt")
    with pytest.raises(BadCredentials, match="no user JWT"):
        connect(port, creds_file=str(creds))


# -- TLS, nats-server alone --------------------------------------------------------------------------------------


def tls_config(folder: Path, more: str = "") -> str:
    return (
        f'tls: {{cert_file: "{folder}/server.pem", key_file: "{folder}/server.key", '
        f'ca_file: "{folder}/ca.pem", {more}}}'
    )


def test_tls_is_used_when_the_server_wants_it(start_peer: Start, connect: Connect, tmp_path: Path) -> None:
    make_certificates(tmp_path)
    port = start_peer(tls_config(tmp_path)).port
    ca = str(tmp_path / "ca.pem")

    connect(port, tls_ca=ca).ping()
    connect(port, "tls", tls_ca=ca).ping()
    connect(port, servers=(f"nats://localhost:{port}",), tls_ca=ca, tls_hostname="nats.test").ping()
    with pytest.raises(ServerUnreachable, match=r"(?i)certificate verify failed"):
        connect(port)
    with pytest.raises(ServerUnreachable, match=r"(?i)hostname"):
        connect(port, tls_ca=ca, tls_hostname="other.test")
    with pytest.raises(BadCredentials, match=r"tls: .*none.pem cannot be used"):
        connect(port, tls_ca=str(tmp_path / "none.pem"))


def test_a_client_certificate_is_shown(start_peer: Start, connect: Connect, tmp_path: Path) -> None:
    make_certificates(tmp_path)
    port = start_peer(tls_config(tmp_path, "verify: true")).port
    ca, cert, key = (str(tmp_path / name) for name in ("ca.pem", "client.pem", "client.key"))

    connect(port, tls_ca=ca, tls_cert=cert, tls_key=key).ping()
    with pytest.raises(ServerUnreachable):
        connect(port, tls_ca=ca)


def test_tls_first_shakes_hands_before_info(start_peer: Start, connect: Connect, tmp_path: Path) -> None:
    make_certificates(tmp_path)
    port = start_peer(tls_config(tmp_path, "handshake_first: true")).port

    client = connect(port, tls_ca=str(tmp_path / "ca.pem"), tls_first=True)
    payload = bytes(1 << 20)
    inbox = client.new_inbox()
    client.subscribe(inbox)
    client.publish(inbox, payload)
    got = client.next_message(time.monotonic() + 10)

    assert got is not None
    assert got.payload == payload


def test_tls_that_is_not_offered_is_told(start_peer: Start, connect: Connect) -> None:
    with pytest.raises(ServerUnreachable, match="it offers no TLS"):
        connect(start_peer("").port, "tls")


# -- settings ----------------------------------------------------------------------------------------------------


def test_secrets_are_in_no_repr_and_looked_up_ones_in_no_pickle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATS_SECRET", "s3cret")
    settings = ConnectSettings(
        ("nats://ann:s3cret@a:1", "b"), user="ann", password="s3cret", token="env:NATS_SECRET"
    )
    looked_up = ConnectSettings(user="ann", password="env:NATS_SECRET")

    assert "s3cret" not in repr(settings)
    assert "nats://***@a:1" in repr(settings)
    assert "token='env:NATS_SECRET'" in repr(settings)
    assert b"s3cret" not in pickle.dumps(looked_up)
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert "s3cret" not in repr(parse_address(settings.servers[0]))


def test_a_connection_is_not_pickled(server: ServerProcess, connect: Connect) -> None:
    client = connect(server.port)

    with pytest.raises(TypeError, match="send its ConnectSettings"):
        pickle.dumps(client)
    assert re.fullmatch(r"Client\(127\.0\.0\.1:\d+\)", repr(client))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("nats://a:1", Address("a", 1)),
        ("a", Address("a", 4222)),
        ("tls://a", Address("a", 4222, tls=True)),
        ("nats://[::1]:5", Address("::1", 5)),
        ("nats://u:p%40q@h:1", Address("h", 1, user="u", password="p@q")),
    ],
)
def test_addresses_are_taken_apart(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(Address("::1", 5)) == "[::1]:5"


@pytest.mark.parametrize(
    "text",
    ["ws://u:s3cret@a:1", "nats://u:s3cret@", "nats://u:s3cret@a:port", "", "a/b", "nats://u:1/s3cret@a"],
)
def test_what_is_no_address_is_told_without_its_password(text: str) -> None:
    with pytest.raises(SparkError, match=r"^servers: ") as caught:
        parse_address(text)
    assert "s3cret" not in str(caught.value)
