"""A replica added to a large stream under load: how long the copy takes, and its effect on publishers.

    python benchmarks/copy_replica.py [--mb SIZE] [--rate N] [--only ours|peer] [--dir DIRECTORY]

Three servers have a stream with two replicas and SIZE MB of messages. One client publishes at a steady rate and waits
for each acknowledgement; after BEFORE_S the stream gets a third replica. The copy is complete when the leader reports
the new replica as current, and the server of this replica shows all messages. The publisher's waits before and during
the copy are compared. The processor time is that of all three servers during the copy.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import ExitStack
from typing import Any

from cluster import Trio
from plain_client import PlainClient
from servers import RunningServer, find_peer, our_command, peer_command

SIZE = 16 << 10  # bytes of each message that is stored before the copy
LOAD_SIZE = 1 << 10  # bytes of a message that is published during the copy
BEFORE_S = 10.0
WAIT_S = 3600.0
LOOK_S = 0.2  # pause between two polls of the copy
STREAM = {"name": "BIG", "subjects": ["big.>"], "num_replicas": 2}


class Publisher(threading.Thread):
    """Publishes at a steady rate; `waits` has the time of each publish and the seconds until its acknowledgement."""

    def __init__(self, port: int, rate: float) -> None:
        super().__init__(daemon=True)
        self._client = PlainClient(port)
        self._every_s = 1 / rate
        self._ends = threading.Event()
        self.waits: list[tuple[float, float]] = []

    def run(self) -> None:
        """Publish until `stop` is called."""
        client, payload = self._client, b"x" * LOAD_SIZE
        line = b"PUB big.load %s.l %d\r\n%s\r\n" % (client.inbox, LOAD_SIZE, payload)
        due = time.monotonic()
        while not self._ends.is_set():
            began = time.monotonic()
            client.send(line)
            (answer,) = client.frames(1)
            if b'"seq"' not in answer[1]:
                raise SystemExit(f"copy_replica: a publish was answered by {answer[1]!r}")
            self.waits.append((began, time.monotonic() - began))
            due = max(due + self._every_s, began)
            self._ends.wait(max(0.0, due - time.monotonic()))

    def stop(self) -> None:
        """Stop after the current publish."""
        self._ends.set()
        self.join()
        self._client.close()

    def between(self, first_s: float, last_s: float) -> dict[str, float]:
        """Return the figures, in ms, of the publishes in an interval."""
        waits = sorted(1000 * wait for at, wait in self.waits if first_s <= at < last_s)
        if not waits:
            raise SystemExit("copy_replica: nothing was published in that time")
        return {
            "count": len(waits),
            "p50": waits[len(waits) // 2],
            "p99": waits[min(len(waits) - 1, len(waits) * 99 // 100)],
            "max": waits[-1],
        }


def measure(trio: Trio, size_mb: int, rate: float) -> dict[str, Any]:
    """Fill the stream, and add the replica under load; return the figures."""
    client = PlainClient(trio.servers[0].port)
    client.request("$JS.API.STREAM.CREATE.BIG", STREAM)
    count = (size_mb << 20) // SIZE
    client.publish(count, lambda _: b"big.fill", SIZE, window=128)
    names = _members(_settled(client, 1))
    added = next(server for number, server in enumerate(trio.servers) if f"n{number}" not in names)
    load = Publisher(trio.servers[0].port, rate)
    load.start()
    started_s = time.monotonic()
    time.sleep(BEFORE_S)  # the figures of this time are for comparison
    cpu_s, asked_s = sum(each.cpu_s() for each in trio.servers), time.monotonic()
    client.request("$JS.API.STREAM.UPDATE.BIG", {**STREAM, "num_replicas": 3})
    _settled(client, 2)
    _wait_stored(added, count)
    copied_s = time.monotonic()
    cpu_s = sum(each.cpu_s() for each in trio.servers) - cpu_s
    load.stop()
    client.close()
    return {
        "before": load.between(started_s, asked_s),
        "during": load.between(asked_s, copied_s),
        "seconds": copied_s - asked_s,
        "mb_s": size_mb / (copied_s - asked_s),
        "cpu_s": cpu_s,
    }


def _settled(client: PlainClient, others: int) -> dict[str, Any]:
    """Wait until the stream has `others` current replicas besides its leader; return its `cluster`."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        cluster: dict[str, Any] = client.request("$JS.API.STREAM.INFO.BIG")["cluster"]
        rows = cluster.get("replicas", ())
        if cluster.get("leader") and len(rows) == others and all(each["current"] for each in rows):
            return cluster
        time.sleep(LOOK_S)
    raise SystemExit(f"copy_replica: the replica is not there after {WAIT_S:.0f} s")


def _members(cluster: dict[str, Any]) -> set[str]:
    return {cluster["leader"], *(each["name"] for each in cluster["replicas"])}


def _wait_stored(server: RunningServer, count: int) -> None:
    """Wait until a server shows `count` messages of the stream."""
    url = f"http://127.0.0.1:{server.http_port}/jsz?streams=1&accounts=1"
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        with urllib.request.urlopen(url, timeout=10) as page:
            accounts = json.load(page).get("account_details") or ()
        found = [each for account in accounts for each in account.get("stream_detail") or ()]
        if any(each["state"]["messages"] >= count for each in found):
            return
        time.sleep(LOOK_S)
    raise SystemExit("copy_replica: the new server does not show the messages")


def main() -> int:
    """Measure both servers and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=512, help="messages in the stream before the copy")
    parser.add_argument("--rate", type=float, default=200.0, help="messages a second during the copy")
    parser.add_argument("--only", choices=("ours", "peer"))
    parser.add_argument("--dir", help="directory for the stores, which needs three times --mb on its disk")
    given = parser.parse_args()
    tempfile.tempdir = given.dir
    peer = find_peer()
    commands = {"ours": our_command(), **({} if peer is None else {"peer": peer_command(peer)})}
    print("| server | MB | copy s | MB/s | p50 ms before / during | p99 ms | max ms | p99 ratio | CPU s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, command in commands.items():
        if given.only in (None, name):
            with ExitStack() as stack:
                found = measure(Trio(command, stack, jetstream=True), given.mb, given.rate)
            _print_row(name, given.mb, found)
    return 0


def _print_row(name: str, size_mb: int, found: dict[str, Any]) -> None:
    before, during = found["before"], found["during"]

    def both(field: str) -> str:
        return f"{before[field]:.2f} / {during[field]:.2f}"

    copied = f"{found['seconds']:.1f} | {found['mb_s']:.0f}"
    waits = f"{both('p50')} | {both('p99')} | {both('max')} | {during['p99'] / before['p99']:.2f}"
    print(f"| {name} | {size_mb} | {copied} | {waits} | {found['cpu_s']:.1f} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
