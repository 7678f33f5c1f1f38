"""Make golden store directories of a cluster: `python -m tests.golden.make_cluster`, before a change of the node log.

Writes cluster/node-log-<version>.tar.xz, the store directories of three servers that were killed, and the .json with
the contents that a client read from them.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.conformance.harness.asker import Asker
from tests.conformance.harness.cluster import NAMES, ThreeServers
from tests.conformance.harness.process import our_command
from tests.golden.make import digest

HERE = Path(__file__).parent / "cluster"
NAME = "node-log-1"
JETSTREAM = 'jetstream { store_dir: "<<store>>", sync_interval: always }'
MESSAGES = 40


def main() -> int:
    """Make the golden directories."""
    with tempfile.TemporaryDirectory() as scratch, cluster(Path(scratch)) as servers:
        servers.start()
        asker = Asker(servers.client("a"))
        fill(asker)
        seen = everything(asker)
        for name in NAMES:
            servers.server(name).kill()
        HERE.mkdir(exist_ok=True)
        with tarfile.open(HERE / f"{NAME}.tar.xz", "w:xz") as archive:
            for name in NAMES:
                archive.add(Path(scratch) / name / "store", f"{name}/store")
    (HERE / f"{NAME}.json").write_text(json.dumps(seen, indent=1, sort_keys=True) + "\n")
    return 0


@contextmanager
def cluster(directory: Path) -> Iterator[ThreeServers]:
    """Give three servers with JetStream that are not started yet; end them."""
    servers = ThreeServers(our_command(), directory, JETSTREAM)
    try:
        yield servers
    finally:
        servers.kill()


def ask(asker: Asker, subject: str, body: object = None) -> dict[str, Any]:
    """Return the answer to a request, which is made again while a leader is elected."""
    return asker.until(subject, lambda answer: bool(answer) and "error" not in answer, body)


def fill(asker: Asker) -> None:
    """Store something of every kind of group: metadata, a stream with replicas, a consumer, a stream without."""
    for name, replicas in (("TRIPLE", 3), ("SINGLE", 1)):
        config = {"name": name, "subjects": [f"{name.lower()}.>"], "num_replicas": replicas}
        ask(asker, f"$JS.API.STREAM.CREATE.{name}", config)
    consumer = {"durable_name": "c", "ack_policy": "explicit", "ack_wait": 3_600_000_000_000}
    ask(asker, "$JS.API.CONSUMER.DURABLE.CREATE.TRIPLE.c", {"stream_name": "TRIPLE", "config": consumer})
    for number in range(MESSAGES):
        ask(asker, f"triple.{number % 7}", {"number": number})
    ask(asker, "$JS.API.STREAM.MSG.DELETE.TRIPLE", {"seq": 5})
    ask(asker, "$JS.API.STREAM.PURGE.TRIPLE", {"filter": "triple.3", "keep": 2})
    ask(asker, "single.x", {"number": 1})
    acknowledge(asker, 4)


def acknowledge(asker: Asker, count: int) -> None:
    """Have the consumer deliver one message more than are acknowledged."""
    client = asker.client
    client.send(
        b"SUB _INBOX.next 9\r\nPUB $JS.API.CONSUMER.MSG.NEXT.TRIPLE.c _INBOX.next %d\r\n%d\r\n"
        % (len(str(count + 1)), count + 1)
    )
    client.wait_for_messages(count + 1)
    for frame in client.take()[:count]:
        asker.until(frame[2].decode(), lambda _answer: True)


def everything(asker: Asker) -> dict[str, Any]:
    """Return what a client sees of each stream."""
    return {name: stream(asker, name) for name in sorted(ask(asker, "$JS.API.STREAM.NAMES")["streams"])}


def stream(asker: Asker, name: str) -> dict[str, Any]:
    """Return one stream with its messages and consumers, without what a new leader changes."""
    info = ask(asker, f"$JS.API.STREAM.INFO.{name}", {"deleted_details": True})
    state = info["state"]
    gone = set(state.get("deleted", ()))
    seqs = [seq for seq in range(state["first_seq"], state["last_seq"] + 1) if seq not in gone]
    found = [ask(asker, f"$JS.API.STREAM.MSG.GET.{name}", {"seq": seq}) for seq in seqs]
    listed = ask(asker, f"$JS.API.CONSUMER.LIST.{name}")["consumers"]
    kept = ("name", "config", "created", "num_ack_pending", "num_pending")
    return {
        "config": info["config"],
        "created": info["created"],
        "servers": sorted(
            [info["cluster"]["leader"], *(each["name"] for each in info["cluster"].get("replicas", ()))]
        ),
        "state": {
            key: state[key] for key in ("messages", "bytes", "first_seq", "last_seq", "consumer_count")
        },
        "messages": [digest(each["message"]) for each in found],
        "consumers": [
            {key: each[key] for key in kept} | {"ack_floor": each["ack_floor"]["stream_seq"]}
            for each in listed
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
