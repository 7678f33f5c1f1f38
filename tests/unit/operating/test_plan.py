"""`pyjs-server plan` against a real server in this process: logins, TLS, exit codes, wrong arguments."""

from __future__ import annotations

import asyncio
import io
import json
import os
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from tests.support.certificates import LOCAL, Authority, subject
from tests.unit.server.declaring.test_applier import Declaring

from pyjs.base.log import ListLog
from pyjs.config.load import load_options
from pyjs.operating import plan as command
from pyjs.server.declaring.part import read_declared
from pyjs.server.server import Server
from pyjs.server.system.config_file import read_file
from pyjs.testing.jwt import Key

Ran = tuple[int, str, str]
Run = Callable[..., Awaitable[Ran]]


def run_plan(path: Path, *words: str) -> Ran:
    """Return the exit code, the output and the errors of the command."""
    out, err = io.StringIO(), io.StringIO()
    try:
        arguments = command.parse(["-c", str(path), *words])
    except command.PlanFailed as error:
        return 1, "", str(error)
    options = load_options(str(path), read_file, {}, {})
    code = command.run(arguments, options, read_declared(options), out, err, os.environ)
    return code, out.getvalue(), err.getvalue()


@pytest.fixture
async def plan(tmp_path: Path) -> AsyncIterator[Run]:
    """Start a server with one file; return the plan of another one, which declares more."""
    servers: list[Server] = []

    async def run(text: str, blocks: str, *words: str, with_server: bool = True) -> Ran:
        path = tmp_path / "server.conf"
        store = f'listen: "127.0.0.1:-1"\njetstream {{ store_dir: "{tmp_path}/js"\n BLOCKS }}\n'
        if not servers:
            path.write_text(store.replace("BLOCKS", "") + text.replace("DECLARED", ""), "utf-8")
            server = Server(load_options(str(path), read_file, {}, {}), ListLog())
            await server.start()
            servers.append(server)
        own = "" if "DECLARED" in text else blocks
        path.write_text(store.replace("BLOCKS", own) + text.replace("DECLARED", blocks), "utf-8")
        where = ("--server", f"127.0.0.1:{servers[0].client_port}") if with_server else ()
        return await asyncio.to_thread(run_plan, path, *where, *words)

    yield run
    for server in servers:
        await server.stop()


async def test_the_plan_says_what_a_reload_does(tmp_path: Path) -> None:
    declaring = Declaring(tmp_path)
    server = await declaring.start("streams { S { subjects: s }\nOLD {} }")
    where = ("--server", f"127.0.0.1:{server.client_port}")
    same = await asyncio.to_thread(run_plan, declaring.path, *where)
    declaring.write("streams { S { subjects: [s, t] } }\nkv { b {} }")
    differs = await asyncio.to_thread(run_plan, declaring.path, *where)
    as_json = await asyncio.to_thread(run_plan, declaring.path, *where, "--json")
    await server.stop()

    assert same == (0, "= stream S\n= stream OLD\n", "")
    assert differs[0] == 2
    assert differs[1].splitlines() == [
        '~ stream S  update subjects: ["s"] -> ["s","t"]',
        "+ kv b  create",
        "- stream OLD  not in the file, left alone",
    ]
    assert as_json[0] == 2
    found = json.loads(as_json[1])
    assert found["changes"] is True
    assert [each["action"] for each in found["accounts"][0]["assets"]] == ["update", "create"]


async def test_a_file_that_declares_nothing_has_no_changes(plan: Run) -> None:
    assert await plan("", "") == (0, "the file declares no streams, consumers or buckets\n", "")


HASH = "$2a$04$abcdefghijklmnopqrstuuAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
USERS = """
accounts {
  A { users: [{user: a, password: pa}], jetstream { DECLARED } }
  B { users: [{user: b, password: "HASH"}], jetstream { DECLARED } }
}
""".replace("HASH", HASH)


