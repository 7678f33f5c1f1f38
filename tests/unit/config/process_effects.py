"""The effects of keys on a real process: where it listens, what it logs, which files it writes."""

from __future__ import annotations

import os
import re
import signal
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conformance.harness.forks import Forked
from tests.conformance.harness.process import free_port
from tests.support.certificates import COMMON, Authority, subject
from tests.support.certificates import LOCAL as LOCALHOST
from tests.support.raw import RawClient
from tests.unit.config.effects import DIRECTORY, KEY, Effect

SOURCE = Path(__file__).resolve().parents[3] / "src"
WAIT_S = 60.0
LOCAL = 'listen: "127.0.0.1:-1"'
READY = "Server is ready"


class Running:
    """A server process on one configuration file."""

    def __init__(self, directory: Path, text: str) -> None:
        directory.mkdir()
        if "tls" in text:
            make_certificates(directory)
        self.directory = directory
        (directory / "server.conf").write_text(text)
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "TZ": "EAST-9"}
        self.process = Forked(["-c", "server.conf"], directory / "stderr", directory, environment)
        self.wait_for(READY)

    def log(self) -> str:
        """Return all log lines, from every destination."""
        while True:
            files = [self.directory / "stderr", *sorted(self.directory.glob("log*"))]
            try:
                return "".join(file.read_text() for file in files)
            except FileNotFoundError:  # the file was rotated after it was listed
                continue

    def wait_for(self, text: str) -> None:
        end = time.monotonic() + WAIT_S
        while text not in self.log():
            assert time.monotonic() < end, f"no {text!r} in:\n{self.log()}"
            assert self.process.poll() is None, self.log()
            time.sleep(0.01)

    def address(self, what: str = "Listening for client connections") -> str:
        """Return host:port of a listener as logged, or "" if the log does not have it."""
        found = re.search(rf"{what} on (\S+)", self.log())
        return found[1] if found else ""

    def client(self) -> RawClient:
        return RawClient(int(self.address().rpartition(":")[2]))

    def end(self) -> None:
        self.process.kill()
        self.process.wait(WAIT_S)


def observe_process(effect: Effect, directory: Path, with_key: bool) -> object:
    """Return the observation of a process with the file of one run."""
    running = Running(directory, effect.file(directory, with_key))
    try:
        return effect.observe(running)
    finally:
        running.end()


def host(running: Running) -> object:
    return running.address().rpartition(":")[0]


def has_monitoring(running: Running) -> object:
    address = running.address("Starting http monitor")
    if not address:
        return None
    port = address.rpartition(":")[2]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=WAIT_S) as reply:
        return reply.status


def has_encrypted_monitoring(running: Running) -> object:
    address = running.address("Starting https monitor")
    if not address:
        return None
    context = ssl.create_default_context(cafile=str(running.directory / "ca.pem"))
    url = f"https://localhost:{address.rpartition(':')[2]}/healthz"
    with urllib.request.urlopen(url, timeout=WAIT_S, context=context) as reply:
        return reply.status


def levels(running: Running) -> object:
    """Observe the levels in the log after a client has connected."""
    client = running.client()
    client.fence()
    client.close()
    return set(re.findall(r"\[(DBG|TRC)\]", running.log()))


def traced(*lines: bytes) -> Callable[[Running], object]:
    """Observe the traced operations of a client that sends `lines`."""

    def observe(running: Running) -> object:
        client = running.client()
        client.send(b"".join(lines))
        client.fence()
        return re.findall(r"<<- (?:\[(?:SUB|PUB) .*\]|MSG_PAYLOAD.*)", running.log())

    return observe


def clock_format(running: Running) -> object:
    return re.sub(r"\d", "0", running.log().splitlines()[0].partition("[INF]")[0])[-28:]


def hours_from_utc(running: Running) -> object:
    found = re.search(r"(\d{4}/\d\d/\d\d \d\d:\d\d:\d\d)\.", running.log())
    assert found
    logged = time.mktime(time.strptime(found[1], "%Y/%m/%d %H:%M:%S"))
    return round((logged - time.mktime(time.gmtime())) / 3600)


def files(pattern: str) -> Callable[[Running], object]:
    return lambda running: len(list(running.directory.glob(pattern)))


