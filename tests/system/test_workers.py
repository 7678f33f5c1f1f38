"""A server of several processes: clients on any worker, streams, kills, signals, pages, refused options."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.conformance.harness.cluster import NodeClient
from tests.conformance.harness.process import ServerProcess, free_port, our_command

WAIT_S = 60.0
JETSTREAM = 'jetstream: {store_dir: "<<store>>"}'


class Workers:
    """A running server with workers."""

    def __init__(
        self, directory: Path, config: str, count: int = 2, command: list[str] | None = None
    ) -> None:
        self.directory = directory
        self.count = count
        text = f'workers: {count}\npid_file: "{directory}/pid"\n{config}'
        self.process = ServerProcess(command or our_command(), text, directory, with_http=True, name="W")
        self.process.start()
        self._clients: list[NodeClient] = []

    def client(self, number: int, **options: object) -> NodeClient:
        """Return a client of one worker, made by repeated attempts: the kernel chooses the worker of a connection."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            client = NodeClient(self.process.port, **options)
            if client.infos[0]["server_name"] == f"W-{number}":
                self._clients.append(client)
                return client
            client.close()
        raise AssertionError(f"no connection reaches worker {number}")

    def clients(self) -> list[NodeClient]:
        """Return a client of each worker."""
        return [self.client(number) for number in range(1, self.count + 1)]

    def page(self, path: str) -> Any:
        """Return a monitoring page."""
        url = f"http://127.0.0.1:{self.process.http_port}{path}"
        with urllib.request.urlopen(url, timeout=WAIT_S) as reply:
            return json.load(reply)

    def samples(self, path: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """Return the samples of a page for Prometheus; a repeated sample or family is an error."""
        url = f"http://127.0.0.1:{self.process.http_port}{path}"
        with urllib.request.urlopen(url, timeout=WAIT_S) as reply:
            text = reply.read().decode()
        families = list(text_string_to_metric_families(text))
        assert len({each.name for each in families}) == len(families)
        found = [
            ((sample.name, tuple(sorted(sample.labels.items()))), sample.value)
            for family in families
            for sample in family.samples
        ]
        assert len(dict(found)) == len(found)
        return dict(found)

    def wait_page(self, path: str, holds: Callable[[Any], bool]) -> Any:
        """Poll a page until `holds` is true of it: no event signals a change."""
        deadline = time.monotonic() + WAIT_S
        while not holds(page := self.page(path)):
            assert time.monotonic() < deadline, page
            time.sleep(0.01)
        return page

    def wait_log(self, holds: Callable[[str], bool]) -> None:
        """Poll the log until `holds` is true of it."""
        deadline = time.monotonic() + WAIT_S
        while not holds(log := self.log()):
            assert time.monotonic() < deadline, log
            time.sleep(0.01)

    def worker(self, number: int) -> dict[str, Any]:
        """Return the entry of /varz for a worker."""
        found: dict[str, Any] = self.page("/varz")["pyjs_workers"][number - 1]
        return found

    def pids(self) -> list[int]:
        """Return the process ids of the workers."""
        return [each["pid"] for each in self.page("/varz")["pyjs_workers"]]

    def log(self) -> str:
        """Return the log."""
        return (self.directory / "log").read_text()

    def end(self) -> None:
        """Close the clients, and kill the server; its workers then end."""
        for client in self._clients:
            client.close()
        self.process.kill()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Workers]]:
    started: list[Workers] = []

    def begin(config: str = "", count: int = 2) -> Workers:
        directory = tmp_path / str(len(started))
        directory.mkdir()
        started.append(Workers(directory, config, count))
        return started[-1]

    yield begin
    for each in started:
        each.end()


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    """Return whether no process runs under `pid`; a zombie counts as gone."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return True
    return state == "Z"


def wait_gone(pid: int) -> None:
    wait_until(lambda: is_gone(pid), f"the end of {pid}")


def known(asker: NodeClient, subject: bytes) -> None:
    """Wait until a request from `asker` reaches a responder of `subject`."""
    asker.send(b"SUB _INBOX.known known\r\n")
    deadline = time.monotonic() + WAIT_S
    while True:
        kept, asker.frames = asker.frames, []
        asker.send(b"PUB %b _INBOX.known 0\r\n\r\n" % subject)
        asker.fence()
        refused = any(frame[0] == b"_INBOX.known" and b"503" in frame[3] for frame in asker.frames)
        asker.frames = kept + [frame for frame in asker.frames if frame[0] != b"_INBOX.known"]
        if not refused:
            break
        assert time.monotonic() < deadline, subject
    asker.send(b"UNSUB known\r\n")


def requested(client: NodeClient, subject: bytes, body: bytes = b"") -> bytes:
    """Return the answer to a request."""
    return asked(client, subject, body)[4]


def asked(client: NodeClient, subject: bytes, body: bytes = b"") -> tuple[bytes, bytes, bytes, bytes, bytes]:
    """Return the frame that answers a request."""
    client.send(b"SUB _INBOX.asked asked\r\nUNSUB asked 1\r\n")
    client.send(b"PUB %b _INBOX.asked %d\r\n%b\r\n" % (subject, len(body), body))
    while not (found := [frame for frame in client.frames if frame[0] == b"_INBOX.asked"]):
        client.wait_for_messages(len(client.frames) + 1)
    client.frames.remove(found[0])
    return found[0]


# -- core NATS -------------------------------------------------------------------------------------------------


def test_a_message_reaches_subscribers_of_all_workers_in_order(start: Callable[..., Workers]) -> None:
    server = start(count=3)
    clients = server.clients()
    for client in clients:
        client.send(b"SUB x.> 1\r\n")
        client.fence()
    for asker in clients:  # until each worker knows the subscriptions at the two others
        asker.send(b"SUB y.%d 2\r\n" % clients.index(asker))
        asker.fence()
    for asker in clients:
        for other in range(3):
            if clients[other] is not asker:
                known(asker, b"y.%d" % other)
    for number in range(500):
        clients[number % 3].send(b"PUB x.%d 3\r\n%03d\r\n" % (number % 3, number // 3))
    for client in clients:
        while sum(frame[0].startswith(b"x.") for frame in client.frames) < 500:
            client.wait_for_messages(len(client.frames) + 1)
        for publisher in range(3):
            bodies = [frame[4] for frame in client.frames if frame[0] == b"x.%d" % publisher]
            assert bodies == sorted(bodies)
            assert len(bodies) == len(set(bodies))


def test_a_queue_group_over_workers_gets_each_message_once(start: Callable[..., Workers]) -> None:
    server = start()
    one, two = server.clients()
    two.send(b"SUB work group 1\r\n")
    two.fence()
    known(one, b"work")
    one.send(b"PUB work 1\r\na\r\n")
    two.wait_for_messages(2)  # including that of `known`
    one.send(b"SUB work group 1\r\n")
    one.fence()
    two.frames.clear()
    one.frames.clear()
    for _ in range(100):
        one.send(b"PUB work 1\r\na\r\n")
    one.fence()
    assert len(one.frames) == 100  # a member on the same worker is preferred
    two.fence()
    assert two.frames == []


def test_a_request_without_responder_on_any_worker_is_answered_with_503(
    start: Callable[..., Workers],
) -> None:
    server = start()
    _, two = server.clients()
    assert b"503" in asked(two, b"nobody")[3]


def test_info_names_the_worker_and_no_internal_address(start: Callable[..., Workers]) -> None:
    server = start(JETSTREAM)
    infos = [client.infos[0] for client in server.clients()]
    assert [info["server_name"] for info in infos] == ["W-1", "W-2"]
    assert infos[0]["server_id"] != infos[1]["server_id"]
    assert infos[0]["client_id"] != infos[1]["client_id"]
    for info in infos:
        assert info["port"] == server.process.port
        assert info["jetstream"] is True
        assert "connect_urls" not in info
        assert "cluster" not in info


# -- streams ---------------------------------------------------------------------------------------------------


def add_stream(client: NodeClient, **config: object) -> dict[str, Any]:
    body = json.dumps({"name": "S", "subjects": ["s.>"]} | config).encode()
    answer: dict[str, Any] = json.loads(requested(client, b"$JS.API.STREAM.CREATE.S", body))
    assert "error" not in answer, answer
    return answer


def test_a_stream_is_used_from_every_worker(start: Callable[..., Workers]) -> None:
    server = start(JETSTREAM, count=3)
    clients = server.clients()
    add_stream(clients[2])
    for number, client in enumerate(clients, 1):
        known(client, b"s.x")
        answer = json.loads(requested(client, b"s.x", b"%d" % number))
        assert answer["stream"] == "S"
    state = json.loads(requested(clients[1], b"$JS.API.STREAM.INFO.S"))["state"]
    assert state["messages"] == state["last_seq"] >= 3


def test_pull_ack_and_pull_of_a_missing_consumer_from_another_worker(start: Callable[..., Workers]) -> None:
    server = start(JETSTREAM)
    _, two = server.clients()
    add_stream(two)
    for number in range(10):
        requested(two, b"s.x", b"%d" % number)
    body = {"stream_name": "S", "config": {"durable_name": "d", "ack_policy": "explicit"}}
    requested(two, b"$JS.API.CONSUMER.DURABLE.CREATE.S.d", json.dumps(body).encode())
    two.send(b"SUB in 1\r\nPUB $JS.API.CONSUMER.MSG.NEXT.S.d in 12\r\n" + b'{"batch":10}' + b"\r\n")
    two.wait_for_messages(10)
    assert [frame[4] for frame in two.frames] == [b"%d" % number for number in range(10)]
    for frame in list(two.frames):
        assert requested(two, frame[2], b"+ACK") == b""
    info = json.loads(requested(two, b"$JS.API.CONSUMER.INFO.S.d"))
    assert info["ack_floor"]["stream_seq"] == 10
    assert b"503" in asked(two, b"$JS.API.CONSUMER.MSG.NEXT.S.none")[3]


def test_a_client_of_another_worker_is_named_and_hears_of_the_shutdown(start: Callable[..., Workers]) -> None:
    server = start('jetstream: {store_dir: "<<store>>", domain: hub}')
    one = server.client(1)
    two = server.client(2, name="far", lang="test")
    one.send(b"SUB $JS.EVENT.ADVISORY.API a\r\n")
    one.fence()
    known(two, b"$JS.EVENT.ADVISORY.API")
    add_stream(two)
    one.wait_for_messages(2)
    asked_for, answered = one.take()
    assert asked_for[4] == b""
    audit = json.loads(answered[4])
    assert (audit["client"]["name"], audit["client"]["server"], audit["server"]) == ("far", "W-2", "W-1")
    assert b"Subject: $JS.API.CONSUMER.MSG.NEXT.S.d\r" in asked(two, b"$JS.hub.API.CONSUMER.MSG.NEXT.S.d")[3]
    body = {"stream_name": "S", "config": {"durable_name": "d", "ack_policy": "explicit"}}
    requested(two, b"$JS.API.CONSUMER.DURABLE.CREATE.S.d", json.dumps(body).encode())
    two.send(
        b"SUB in 1\r\nPUB $JS.API.CONSUMER.MSG.NEXT.S.d in 24\r\n" + b'{"expires":600000000000}' + b"\r\n"
    )
    while json.loads(requested(two, b"$JS.API.CONSUMER.INFO.S.d"))["num_waiting"] < 1:
        pass
    server.process.signal("TERM")
    two.wait_for_any()
    assert two.take()[0][3].startswith(b"NATS/1.0 409 Server Shutdown")


def test_a_large_backlog_for_another_worker_does_not_break_the_route(start: Callable[..., Workers]) -> None:
    """Consumers pause while many messages wait for a worker: 200 MB exceed the limits of a route and of a client."""
    server = start(f"{JETSTREAM}\nmax_payload: 1MB\nmax_pending: 128MB", count=2)
    one, two = server.clients()
    add_stream(one)
    body = b"z" * 100_000
    for _ in range(20):
        one.send(b"".join(b"PUB s.x %d\r\n%b\r\n" % (len(body), body) for _ in range(100)))
        one.fence()
    config = {"deliver_subject": "out", "ack_policy": "none", "durable_name": "p"}
    two.send(b"SUB out 1\r\n")
    two.fence()
    create = json.dumps({"stream_name": "S", "config": config}).encode()
    requested(two, b"$JS.API.CONSUMER.DURABLE.CREATE.S.p", create)
    two.skip(2000 * len(body))
    assert "Slow Consumer" not in server.log()


# -- death -----------------------------------------------------------------------------------------------------


def test_a_killed_worker_starts_again_and_messages_flow_again(start: Callable[..., Workers]) -> None:
    server = start()
    one = server.client(1)
    one.send(b"SUB x 1\r\n")
    one.fence()
    before = server.worker(2)
    os.kill(before["pid"], signal.SIGKILL)
    server.wait_page("/varz", lambda page: page["pyjs_workers"][1]["restarts"] == 1)
    server.wait_page("/varz", lambda page: page["pyjs_workers"][1]["state"] == "ready")
    after = server.worker(2)
    assert after["pid"] != before["pid"]
    assert f"worker 2 (pid {before['pid']}) was killed by signal 9 (SIGKILL); it starts again" in server.log()
    two = server.client(2)
    known(two, b"x")
    two.send(b"PUB x 1\r\na\r\n")
    assert one.wait_for(b"x") is not None


def test_the_first_worker_recovers_its_streams_after_kill_9(start: Callable[..., Workers]) -> None:
    server = start(JETSTREAM)
    two = server.client(2)
    add_stream(two)
    for number in range(50):
        requested(two, b"s.x", b"%d" % number)
    os.kill(server.worker(1)["pid"], signal.SIGKILL)
    server.wait_page("/varz", lambda page: page["pyjs_workers"][0]["restarts"] == 1)
    server.wait_page("/varz", lambda page: page["pyjs_workers"][0]["state"] == "ready")
    known(two, b"$JS.API.STREAM.INFO.S")
    state = json.loads(requested(two, b"$JS.API.STREAM.INFO.S"))["state"]
    assert state["messages"] == 50
    assert json.loads(requested(two, b"s.x", b"more"))["seq"] == 51


def test_the_workers_end_when_the_server_is_killed(start: Callable[..., Workers]) -> None:
    server = start(JETSTREAM)
    pids = server.pids()
    server.process.kill()
    for pid in pids:
        wait_gone(pid)


def test_a_stop_ends_all_processes_and_removes_the_files(start: Callable[..., Workers]) -> None:
    server = start(f'{JETSTREAM}\nports_file_dir: "<<store>>/.."')
    pid = int((server.directory / "pid").read_text())
    ports = server.directory / f"nats-server_{pid}.ports"
    assert json.loads(ports.read_text())["nats"] == [f"nats://127.0.0.1:{server.process.port}"]
    pids = server.pids()
    server.process.stop()
    assert all(is_gone(each) for each in pids)
    assert not ports.exists()
    log = server.log()
    assert "JetStream Shutdown" in log
    assert log.rstrip().endswith("Server Exiting..")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.process.port), WAIT_S)


def test_lame_duck_mode_ends_all_workers(start: Callable[..., Workers]) -> None:
    server = start()
    pids = server.pids()
    server.process.signal("USR2")
    for pid in pids:
        wait_gone(pid)
    assert server.process.logged("Server Exiting..", WAIT_S)
    assert server.log().count("Entering lame duck mode") == 2


def test_clients_in_lame_duck_mode_are_told_by_their_worker(start: Callable[..., Workers]) -> None:
    server = start()
    clients = server.clients()
    server.process.signal("USR2")
    for client in clients:
        client.wait_info(lambda info: bool(info.get("ldm")))
    server.process.signal("INT")
    assert server.process.logged("Server Exiting..", WAIT_S)


# -- configuration ---------------------------------------------------------------------------------------------


def test_a_log_file_is_opened_again_after_it_was_renamed(
    start: Callable[..., Workers], tmp_path: Path
) -> None:
    directory = tmp_path / "d"
    directory.mkdir()
    log = directory / "own.log"
    port = free_port()
    config = directory / "server.conf"
    config.write_text(f'listen: "127.0.0.1:{port}"\nserver_name: W\nworkers: 2\nlog_file: "{log}"\n')
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")}
    process = subprocess.Popen([*our_command(), "-c", str(config)], env=environment)
    try:
        wait_until(lambda: log.exists() and "Server is ready" in log.read_text(), "the start")
        assert "worker 1: Ready" in log.read_text()
        assert "worker 2: Ready" in log.read_text()
        log.rename(directory / "old.log")
        process.send_signal(signal.SIGUSR1)
        wait_until(lambda: log.exists() and "File log re-opened" in log.read_text(), "the new file")
    finally:
        process.terminate()
        assert process.wait(WAIT_S) == 0
    assert "worker 2: Initiating Shutdown..." in log.read_text()


def test_json_lines_of_workers_are_not_wrapped_again(start: Callable[..., Workers]) -> None:
    server = start("log_format: json")
    lines = [json.loads(line) for line in server.log().splitlines()]

    assert {each["level"] for each in lines} == {"info"}
    ready = {(each["worker"], each["text"]) for each in lines if each.get("worker")}
    assert {("worker 1", "Ready"), ("worker 2", "Ready")} <= ready
    assert {each["pid"] for each in lines} == {server.process.pid, *server.pids()}


def refusal(config: str, *flags: str) -> str:
    """Return the error text of the command when it refuses to start."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")}
    found = subprocess.run(
        [*our_command(), *flags],
        input=config,
        capture_output=True,
        text=True,
        env=environment,
        timeout=WAIT_S,
    )
    assert found.returncode == 1
    return found.stderr


