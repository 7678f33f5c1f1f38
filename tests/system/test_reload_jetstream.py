"""Changes of the configuration of a running server with JetStream, on our server and on nats-server."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.raw import RawClient
from tests.system.test_process import Process, commands

NOT_ENABLED = 10039  # JetStream is not enabled for the account
NO_STREAM = 10059
MAXIMUM_STREAMS = 10027


class Reloadable:
    """A server with a configuration file that the tests rewrite."""

    def __init__(self, command: list[str], directory: Path, text: str) -> None:
        self.directory = directory
        self.write(text)
        self.process = Process(command, directory, ["-c", str(directory / "server.conf")])
        self.port = int(self.process.ports()["nats"][0].rpartition(":")[2])
        self.process.wait_line("Server is ready")

    def write(self, text: str) -> None:
        fixed = f'listen: "127.0.0.1:-1"\nports_file_dir: "{self.directory}"\n'
        (self.directory / "server.conf").write_text(fixed + text.replace("STORE", f'"{self.directory}/js"'))

    def reload(self, text: str) -> list[str]:
        """Reload the configuration `text`; return the log lines of the reload."""
        before = len(self.process.texts())
        self.write(text)
        self.process.signal(signal.SIGHUP)
        self.process.wait_until(
            lambda: any(
                "Reloaded server configuration" in line or "Failed to reload" in line
                for line in self.process.texts()[before:]
            ),
            "end of the reload",
        )
        return self.process.texts()[before:]

    def client(self, user: str = "") -> RawClient:
        who = b',"user":"%b","pass":"p"' % user.encode() if user else b""
        connect = b'CONNECT {"verbose":false,"headers":true,"no_responders":true,"protocol":1%b}\r\n' % who
        return RawClient(self.port, connect=connect)

    def error(self, user: str, name: str, /, **body: object) -> int:
        """Return the error code of an API request; 0: success; -1: no answer."""
        client = self.client(user)
        answer = client.try_api(name, **body)
        client.close()
        return answer["error"]["err_code"] if "error" in answer else 0 if answer else -1

    def is_silent_on(self, name: str) -> bool:
        """Return whether an API request has no responder: our server answers 503, nats-server not at all."""
        client = RawClient(self.port, timeout_s=1.0)
        try:
            return client.try_api(name) == {}
        except TimeoutError:
            return True

    def add(self, user: str, stream: str, storage: str = "file", /, **config: object) -> int:
        return self.error(
            user, f"STREAM.CREATE.{stream}", name=stream, subjects=[stream], storage=storage, **config
        )

    def messages(self, user: str, stream: str) -> int:
        client = self.client(user)
        count: int = client.api(f"STREAM.INFO.{stream}")["state"]["messages"]
        client.close()
        return count


Start = Callable[[str], Reloadable]


@pytest.fixture(params=commands())
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    started: list[Reloadable] = []

    def begin(text: str) -> Reloadable:
        started.append(Reloadable(request.param, tmp_path, text))
        return started[0]

    yield begin
    for server in started:
        server.process.popen.kill()
        server.process.popen.wait()


def accounts(**jetstream: str) -> str:
    """Return a configuration in which each account has one user of the same name and the given JetStream options."""
    blocks = [
        f"  {name} {{ users: [{{user: {name}, password: p}}]{text and ', ' + text} }}"
        for name, text in jetstream.items()
    ]
    return "jetstream { store_dir: STORE }\naccounts {\n" + "\n".join(blocks) + "\n}\n"


def test_a_new_account_gets_jetstream(start: Start) -> None:
    server = start(accounts(A="jetstream: enabled"))

    server.reload(accounts(A="jetstream: enabled", B="jetstream: enabled"))

    assert server.add("B", "S") == 0


def test_an_account_gets_jetstream_and_loses_it_and_has_its_streams_again(start: Start) -> None:
    server = start(accounts(A="", B="jetstream: enabled"))
    assert server.add("A", "S") == NOT_ENABLED
    server.reload(accounts(A="jetstream: enabled", B="jetstream: enabled"))
    assert server.add("A", "S") == 0
    client = server.client("A")
    client.request(b"S", b"one")
    client.request(b"S", b"two")
    client.api("CONSUMER.DURABLE.CREATE.S.c", stream_name="S", config={"durable_name": "c"})

    server.reload(accounts(A="", B="jetstream: enabled"))

    assert server.error("A", "STREAM.INFO.S") == NOT_ENABLED
    assert client.request(b"S", b"three") == b""
    server.reload(accounts(A="jetstream: enabled", B="jetstream: enabled"))
    assert server.messages("A", "S") == 2
    assert client.api("CONSUMER.INFO.S.c")["num_pending"] == 2
    client.request(b"S", b"three")
    assert server.messages("A", "S") == 3


def test_limits_of_an_account_change(start: Start) -> None:
    server = start(accounts(A="jetstream { max_streams: 1, max_mem: 1000 }"))
    assert server.add("A", "S") == 0
    assert server.add("A", "T") == MAXIMUM_STREAMS
    assert server.add("A", "M", "memory", max_bytes=2000) != 0

    server.reload(accounts(A="jetstream { max_streams: 3, max_mem: 3000 }"))

    assert server.add("A", "T") == 0
    assert server.add("A", "M", "memory", max_bytes=2000) == 0
    server.reload(accounts(A="jetstream { max_streams: 1, max_mem: 3000 }"))
    assert server.add("A", "U") == MAXIMUM_STREAMS
    assert server.error("A", "STREAM.INFO.T") == 0
    client = server.client("A")
    assert client.api("INFO")["limits"]["max_streams"] == 1


def test_an_account_that_is_removed_comes_back_with_its_streams(start: Start) -> None:
    server = start(accounts(A="jetstream: enabled", B="jetstream: enabled"))
    assert server.add("A", "S") == 0

    server.reload(accounts(B="jetstream: enabled"))
    server.reload(accounts(A="jetstream: enabled", B="jetstream: enabled"))

    assert server.messages("A", "S") == 0
    assert server.add("B", "S") == 0


def test_the_global_account_keeps_jetstream_when_others_come(start: Start) -> None:
    server = start("jetstream { store_dir: STORE }\n")
    assert server.add("", "S") == 0

    server.reload(accounts(A="jetstream: enabled") + "authorization { users: [{user: g, password: p}] }")

    assert server.add("A", "T") == 0
    assert server.error("g", "STREAM.INFO.S") == 0


def test_the_limits_of_the_server_grow_and_never_shrink(start: Start) -> None:
    server = start("jetstream { store_dir: STORE, max_mem: 1000, max_file: 1MB }")
    assert server.add("", "M", "memory", max_bytes=2000) != 0

    lines = server.reload("jetstream { store_dir: STORE, max_mem: 3000, max_file: 1MB }")

    assert any(line.startswith("INF Reloaded: JetStream max_mem_store = ") for line in lines)
    assert server.add("", "M", "memory", max_bytes=2000) == 0
    lines = server.reload("jetstream { store_dir: STORE, max_mem: 2000, max_file: 1MB }")
    assert any("Failed to reload" in line for line in lines)
    lines = server.reload("jetstream { store_dir: STORE, max_file: 1MB }")
    assert any("Failed to reload" in line for line in lines)


def test_jetstream_of_the_server_goes_and_comes(start: Start) -> None:
    server = start("jetstream { store_dir: STORE, max_mem: 1MB }")
    assert server.add("", "S") == 0
    client = server.client()
    client.request(b"S", b"one")

    lines = server.reload("max_payload: 1MB")

    assert "INF Reloaded: JetStream" in lines
    server.process.wait_until(lambda: server.is_silent_on("INFO"), "end of JetStream")
    server.reload("jetstream { store_dir: STORE, max_mem: 1MB }")
    assert server.messages("", "S") == 1
    client.request(b"S", b"two")
    assert server.messages("", "S") == 2


def test_jetstream_goes_and_comes_in_one_breath(start: Start) -> None:
    server = start("jetstream { store_dir: STORE }")
    assert server.add("", "S") == 0

    for text in ("max_payload: 1MB", "jetstream { store_dir: STORE }") * 5:
        server.reload(text)

    server.process.wait_until(lambda: not server.is_silent_on("INFO"), "JetStream")
    assert server.messages("", "S") == 0


def test_another_store_directory_is_refused(start: Start) -> None:
    server = start("jetstream { store_dir: STORE }")

    lines = server.reload("jetstream { store_dir: elsewhere }")

    assert any("Failed to reload" in line for line in lines)
    assert server.add("", "S") == 0