def rotated(running: Running) -> object:
    """Observe the number of log files after many lines."""
    client = running.client()
    for _ in range(20):
        client.fence()
    running.process.send_signal(signal.SIGTERM)
    running.process.wait(WAIT_S)  # during a rotation there is one more file
    return len(list(running.directory.glob("log*"))) > 2


def gone_after_grace(running: Running) -> object:
    """Observe whether a lame duck with one client ends long before the usual grace period."""
    client = running.client()
    running.process.send_signal(signal.SIGUSR2)
    try:
        running.process.wait(4.0)
    except subprocess.TimeoutExpired:
        return False
    finally:
        client.close()
    return True


def goes_fast(running: Running) -> object:
    """Observe whether 8 of 150 clients are closed in 2.8 s: it takes up to 1.6 s of 30 s, or 3.2 s of two minutes."""
    clients = [running.client() for _ in range(150)]
    running.process.send_signal(signal.SIGUSR2)
    running.wait_for("Closing existing clients")
    end = time.monotonic() + 2.8
    while (closed := running.log().count("Client connection closed")) < 8 and time.monotonic() < end:
        time.sleep(0.02)
    for client in clients:
        client.close()
    return closed >= 8


SYSTEM_CLIENT = "accounts { SYS { users: [{user: u, password: p}] } }\nsystem_account: SYS\nno_auth_user: u"
LOGGED = f"{LOCAL}\nlog_file: log\ntrace: true"
FREE = free_port()


def local(key: str, observe: Callable[[Running], object], beside: str = "") -> Effect:
    return Effect(f"{LOCAL}\n{beside}\n{KEY}\n", key, observe)


# TLS


def make_certificates(directory: Path) -> None:
    """Write ca.pem, and certificates of two servers and of a client, each with its key."""
    authority = Authority(directory)
    for name in ("server", "other"):
        authority.issue(name, subject((name, COMMON)), *LOCALHOST)
    authority.issue("client", subject(("joe", COMMON)))


def encrypted(curve: str = "", certificate: bool = False, **choices: Any) -> Callable[[Running], object]:
    """Observe the TLS parameters that a client and the server agree on, with or without a client certificate."""

    def observe(running: Running) -> object:
        context = ssl.create_default_context(cafile=str(running.directory / "ca.pem"))
        if curve:
            context.set_ecdh_curve(curve)
        if certificate:
            context.load_cert_chain(running.directory / "client.pem", running.directory / "client-key.pem")
        for name, value in choices.items():
            setattr(context, name, value)
        with socket.create_connection(
            ("127.0.0.1", int(running.address().rpartition(":")[2])), WAIT_S
        ) as plain:
            assert plain.recv(4096).startswith(b"INFO ")
            try:
                with context.wrap_socket(plain, server_hostname="localhost") as line:
                    line.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
                    answer = line.recv(100)
                    return line.getpeercert()["subject"], line.cipher(), answer  # type: ignore[index]
            # ValueError: the server closed the connection before the last step
            except (ssl.SSLError, ConnectionError, ValueError):
                return "refused"

    return observe


def throttled(running: Running) -> object:
    """Observe whether one of many clients is told to retry later."""
    told = b""
    for _ in range(5):
        with socket.create_connection(
            ("127.0.0.1", int(running.address().rpartition(":")[2])), WAIT_S
        ) as line:
            line.settimeout(WAIT_S)
            told += line.recv(4096)
            line.sendall(b"no handshake")
            while piece := _received(line):
                told += piece
    return b"throttling" in told


def _received(line: socket.socket) -> bytes:
    try:
        return line.recv(4096)
    except ConnectionError:
        return b""


def tls(key: str, observe: Callable[[Running], object], without: str = "", block: str = "") -> Effect:
    """Return the experiment for a key of the block."""
    return Effect(f"{LOCAL}\ntls {{ {PAIR}, {block} {KEY} }}", key, observe, without)


def tls_beside(key: str, observe: Callable[[Running], object]) -> Effect:
    """Return the experiment with a top-level key in a configuration that also has the block `tls`."""
    return Effect(f"{LOCAL}\ntls {{ {PAIR} }}\n{KEY}", key, observe)