@pytest.mark.parametrize("count", ["0", "65"])
def test_a_wrong_number_of_workers_is_refused(count: str) -> None:
    assert f'"workers" is {count}' in refusal("", "--workers", count)


def test_workers_in_a_cluster_are_refused() -> None:
    said = refusal("", "--workers", "2", "--cluster", "nats://127.0.0.1:-1", "--cluster_name", "X")
    assert "workers in a cluster of several servers are not supported yet" in said


def test_a_taken_port_ends_the_start(start: Callable[..., Workers]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refusal("", "--workers", "2", "-a", "127.0.0.1", "-p", str(port))
    assert f'Error listening on port: 127.0.0.1:{port}, "listen tcp' in said
    assert "address already in use" in said


def test_a_second_server_cannot_take_the_port(start: Callable[..., Workers]) -> None:
    server = start()
    said = refusal("", "--workers", "2", "-a", "127.0.0.1", "-p", str(server.process.port))
    assert "address already in use" in said


def test_a_worker_that_cannot_start_ends_the_server(tmp_path: Path) -> None:
    store = tmp_path / "file"
    store.write_text("no directory")
    said = refusal("", "--workers", "2", "-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(store))
    assert "worker 1: Can't start JetStream" in said


# -- pages -----------------------------------------------------------------------------------------------------


def test_health_is_bad_while_a_worker_is_down(start: Callable[..., Workers]) -> None:
    server = start()
    os.kill(server.worker(2)["pid"], signal.SIGSTOP)
    os.kill(server.worker(2)["pid"], signal.SIGKILL)

    def is_bad() -> bool:
        try:
            server.page("/healthz")
        except urllib.error.HTTPError as error:
            return error.code == 503 and b"worker 2 is not ready" in error.read()
        return False

    wait_until(is_bad, "a bad health")
    again = ("ready", 1)  # "ready" alone is reported until the death is noticed
    server.wait_page(
        "/varz", lambda page: tuple(page["pyjs_workers"][1][name] for name in ("state", "restarts")) == again
    )
    assert server.page("/healthz") == {"status": "ok"}


def test_the_system_account_sees_one_server_for_each_worker(start: Callable[..., Workers]) -> None:
    server = start(
        "accounts: {$SYS: {users: [{user: s, password: s}]}, A: {users: [{user: a, password: a}]}}"
    )
    two = server.client(2, user="s", **{"pass": "s"})
    two.send(b"SUB in 1\r\nPUB $SYS.REQ.SERVER.PING.IDZ in 0\r\n\r\n")
    two.wait_for_messages(2)
    assert {json.loads(frame[4])["name"] for frame in two.frames} == {"W-1", "W-2"}
    answer = requested(two, b"$SYS.REQ.SERVER.%b.RELOAD" % two.infos[0]["server_id"].encode())
    assert b"reloads all of them at once" in answer