async def test_each_account_is_asked_with_a_user_of_the_file(plan: Run) -> None:
    code, out, err = await plan(
        USERS.replace(HASH, "pb"),
        "streams { S {} }",
    )
    assert (code, out, err) == (2, "account A\n+ stream S  create\naccount B\n+ stream S  create\n", "")


async def test_a_user_without_a_plain_password_must_be_named(plan: Run) -> None:
    code, _, err = await plan(USERS, "streams { S {} }")
    assert code == 1
    assert 'the file has no user of the account "B" with a plain password' in err
    assert await plan(USERS, "streams { S {} }", "--account", "A") == (2, "+ stream S  create\n", "")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--user", "a", "--password", "pa"), "a login is for one account: add --account, one of A, B"),
        (("--account", "X"), 'the file declares nothing for the account "X"'),
        (("--account", "A", "--user", "a", "--password", "no"), "Authorization Violation"),
        (("--account", "A", "--token", "no"), "Authorization Violation"),
        (("--account", "A", "--nkey", "/missing"), "/missing: No such file"),
    ],
)
async def test_a_wrong_login_is_an_error(plan: Run, words: tuple[str, ...], text: str) -> None:
    code, out, err = await plan(USERS, "streams { S {} }", *words)
    assert (code, out) == (1, "")
    assert text in err


async def test_a_login_comes_from_variables(plan: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("NATS_USER", "a"), ("NATS_PASSWORD", "pa")):
        monkeypatch.setenv(name, text)
    assert (await plan(USERS, "streams { S {} }", "--account", "A"))[0] == 2
    assert "similar variables are a login too" in (await plan(USERS, "streams { S {} }"))[2]


async def test_a_password_comes_from_a_file(plan: Run, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("pa\n")
    words = ("--account", "A", "--user", "a", "--password-file", str(tmp_path / "password"))
    assert (await plan(USERS, "streams { S {} }", *words))[0] == 2


async def test_a_named_user_is_used(plan: Run) -> None:
    words = ("--account", "A", "--user=a", "--password=pa")
    assert (await plan(USERS, "streams { S {} }", *words))[0] == 2


@pytest.mark.parametrize(
    "login",
    [
        "authorization { user: u, password: p }",
        "authorization { token: t }",
        "authorization { users: [{user: u, password: p}] }",
        "authorization { users: [{user: u, password: p, permissions: {publish: x}}] }\nno_auth_user: u",
    ],
)
async def test_the_global_account_has_logins_too(plan: Run, login: str) -> None:
    code, out, err = await plan(login, "streams { S {} }")
    if "permissions" in login:
        assert "Permissions Violation" in err
    else:
        assert (code, out) == (2, "+ stream S  create\n")


async def test_an_nkey_signs_the_nonce(plan: Run, tmp_path: Path) -> None:
    key = Key("user")
    (tmp_path / "seed").write_text(key.seed)
    login = f"authorization {{ users: [{{nkey: {key.public}}}] }}"
    assert (await plan(login, "streams { S {} }"))[0] == 1
    code, *_ = await plan(login, "streams { S {} }", "--nkey", str(tmp_path / "seed"))
    assert code == 2
    (tmp_path / "seed").write_text(Key("account").seed)
    assert (
        "is not the seed of a user"
        in (await plan(login, "streams { S {} }", "--nkey", str(tmp_path / "seed")))[2]
    )


async def test_an_encrypted_port_needs_the_authority(plan: Run, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("server", subject(), *LOCAL)
    client = authority.issue("client", subject())
    files = f'cert_file: "{own.cert_file}", key_file: "{own.key_file}", ca_file: "{authority.ca_file}"'
    tls = f"tls {{ {files}, verify: true }}"
    ca = ("--tlsca", str(authority.ca_file))
    mine = ("--tlscert", str(client.cert_file), "--tlskey", str(client.key_file))
    assert "certificate verify failed" in (await plan(tls, "streams { S {} }"))[2]
    assert (await plan(tls, "streams { S {} }", *ca))[0] == 1
    assert (await plan(tls, "streams { S {} }", *ca, *mine)) == (2, "+ stream S  create\n", "")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--server", "x"), "not known"),
        (
            ("--server", "127.0.0.1:99999"),
            "127.0.0.1:99999 is no address: give its address as --server nats://HOST:PORT",
        ),
        (("--server", "nats://127.0.0.1:1"), "no connection to 127.0.0.1:1 (connection refused)"),
        (("--jsno",), 'unexpected "--jsno"; did you mean "--json"?\n\nUsage: pyjs-server plan'),
        (("extra",), 'unexpected "extra"\n\nUsage'),
        (("--server",), "--server needs a value"),
        ((), "the file has no fixed port: add --server HOST:PORT"),
    ],
)
async def test_a_wrong_argument_is_an_error(plan: Run, words: tuple[str, ...], text: str) -> None:
    code, out, err = await plan("", "streams { S {} }", *words, with_server=False)
    assert (code, out) == (1, "")
    assert text in err or "name resolution" in err


