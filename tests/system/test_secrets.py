"""No output of a server has a secret: every place for one is filled, and everything that it prints is searched."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import bcrypt
import pytest
from tests.conformance.harness.process import ServerProcess, free_port, our_command

from pyjs.cli import main
from pyjs.testing.jwt import Key, user_token

WORD = "s3cret"  # begins every secret
SEED = Key("user").seed
JWT = user_token(Key("account"), Key("user"), "joe")
HASHED = bcrypt.hashpw(f"{WORD}-hashed".encode(), bcrypt.gensalt(4)).decode()
CONFIG = f"""
debug: true
trace_verbose: true
accounts {{
    OPS {{ users: [{{user: ops, password: "{WORD}-ops"}}] }}
    APP {{
        jetstream: enabled
        users: [{{user: app, password: "{WORD}-app"}}, {{user: hashed, password: "{HASHED}"}}]
    }}
}}
system_account: OPS
jetstream {{ store_dir: "<<store>>", key: "{WORD}-key", prev_key: "{WORD}-prev", cipher: chacha }}
http_authorization {{ user: page, password: "{WORD}-page" }}
websocket {{
    listen: "127.0.0.1:-1", no_tls: true
}}
cluster {{
    name: C, listen: "127.0.0.1:-1"
    authorization {{ user: route, password: "{WORD}-route" }}
    routes: ["nats://route:{WORD}-url@127.0.0.1:1", "nats://{WORD}-token@127.0.0.1:2"]
}}
"""
PAGES = [
    "varz",
    "varz?config=1",
    "connz?auth=1&subs=detail&state=any",
    "routez?subs=detail",
    "jsz?streams=1&config=1",
]
PAGES += [
    "accountz",
    "accountz?acc=APP",
    "accstatz",
    "subsz?subs=1",
    "healthz",
    "metrics",
    "whyz",
    "declaredz",
    "",
]
LOGINS: list[dict[str, object]] = [
    {"user": "app", "pass": f"{WORD}-app"},
    {"user": "hashed", "pass": f"{WORD}-hashed"},
    {"user": "app", "pass": f"{WORD}-wrong"},
    {"user": "ops", "pass": f"{WORD}-ops", "name": "the operator"},
    {"auth_token": f"{WORD}-tok"},
    {"jwt": JWT, "sig": f"{WORD}-sig", "nkey": "UABC"},
]
RAW = [
    b'CONNECT {"PASS": "s3cret-upper", "user": "app"}\r\nPING\r\n',
    b'CONNECT {"user": "app", "pass": "s3cret-open\r\nPING\r\n',
    b"CONNECT {pass: s3cret-bare}\r\nPING\r\n",
    b'CONNECT {"user": 7, "pass": "s3cret-kind"}\r\nPING\r\n',
    b'CONNECT {"p\\u0061ss": "s3cret-escaped", "user": "app"}\r\nPING\r\n',
]
Ran = Callable[..., str]


class Output:
    """A running server, and everything that it has printed."""

    def __init__(self, directory: Path) -> None:
        self.server = ServerProcess(our_command(), CONFIG, directory, with_http=True)
        self.server.start()

    def page(self, path: str, user: str = f"page:{WORD}-page") -> str:
        login = base64.b64encode(user.encode()).decode()
        url = f"http://127.0.0.1:{self.server.http_port}/{path}"
        request = urllib.request.Request(url, headers={"Authorization": f"Basic {login}"})
        try:
            with urllib.request.urlopen(request) as reply:
                return str(reply.read().decode())
        except urllib.error.HTTPError as error:
            return error.read().decode()

    def connect(self, data: bytes) -> str:
        """Send `data`; return what the server answers until it closes or says PONG."""
        heard = b""
        with socket.create_connection(("127.0.0.1", self.server.port)) as client:
            client.sendall(data)
            while b"PONG" not in heard:
                part = client.recv(65536)
                heard += part
                if not part:
                    break
        return heard.decode()

    def log(self) -> str:
        return self.server._log.read_text()


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Output]:
    found = Output(tmp_path_factory.mktemp("secrets"))
    yield found
    found.server.kill()


@pytest.fixture
def ran(capsys: pytest.CaptureFixture[str]) -> Ran:
    """Runs the command in this process; returns its output and errors."""

    def run(*words: str) -> str:
        main([*words])
        return "".join(capsys.readouterr())

    return run


def started(*words: str) -> str:
    """Run a server that cannot start; return its output."""
    done = subprocess.run([sys.executable, "-m", "pyjs", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    return done.stdout + done.stderr


def test_logs_traces_and_answers_have_no_secret(output: Output) -> None:
    heard = [output.connect(b"CONNECT %b\r\nPING\r\n" % json.dumps(login).encode()) for login in LOGINS]
    heard += [output.connect(data) for data in RAW]
    payload = f"{SEED} {JWT}".encode()
    heard.append(
        output.connect(
            b'CONNECT {"user":"app","pass":"s3cret-app","verbose":false}\r\n'
            b"PUB keys %d\r\n%b\r\nPING\r\n" % (len(payload), payload)
        )
    )
    heard.append(output.page("varz", f"joe:{WORD}-page"))

    log = output.log()
    assert '<<- [CONNECT {"user": "app", "pass": "[REDACTED]"}]' in log
    assert 'MSG_PAYLOAD: ["[REDACTED] [REDACTED]"]' in log
    for text in (log, *heard):
        assert WORD not in text
        assert SEED not in text
        assert JWT not in text


@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_no_secret(output: Output, path: str) -> None:
    text = output.page(path)

    assert WORD not in text
    assert HASHED not in text


@pytest.mark.parametrize(
    "words", [["--print-config"], ["doctor"], ["doctor", "--json"], ["-t"]], ids=" ".join
)
def test_a_command_that_reads_the_configuration_prints_no_secret(
    output: Output, ran: Ran, words: list[str]
) -> None:
    command, flags = (words[:1], words[1:]) if words[0] == "doctor" else ([], words)

    text = ran(*command, *flags, "-c", str(output.server.config_path))

    assert text
    assert WORD not in text
    assert HASHED not in text


def test_secrets_of_a_port_for_websockets_are_not_printed(ran: Ran, tmp_path: Path) -> None:
    config = tmp_path / "server.conf"
    login = f'authorization {{ username: web, password: "{WORD}" }}'
    config.write_text(f"websocket {{ port: 1, no_tls: true, {login} }}")

    for words in (["--print-config"], ["-t"]):
        text = ran(*words, "-c", str(config))
        assert "server.conf" in text or '"***"' in text
        assert WORD not in text


def test_secrets_of_flags_are_not_printed(ran: Ran) -> None:
    flags = ["--user", "joe", "--pass", f"{WORD}-flag", "--cluster", f"nats://joe:{WORD}-url@127.0.0.1:-1"]
    flags += ["--routes", f"nats://joe:{WORD}-url@127.0.0.1:1", "--cluster_name", "C"]

    texts = [
        ran(*flags, "--print-config"),
        ran("doctor", *flags, "-p", "-1"),
        started(*flags, "-a", "no.such.host"),
    ]
    for text in texts:
        assert text
        assert WORD not in text


@pytest.mark.parametrize(
    "line",
    [
        f'authorization {{ user: joe, password: "{WORD}" "{WORD}" }}',
        f'authorization {{ user: joe, password: "{WORD}',
        f'authorization {{ user: joe, passwort: "{WORD}" }}',
        f'authorization {{ password: "{WORD}" }}',
        f'authorization {{ token: "{WORD}", password: "{WORD}", user: "a" }}',
        f"authorization {{ token: [{WORD}] }}",
        f"authorization {{ users: [{{ user: joe, password: {{ {WORD}: 1 }} }}] }}",
        f'accounts {{ A {{ users: [{{user: a, password: "{WORD}"}}, {{user: a, password: "{WORD}2"}}] }} }}',
        f'jetstream {{ key: "{WORD}", cipher: none }}',
        f'jetstream {{ prev_key: "{WORD}" }}',
        f'cluster {{ routes: ["nats://joe:{WORD}@host:port"] }}',
        f'cluster {{ routes: ["nats:/joe:{WORD}@host"] }}',
        f'cluster {{ routes: ["http://joe:{WORD}@host:80"] }}',
        f'http_authorization {{ password: "{WORD}" }}',
        f'websocket {{ port: 1, no_tls: true, token: "{WORD}", jwt_cooky: "{WORD}" }}',
    ],
)
def test_an_error_in_a_line_with_a_secret_does_not_show_it(ran: Ran, tmp_path: Path, line: str) -> None:
    config = tmp_path / "server.conf"
    config.write_text(line + "\n")

    text = ran("-t", "-c", str(config))

    assert "server.conf:1" in text
    assert WORD not in text


def test_a_crash_prints_no_secret(tmp_path: Path) -> None:
    config = tmp_path / "server.conf"
    config.write_text(
        f'server_name: one\nlisten: "127.0.0.1:{free_port()}"\n{CONFIG.replace("<<store>>", os.devnull)}'
    )

    text = started("-c", str(config))

    assert "Error" in text or "FTL" in text
    assert WORD not in text
