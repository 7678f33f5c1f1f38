"""How late messages with a TTL expire and schedules fire, and the cost, compared with nats-server.

    python benchmarks/expiry.py [--only ttl|schedules] [--messages N] [--schedules N] [--load RATE] [--servers LIST]

`ttl`: a million messages with random TTLs are stored; polls of the stream show how overdue the oldest expired
message is. `schedules`: a hundred thousand schedules are stored, and the server is restarted after kill -9. Then the
schedules fire at random times while another connection publishes; the time of each produced message is compared with
its schedule. The processor time is that of the server while messages expire or schedules fire, including the load.

Source: benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import calendar
import multiprocessing
import random
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from plain_client import PlainClient
from servers import RunningServer, ServerCommand, find_peer, our_command, peer_command

NS = 1_000_000_000
TTL_S = (90, 120)  # range of the TTLs in seconds: the first one ends after everything is published and read
LEAD_S, SPAN_S = 90.0, 20.0  # seconds from the start to the first schedule, and from the first to the last
POLL_S = 0.05
LOADED = {"name": "LOAD", "subjects": ["load"], "max_msgs": 100_000}


def line(subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> bytes:
    sizes = b"%d %d" % (len(headers), len(headers) + len(payload))
    return b"HPUB %b %b %b\r\n%b%b\r\n" % (subject, reply, sizes, headers, payload)


def publish(client: PlainClient, lines: Iterator[bytes], count: int, window: int = 4000) -> None:
    """Send prepared publishes and wait for their PubAcks, at most `window` of them outstanding."""
    sent = acked = 0
    while acked < count:
        batch = [next(lines) for _ in range(min(count, acked + window) - sent)]
        client.send(b"".join(batch))
        sent += len(batch)
        for _, body in client.frames(min(window // 2, sent - acked)):
            if b'"error"' in body:
                raise SystemExit(f"expiry.py: {body.decode()}")
            acked += 1


def spread(late_ns: list[float]) -> str:
    """Return median, 99th percentile and maximum in milliseconds."""
    ordered = sorted(late_ns)
    parts = (ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)], ordered[-1])
    return " / ".join(f"{each / 1e6:.1f}" for each in parts)


# -- messages with a TTL ---------------------------------------------------------------------------------------------


def ttl(server: RunningServer, count: int, load: int) -> dict[str, str]:
    """Return the measurements of messages with random TTLs."""
    client = PlainClient(server.port)
    client.request("$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "allow_msg_ttl": True})
    rng = random.Random(1)
    ttls = [rng.randint(*TTL_S) for _ in range(count)]
    reply = client.inbox + b".p"
    blocks = {each: b"NATS/1.0\r\nNats-TTL: %d\r\n\r\n" % each for each in set(ttls)}
    began = time.monotonic()
    publish(client, (line(b"s", reply, blocks[each], b"x" * 16) for each in ttls), count)
    rate = count / (time.monotonic() - began)
    due = sorted(stored + each * NS for stored, each in zip(times(client, count), ttls, strict=True))
    rss = server.rss_mb()
    if due[0] < time.time_ns():
        raise SystemExit("expiry.py: the first message expired before all were read; TTL_S is too short")
    time.sleep(max(0.0, due[0] / NS - time.time() - 0.5))
    cpu, late = server.cpu_s(), []
    while True:
        asked = time.time_ns()
        left = client.request("$JS.API.STREAM.INFO.S")["state"]["messages"]
        if left == 0:
            break
        late.append(max(0.0, asked - due[count - left]))
        time.sleep(POLL_S)
    return {
        "published/s": f"{rate:,.0f}",
        "RSS MB": f"{rss:.0f}",
        "late ms (median / p99 / max)": spread(late),
        "CPU s": f"{server.cpu_s() - cpu:.2f}",
    }


def times(client: PlainClient, count: int) -> list[int]:
    """Return the time at which each message was stored, by sequence."""
    client.send(b"SUB times 9\r\n")
    wanted = {"deliver_subject": "times", "ack_policy": "none", "headers_only": True}
    client.request("$JS.API.CONSUMER.CREATE.S", {"stream_name": "S", "config": wanted})
    found = [0] * count
    for reply, _ in client.frames(count):
        parts = reply.split(b".")
        found[int(parts[-4]) - 1] = int(parts[-2])
    return found


# -- schedules -------------------------------------------------------------------------------------------------------


def schedules(server: RunningServer, count: int, load: int) -> dict[str, str]:
    """Return the measurements of schedules that publish once each."""
    client = PlainClient(server.port)
    config = {
        "name": "S",
        "subjects": ["s.>"],
        "allow_msg_schedules": True,
        "republish": {"src": "s.to.>", "dest": f"{client.inbox.decode()}.to.>"},
    }
    client.request("$JS.API.STREAM.CREATE.S", config)
    client.request("$JS.API.STREAM.CREATE.LOAD", LOADED)
    rng, first_ns = random.Random(1), time.time_ns() + int(LEAD_S * NS)
    due = [first_ns + int(rng.random() * SPAN_S * NS) for _ in range(count)]
    reply = client.inbox + b".p"
    began = time.monotonic()
    publish(client, (scheduled(number, at_ns, reply) for number, at_ns in enumerate(due)), count)
    rate = count / (time.monotonic() - began)
    rss, took = server.rss_mb(), server.restart(kill=True)
    client = PlainClient(server.port)
    client.send(b"SUB %b.> 2\r\n" % config["republish"]["dest"].removesuffix(".>").encode())  # type: ignore[index]
    client.fence()
    if time.time_ns() > first_ns:
        raise SystemExit("expiry.py: the first schedule was due before all were stored; LEAD_S is too short")
    with loading(server.port, load):
        time.sleep(max(0.0, first_ns / NS - time.time() - 0.2))
        cpu, late = server.cpu_s(), []
        for subject, body in client.frames(count):
            stored = re.search(rb"Nats-Time-Stamp: (\S+)", body)
            assert stored is not None
            late.append(time_ns(stored[1]) - due[int(subject.rpartition(b".")[2])])
        used = server.cpu_s() - cpu
    if min(late) < -1_000_000:
        raise SystemExit(f"expiry.py: a schedule fired {-min(late) / 1e6:.1f} ms early")
    return {
        "published/s": f"{rate:,.0f}",
        "RSS MB": f"{rss:.0f}",
        "start after kill s": f"{took:.2f}",
        "late ms (median / p99 / max)": spread(late),
        "CPU s": f"{used:.2f}",
    }


def scheduled(number: int, at_ns: int, reply: bytes) -> bytes:
    second, rest = divmod(at_ns // 1000 * 1000, NS)
    shown = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
    headers = b"NATS/1.0\r\nNats-Schedule: @at %b.%09dZ\r\nNats-Schedule-Target: s.to.%d\r\n\r\n" % (
        shown.encode(), rest, number,
    )  # fmt: skip
    return line(b"s.at.%d" % number, reply, headers, b"x" * 16)


def time_ns(text: bytes) -> int:
    """Return a UTC time in RFC 3339 form as nanoseconds since 1970."""
    whole, _, fraction = text.rstrip(b"Z").partition(b".")
    second = calendar.timegm(time.strptime(whole.decode(), "%Y-%m-%dT%H:%M:%S"))
    return second * NS + int(fraction.ljust(9, b"0") or b"0")


@contextmanager
def loading(port: int, rate: int) -> Iterator[None]:
    """Publish `rate` messages per second to another stream inside the `with` block."""
    if not rate:
        yield
        return
    process = multiprocessing.Process(target=_load, args=(port, rate), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def _load(port: int, rate: int) -> None:
    client, batch = PlainClient(port), max(1, rate // 100)
    lines = b"PUB load 128\r\n%b\r\n" % (b"x" * 128) * batch
    began, sent = time.monotonic(), 0
    while True:
        client.send(lines)
        sent += batch
        time.sleep(max(0.0, began + sent / rate - time.monotonic()))


ROWS: dict[str, Any] = {"ttl": ttl, "schedules": schedules}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=tuple(ROWS))
    parser.add_argument("--messages", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--schedules", type=int, default=100_000, metavar="N")
    parser.add_argument(
        "--load", type=int, default=20_000, metavar="RATE", help="messages a second beside schedules"
    )
    parser.add_argument("--servers", default="ours,peer", metavar="LIST")
    parser.add_argument("--peer", metavar="PATH", help="nats-server (default: beside this python, or PATH)")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="where the stores live during a run")
    given = parser.parse_args()
    sides: dict[str, ServerCommand] = {"ours": our_command()}
    if (peer := find_peer(given.peer)) is not None:
        sides["peer"] = peer_command(peer)
    for name, row in ROWS.items():
        count = given.messages if name == "ttl" else given.schedules
        for side in given.servers.split(",") if given.only in (None, name) else ():
            with RunningServer(sides[side], base=given.dir, config="max_pending: 1GB") as server:
                found = row(server, count, given.load)
            print(
                f"{name} {side}: " + ", ".join(f"{key} {value}" for key, value in found.items()), flush=True
            )


if __name__ == "__main__":
    main()