PAIR = "cert_file: server.pem, key_file: server-key.pem"
TLS_1_2 = ssl.TLSVersion.TLSv1_2
PINS = "pinned_certs: [" + "0a" * 32 + "]"
TLS_EFFECTS: dict[str, list[Effect]] = {
    "tls": [local(f"tls {{ {PAIR} }}", lambda running: "TLS required" in running.log())],
    "tls/cert_file": [tls("cert_file: other.pem, key_file: other-key.pem", encrypted())],
    "tls/key_file": [tls("key_file: other-key.pem, cert_file: other.pem", encrypted())],
    "tls/certs": [
        Effect(
            f"{LOCAL}\ntls {{ {KEY} }}",
            "certs: [{ cert_file: other.pem, key_file: other-key.pem }]",
            encrypted(),
            PAIR,
        )
    ],
    "tls/ca_file": [tls("ca_file: ca.pem", encrypted(certificate=True), block="verify: true,")],
    "tls/verify": [tls("verify: true", encrypted())],
    "tls/verify_and_map": [
        Effect(
            f"{LOCAL}\nauthorization {{ users: [{{ user: 'CN=joe', password: x }}] }}\n"
            f"tls {{ {PAIR}, ca_file: ca.pem, {KEY} }}",
            "verify_and_map: true",
            encrypted(certificate=True),
            "verify: true",
        )
    ],
    "tls/handshake_first": [
        tls("handshake_first: true", lambda running: '"TLS Handshake First"' in running.log())
    ],
    "tls/connection_rate_limit": [tls("connection_rate_limit: 1", throttled)],
    "tls/pinned_certs": [
        tls(PINS, encrypted(certificate=True), block="ca_file: ca.pem, verify: true,"),
    ],
    "tls/min_version": [tls('min_version: "1.3"', encrypted(maximum_version=TLS_1_2))],
    "tls/cipher_suites": [
        tls(
            "cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]",
            encrypted(maximum_version=TLS_1_2),
            "cipher_suites: [TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256]",
        )
    ],
    "tls/curve_preferences": [
        tls("curve_preferences: [CurveP521]", encrypted(curve="prime256v1")),
    ],
}

PROCESS_EFFECTS: dict[str, list[Effect]] = {
    "listen": [Effect(KEY, 'listen: "127.0.0.2:-1"', host, "port: -1")],
    "host": [Effect(f"port: -1\n{KEY}", "host: 127.0.0.2", host)],
    "port": [
        Effect(f"host: 127.0.0.1\n{KEY}", f"port: {FREE}", lambda running: running.address(), "port: -1")
    ],
    "debug": [local("debug: true", levels)],
    "trace": [local("trace: true", levels)],
    "trace_verbose": [
        Effect(
            f"{LOCAL}\n{SYSTEM_CLIENT}\n{KEY}",
            "trace_verbose: true",
            traced(b"SUB foo 1\r\n"),
            "trace: true",
        )
    ],
    "logtime": [local("logtime: false", clock_format)],
    "logtime_utc": [local("logtime_utc: true", hours_from_utc)],
    "log_format": [local("log_format: json", lambda running: running.log()[:9])],
    "log_file": [local(f'log_file: "{DIRECTORY}/log"', files("log"))],
    "log_size_limit": [Effect(f"{LOGGED}\n{KEY}", "log_size_limit: 500", rotated)],
    "log_max_num": [Effect(f"{LOGGED}\nlog_size_limit: 500\n{KEY}", "log_max_num: 2", rotated)],
    "max_traced_msg_len": [local("max_traced_msg_len: 3", traced(b"PUB foo 5\r\nhello\r\n"), "trace: true")],
    "workers": [local("workers: 2", lambda running: "worker 2: Ready" in running.log())],
    "pid_file": [local(f'pid_file: "{DIRECTORY}/pid"', files("pid"))],
    "ports_file_dir": [local(f'ports_file_dir: "{DIRECTORY}"', files("*.ports"))],
    "http": [local('http: "127.0.0.1:-1"', has_monitoring)],
    "http_port": [local("http_port: -1", has_monitoring)],
    "https": [tls_beside('https: "127.0.0.1:-1"', has_encrypted_monitoring)],
    "https_port": [tls_beside("https_port: -1", has_encrypted_monitoring)],
    "lame_duck_duration": [
        local("lame_duck_duration: 30s", goes_fast, "debug: true\nlame_duck_grace_period: 1ms")
    ],
    "lame_duck_grace_period": [local("lame_duck_grace_period: 1ms", gone_after_grace)],
    **TLS_EFFECTS,
}
