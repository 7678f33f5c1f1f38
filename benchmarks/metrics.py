"""The processor time of /metrics: all of a scrape, and its longest step, which other clients wait for.

    python benchmarks/metrics.py [--streams N] [--consumers N] [--rounds N]

The node is in this process, and has no sockets. The figures are the lowest of the rounds, since other programs can
only increase them.
"""

from __future__ import annotations

import argparse
import json
import time

from pyjs.monitor.router import Router
from pyjs.monitor.state import Monitored, ProcessStats
from pyjs.server.system.allocator import keep_buffers
from pyjs.testing import RawClient, VirtualNode


def fill(client: RawClient, streams: int, consumers: int) -> None:
    """Create streams, each with consumers and one message."""

    def ask(subject: str, body: object) -> None:
        answer = client.request(f"$JS.API.{subject}".encode(), json.dumps(body).encode())
        assert b'"error"' not in answer.payload, answer.payload

    for at in range(streams):
        name = f"ORDERS{at}"
        ask(f"STREAM.CREATE.{name}", {"name": name, "subjects": [name], "storage": "memory"})
        for number in range(consumers):
            config = {"durable_name": f"C{number}", "ack_policy": "explicit"}
            ask(f"CONSUMER.CREATE.{name}.C{number}", {"stream_name": name, "config": config})
        client.request(name.encode(), b"x")


def scrape(router: Router) -> tuple[list[int], int]:
    """Return the ns of each step of a scrape, and the bytes of the page."""
    steps, times = router.answer("/metrics"), []
    while True:
        start_ns = time.thread_time_ns()
        try:
            next(steps)
        except StopIteration as end:
            return [*times, time.thread_time_ns() - start_ns], end.value.size
        times.append(time.thread_time_ns() - start_ns)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--consumers", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=50)
    arguments = parser.parse_args()
    keep_buffers()  # as the command does
    with VirtualNode(jetstream={"enabled": True}) as virtual:
        node = virtual.node
        router = Router(Monitored(node, node.options, ProcessStats(), 0, ready=True), node.clock, node.log)
        empty = min((scrape(router)[0] for _ in range(arguments.rounds)), key=sum)
        fill(virtual.client(), arguments.streams, arguments.consumers)
        rounds = [scrape(router) for _ in range(arguments.rounds)]
    times, size = min(rounds, key=lambda each: sum(each[0]))
    longest_ns = min(max(each) for each, _ in rounds)
    print(f"empty server {sum(empty) / 1e6:.2f} ms")
    print(
        f"{arguments.streams} streams x {arguments.consumers} consumers: {size:,} bytes, {sum(times) / 1e6:.2f} ms"
    )
    print(f"longest of {len(times)} steps: {longest_ns / 1e6:.2f} ms")


if __name__ == "__main__":
    main()