def test_the_file_must_be_named() -> None:
    with pytest.raises(command.PlanFailed, match="-c FILE is missing"):
        command.parse(["--json"])


def test_the_address_of_the_file_is_used(tmp_path: Path) -> None:
    listens = {
        "0.0.0.0:4333": "nats://127.0.0.1:4333",
        "10.0.0.1:4333": "nats://10.0.0.1:4333",
        "[::1]:4333": "nats://[::1]:4333",
    }
    for listen, url in listens.items():
        options = load_options("f", lambda path, text=listen: f'listen: "{text}"', {}, {})  # type: ignore[misc]
        assert command._url(command.parse(["-c", "f"]), options) == url
    assert command._url(command.parse(["-c", "f", "--server", "[::1]:4"]), options) == "[::1]:4"


# -- servers that are none -------------------------------------------------------------------------------------


INFO = b'INFO {"nonce":"x"}\r\n'
PONG = INFO + b"PONG\r\n"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "closed the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n", "is not the client port of a NATS server"),
        (b"INFO {\r\n", "sends no JSON object"),
        (INFO, "closed the connection"),
        (INFO + b"-ERR 'go away'\r\n", "refuses: go away"),
        (PONG + b"MSG x", "closed the connection"),
        (PONG + b"MSG i.0 1 5\r\nab", "closed the connection"),
        (PONG + b"MSG i.0 1 999999999\r\n", "announces an answer of 1,000,000,001 bytes"),
        (PONG + b"MSG i.0 1 %d\r\n" % 2**63, "is not the client port of a NATS server"),
        (PONG + b"MSG i.0 1 -5\r\n", "is not the client port of a NATS server"),
        (PONG + b"MSG\r\n", "is not the client port of a NATS server"),
        (PONG + b"MSG i.x 1 2\r\n{}\r\n", "is not the client port of a NATS server"),
        (PONG + b"MSG i.0 1 2\r\n[}\r\n", "sends no JSON object"),
        (PONG + b"PING\r\nHMSG i.7 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n", "closed the connection"),
        (PONG + b"HMSG i.0 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n", "no server answers"),
    ],
)
def test_a_server_that_answers_nonsense_is_an_error(data: bytes, text: str, tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_text("jetstream { streams { S {} } }")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):
                pass
            connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        code, out, err = run_plan(path, "--server", f"127.0.0.1:{listener.getsockname()[1]}")
        thread.join()
    assert (code, out) == (1, "")
    assert text in err


def test_a_server_that_is_silent_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "TIMEOUT_S", 0.01)
    path = tmp_path / "server.conf"
    path.write_text("jetstream { streams { S {} } }")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        code, _, err = run_plan(path, "--server", f"127.0.0.1:{listener.getsockname()[1]}")
    assert code == 1
    assert "sends nothing" in err
