"""Many concurrent clients with different kinds of work, on a server with a million subjects and thousands of assets.

Every kind runs in its own thread with raw sockets until the time is over, and counts its operations.
"""

from __future__ import annotations

import json
import random
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

WINDOW = 100
TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Size:
    """The streams, consumers and subjects that exist when the workload begins."""

    subjects: int
    consumers: int
    streams: int
    seconds: float


class Client:
    """A blocking client."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")
        self._file.readline()
        self.inbox = f"_I.{self._socket.getsockname()[1]}"
        self.send(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n')
        self.send(f"SUB {self.inbox}.> 1\r\n".encode())
        self._asked = 0

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send protocol lines."""
        self._socket.sendall(data)

    def fence(self) -> None:
        """Wait until the server has handled everything, and drop messages that arrive meanwhile."""
        self.send(b"PING\r\n")
        for line in self._lines():
            if line.startswith(b"PONG"):
                return

    def _lines(self) -> Iterator[bytes]:
        """Yield control lines; payloads are read and dropped by `message`."""
        while line := self._file.readline():
            if line.startswith((b"MSG", b"HMSG")):
                self._file.read(int(line.split()[-1]) + 2)
            yield line

    def message(self) -> tuple[list[bytes], bytes]:
        """Return the words of the next message's control line, and its payload with headers."""
        while line := self._file.readline():
            if line.startswith((b"MSG", b"HMSG")):
                words = line.split()
                return words, self._file.read(int(words[-1]) + 2)[:-2]
            if line.startswith(b"-ERR"):
                raise AssertionError(line)
            if line.startswith(b"PING"):
                self.send(b"PONG\r\n")
        raise ConnectionError("the server closed the connection")

    def ask(self, subject: str, body: object = None) -> None:
        """Send a request; `message` returns its answer."""
        text = b"" if body is None else json.dumps(body).encode()
        self._asked += 1
        self.send(
            b"PUB %s %s.%d %d\r\n%s\r\n"
            % (subject.encode(), self.inbox.encode(), self._asked, len(text), text)
        )

    def request(self, subject: str, body: object = None) -> dict[str, Any]:
        """Return the answer of the JetStream API."""
        self.ask(f"$JS.API.{subject}", body)
        answer: dict[str, Any] = json.loads(self.message()[1])
        return answer

    def requests(self, calls: list[tuple[str, object]]) -> None:
        """Make requests with up to WINDOW of them in flight; each must succeed."""
        for at, (subject, body) in enumerate(calls):
            self.ask(f"$JS.API.{subject}", body)
            if at >= WINDOW:
                self._succeed()
        for _ in range(min(WINDOW, len(calls))):
            self._succeed()

    def _succeed(self) -> None:
        answer = json.loads(self.message()[1])
        assert "error" not in answer, answer


def stream(name: str, **config: object) -> tuple[str, object]:
    """Return the request that creates a stream."""
    return f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **config}


def durable(stream_name: str, name: str, **config: object) -> tuple[str, object]:
    """Return the request that creates a durable pull consumer."""
    body = {"durable_name": name, "ack_policy": "explicit", **config}
    return f"CONSUMER.CREATE.{stream_name}.{name}", {"stream_name": stream_name, "config": body}


def prepare(port: int, size: Size) -> None:
    """Create the assets that exist when the workload begins."""
    with Client(port) as client:
        crowded = stream("OWNER", max_consumers=2 * size.consumers)
        client.requests([stream("MANY", allow_direct=True), stream("WORK"), crowded])
        client.requests([stream(f"S{number}") for number in range(size.streams)])
        client.requests([durable("OWNER", f"c{number}") for number in range(size.consumers)])
        for begin in range(0, size.subjects, 5000):
            end = min(begin + 5000, size.subjects)
            client.send(b"".join(b"PUB MANY.k%d.v 5\r\nhello\r\n" % number for number in range(begin, end)))
            client.fence()


