"""Make a golden store directory: `python -m tests.golden.make NAME`, before a change of the format.

If NAME ends with `encrypted`, the store is encrypted, and one of its streams is compressed.
Writes <NAME>.tar.gz, the store directory of a server that was killed, and <NAME>.json, the contents that a client
read from it.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from tests.conformance.harness.process import ServerProcess, our_command
from tests.support.raw import RawClient

HERE = Path(__file__).parent
PLAIN = 'jetstream: {store_dir: "<<store>>", sync_interval: always}'
ENCRYPTED = 'jetstream: {store_dir: "<<store>>", sync_interval: always, key: "golden", cipher: aes}'
KEPT = (
    "name",
    "config",
    "created",
    "delivered",
    "ack_floor",
    "num_ack_pending",
    "num_redelivered",
    "num_pending",
)


def main() -> int:
    """Make the golden directory named on the command line."""
    name = sys.argv[1]
    with tempfile.TemporaryDirectory() as scratch:
        server = ServerProcess(our_command(), config_of(name), Path(scratch), with_http=False)
        server.start()
        client = RawClient(server.port)
        fill(client, "s2" if name.endswith("encrypted") else "none")
        seen = everything(client)
        server.kill()
        with tarfile.open(HERE / f"{name}.tar.gz", "w:gz") as archive:
            archive.add(Path(scratch) / "store", "store")
    (HERE / f"{name}.json").write_text(json.dumps(seen, indent=1, sort_keys=True) + "\n")
    return 0


def config_of(name: str) -> str:
    """Return the configuration that a golden directory belongs to."""
    return ENCRYPTED if name.endswith("encrypted") else PLAIN


def fill(client: RawClient, compression: str) -> None:
    """Store data of every kind."""
    limits = {"max_bytes": 262_144, "compression": compression}
    client.api("STREAM.CREATE.PLAIN", name="PLAIN", subjects=["plain.>"], **limits)
    for number in range(1, 401):
        client.request(b"plain.%d" % (number % 7), b"%04d" % number + b"-" * (number % 150 * 6))
    for seq in (5, 300, 301, 302, 390):
        client.api("STREAM.MSG.DELETE.PLAIN", seq=seq, no_erase=seq != 300)
    client.api("STREAM.PURGE.PLAIN", filter="plain.3", keep=2)
    client.api("STREAM.PURGE.PLAIN", seq=20)
    client.api("STREAM.CREATE.KV_B", name="KV_B", subjects=["$KV.B.>"], max_msgs_per_subject=2)
    for number in range(60):
        client.request(b"$KV.B.key%d" % (number % 9), b"value %d" % number)
    client.api("STREAM.CREATE.WORK", name="WORK", subjects=["work"], retention="workqueue")
    client.api("STREAM.CREATE.COPY", name="COPY", sources=[{"name": "KV_B"}])
    client.api("STREAM.CREATE.EMPTY", name="EMPTY", subjects=["empty"], description="purged")
    client.request(b"empty", b"x")
    client.api("STREAM.PURGE.EMPTY")
    consumers(client)


def consumers(client: RawClient) -> None:
    """Have a consumer with settled and open deliveries, and a work queue of which a part is done."""
    explicit = {"durable_name": "c", "ack_policy": "explicit", "ack_wait": 3_600_000_000_000}
    for stream in ("PLAIN", "WORK"):
        client.api(f"CONSUMER.DURABLE.CREATE.{stream}.c", stream_name=stream, config=explicit)
    for number in range(20):
        client.request(b"work", b"job %d" % number)
    for stream in (b"PLAIN", b"WORK"):
        client.send(b"PUB $JS.API.CONSUMER.MSG.NEXT.%b.c _INBOX.raw.next 2\r\n10\r\n" % stream)
        frames = client.frames()
        replies = [next(frames)[1] for _ in range(10)]
        for reply in replies[:4] + replies[6:7]:
            client.request(reply, b"+ACK")


def everything(client: RawClient) -> dict[str, Any]:
    """Return what a client sees: every stream with its messages and consumers."""
    names = client.api("STREAM.NAMES")["streams"]
    return {name: stream(client, name) for name in sorted(names)}


def stream(client: RawClient, name: str) -> dict[str, Any]:
    """Return one stream as clients see it."""
    info = client.api(f"STREAM.INFO.{name}", deleted_details=True)
    state = info["state"]
    found = (
        client.try_api(f"STREAM.MSG.GET.{name}", seq=seq)
        for seq in range(state["first_seq"], state["last_seq"] + 1)
    )
    listed = client.api(f"CONSUMER.LIST.{name}")["consumers"]
    consumers = [{key: each[key] for key in KEPT} for each in listed]
    for each in consumers:
        for position in (each["delivered"], each["ack_floor"]):
            position.pop("last_active", None)
    return {
        "config": info["config"],
        "created": info["created"],
        "state": state,
        "messages": [digest(each["message"]) for each in found if "message" in each],
        "consumers": consumers,
    }


def digest(message: dict[str, Any]) -> str:
    """Return the sequence of a message and a digest of all its fields."""
    whole = json.dumps(message, sort_keys=True).encode()
    return f"{message['seq']} {hashlib.sha256(whole).hexdigest()[:12]}"


if __name__ == "__main__":
    sys.exit(main())