@dataclass
class Work:
    """One run: the number of operations of each kind, and its errors."""

    port: int
    http_port: int
    size: Size
    done: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Do every kind of work concurrently until the time is over."""
        threads = [threading.Thread(target=self._loop, args=(kind,)) for kind in KINDS]
        for thread in threads:
            thread.start()
        self.ended.wait(self.size.seconds)
        self.ended.set()
        for thread in threads:
            thread.join()

    def _loop(self, kind: Callable[[Work, Client, random.Random], int]) -> None:
        name, rng = kind.__name__, random.Random(kind.__name__)
        self.done[name] = 0
        try:
            with Client(self.port) as client:
                while not self.ended.is_set():
                    self.done[name] += kind(self, client, rng)
        except Exception as error:
            self.failures.append(f"{name}: {type(error).__name__}: {error}")
            self.ended.set()


def publish(work: Work, client: Client, rng: random.Random) -> int:
    """Publish to a stream, with acknowledgements."""
    for number in range(500):
        client.send(b"PUB WORK.%d %s.p 128\r\n%s\r\n" % (number % 50, client.inbox.encode(), b"x" * 128))
    for _ in range(500):
        client.message()
    return 500


def publish_known(work: Work, client: Client, rng: random.Random) -> int:
    """Publish to some of the million known subjects, and to some new ones."""
    lines = [
        b"PUB MANY.k%d.v 5\r\nagain\r\n" % rng.randrange(work.size.subjects * 11 // 10) for _ in range(500)
    ]
    client.send(b"".join(lines))
    client.fence()
    return 500


def pull(work: Work, client: Client, rng: random.Random) -> int:
    """Pull messages and acknowledge them."""
    if not client._asked:
        client.requests([durable("WORK", "puller")])
    client.ask("$JS.API.CONSUMER.MSG.NEXT.WORK.puller", {"batch": 200, "expires": 500_000_000})
    for _ in range(200):
        words, _ = client.message()
        if words[0] == b"HMSG":
            break  # a status ends the request
        client.send(b"PUB %s 4\r\n+ACK\r\n" % words[3])
    return 1


def come_and_go(work: Work, client: Client, rng: random.Random) -> int:
    """Connect, subscribe to a thousand subjects, and disconnect."""
    with Client(work.port) as other:
        other.send(b"".join(b"SUB come.%d.* %d\r\n" % (number, number + 2) for number in range(1000)))
        other.fence()
    return 1


def make_streams(work: Work, client: Client, rng: random.Random) -> int:
    """Create and delete streams."""
    names = [f"T{number}" for number in range(20)]
    client.requests([stream(name) for name in names])
    client.requests([(f"STREAM.DELETE.{name}", None) for name in names])
    return 20


def make_consumers(work: Work, client: Client, rng: random.Random) -> int:
    """Create and delete consumers."""
    names = [f"t{number}" for number in range(20)]
    client.requests([durable("OWNER", name) for name in names])
    client.requests([(f"CONSUMER.DELETE.OWNER.{name}", None) for name in names])
    return 20


def last_per_subject(work: Work, client: Client, rng: random.Random) -> int:
    """Watch the last message of each of a million subjects for a short time."""
    policy = {"deliver_policy": "last_per_subject", "filter_subject": "MANY.>"}
    client.requests([durable("MANY", "watcher", **policy), ("CONSUMER.DELETE.MANY.watcher", None)])
    return 1


def report(work: Work, client: Client, rng: random.Random) -> int:
    """Request information, lists and subjects."""
    client.requests(
        [
            ("STREAM.INFO.MANY", {"subjects_filter": "MANY.*.v", "offset": rng.randrange(10) * 100_000}),
            ("STREAM.INFO.MANY", {"subjects_filter": "*.k77.v"}),
            ("STREAM.LIST", {"offset": 0}),
            ("STREAM.NAMES", {"subject": "S7.>"}),
            ("CONSUMER.LIST.OWNER", {"offset": 256}),
            ("CONSUMER.NAMES.OWNER", None),
            ("STREAM.MSG.GET.MANY", {"last_by_subj": "MANY.k5.v"}),
        ]
    )
    return 7


def direct_gets(work: Work, client: Client, rng: random.Random) -> int:
    """Get messages directly, one at a time and in batches."""
    for number in range(100):
        client.ask(f"$JS.API.DIRECT.GET.MANY.MANY.k{number}.v")
    client.ask("$JS.API.DIRECT.GET.MANY", {"seq": 1, "batch": 50})
    for _ in range(151):
        client.message()
    return 101


def purge(work: Work, client: Client, rng: random.Random) -> int:
    """Purge by filter and by sequence, and update streams."""
    number = rng.randrange(1000)
    client.requests(
        [
            ("STREAM.PURGE.MANY", {"filter": f"MANY.k{number}.>"}),
            ("STREAM.PURGE.WORK", {"keep": 50_000}),
            ("STREAM.UPDATE.S1", {"name": "S1", "subjects": ["S1.>"], "max_msgs": 1000 + number}),
        ]
    )
    return 3


def monitor(work: Work, client: Client, rng: random.Random) -> int:
    """Request pages of the monitoring port."""
    for path in ("varz", "jsz?streams=1&limit=100", "connz?subs=1", "subsz?subs=1&limit=1000", "healthz"):
        with urllib.request.urlopen(f"http://127.0.0.1:{work.http_port}/{path}", timeout=TIMEOUT_S) as answer:
            answer.read()
    work.ended.wait(0.05)  # the interval of a dashboard that refreshes often
    return 5


def fan_out(work: Work, client: Client, rng: random.Random) -> int:
    """Publish to many subscribers and queue groups."""
    if not work.done["fan_out"]:
        client.send(b"".join(b"SUB fan.* g%d %d\r\n" % (number % 50, number + 2) for number in range(200)))
    client.send(b"".join(b"PUB fan.%d 5\r\nhello\r\n" % number for number in range(50)))
    client.fence()
    return 50


def slow_reader(work: Work, client: Client, rng: random.Random) -> int:
    """Request much data, and close the connection before it is read."""
    with Client(work.port) as other:
        with suppress(OSError):
            other.ask("$JS.API.DIRECT.GET.MANY", {"seq": 1, "batch": 100_000, "max_bytes": 1 << 20})
        work.ended.wait(0.02)
    return 1


KINDS: tuple[Callable[[Work, Client, random.Random], int], ...] = (
    publish,
    publish_known,
    pull,
    come_and_go,
    make_streams,
    make_consumers,
    last_per_subject,
    report,
    direct_gets,
    purge,
    monitor,
    fan_out,
    slow_reader,
)


def measure(port: int, http_port: int, size: Size) -> Work:
    """Prepare a server, run the workload and return its results."""
    began = time.monotonic()
    prepare(port, size)
    work = Work(port, http_port, size)
    work.done["prepare, ms"] = int(1000 * (time.monotonic() - began))
    work.run()
    return work
