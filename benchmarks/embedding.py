"""The cost of a start and a stop of a server inside a program, and what remains after a thousand of them.

    python benchmarks/embedding.py                  # medians of 200 starts and stops, on each loop
    python benchmarks/embedding.py --soak 1000      # memory, descriptors and threads before and after

A row of the first table is one way to use pyjs.aio; the first start and stop, which also import modules, are left
out. Times are milliseconds on the program's loop, which does nothing else. In the soak each server gets a stream,
messages, a consumer and a client before it stops.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from statistics import median
from time import perf_counter
from urllib.parse import urlsplit

import uvloop

from pyjs.aio import Server, ServerThread
from pyjs.server.system.process import memory_size

LOOPS = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
REPORTS = 10  # number of lines that the soak test prints


async def start_and_stop(server: Server) -> tuple[float, float]:
    """Return the seconds that a start and a stop take."""
    began = perf_counter()
    await server.start()
    started = perf_counter()
    await asyncio.sleep(0.001)  # a turn of the loop, as in any use
    stopping = perf_counter()
    await server.stop()
    return started - began, perf_counter() - stopping


async def measure(make: Callable[[], Server], times: int) -> list[tuple[float, float]]:
    await start_and_stop(make())
    await asyncio.sleep(0.5)  # until the first start has loaded its modules in the background
    return [await start_and_stop(make()) for _ in range(times)]


def measure_threads(times: int) -> list[tuple[float, float]]:
    found = []
    for _ in range(times + 1):
        server, began = ServerThread(), perf_counter()
        server.start()
        started = perf_counter()
        server.stop()
        found.append((started - began, perf_counter() - started))
    return found[1:]


def report(name: str, found: list[tuple[float, float]]) -> None:
    starts, stops = ([1000 * seconds for seconds in column] for column in zip(*found, strict=True))
    worst = sorted(starts)[int(len(starts) * 0.95)], sorted(stops)[int(len(stops) * 0.95)]
    start = f"start {median(starts):6.2f} (95 %: {worst[0]:6.2f})"
    print(f"{name:42} {start}  stop {median(stops):6.2f} (95 %: {worst[1]:6.2f})")


def bench(times: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        makes: dict[str, Callable[[], Server]] = {
            "Server()": Server,
            "Server(jetstream=False)": lambda: Server(jetstream=False),
            "Server(jetstream={store_dir: ...})": lambda: Server(jetstream={"store_dir": directory}),
            "Server(http_port=-1)": lambda: Server(http_port=-1),
        }
        for loop, factory in LOOPS.items():
            for name, make in makes.items():
                with asyncio.Runner(loop_factory=factory) as runner:
                    report(f"{loop:8}{name}", runner.run(measure(make, times)))
    report("        ServerThread()", measure_threads(times))


async def use(url: str) -> None:
    """Do some operations of each kind that tests do."""
    at = urlsplit(url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    consumer = {"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "explicit"}}
    requests: list[tuple[str, dict[str, object]]] = [
        ("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]}),
        ("CONSUMER.DURABLE.CREATE.S.C", consumer),
    ]
    writer.write(b'CONNECT {"verbose":false}\r\nSUB inbox.* 1\r\n')
    for number, (endpoint, request) in enumerate(requests):
        body = json.dumps(request)
        writer.write(f"PUB $JS.API.{endpoint} inbox.{number} {len(body)}\r\n{body}\r\n".encode())
        await reader.readuntil(b"MSG inbox.%d " % number)
    writer.write(b"PUB s.1 100\r\n%b\r\n" % (b"x" * 100) * 100)
    writer.write(b"PUB $JS.API.CONSUMER.MSG.NEXT.S.C inbox.next 2\r\n10\r\n")
    await reader.readuntil(b"MSG s.1 ")
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def soak(times: int) -> None:
    for at in range(times + 1):
        async with Server(http_port=-1) as server:
            await use(server.client_url)
        if at % max(1, times // REPORTS) == 0:
            await asyncio.sleep(0.01)
            gc.collect()
            files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
            print(f"{at:6} servers: {memory_size() / 2**20:7.2f} MiB, {files} descriptors, {threads} threads")
            sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=200, help="starts and stops of each row (200)")
    parser.add_argument("--soak", type=int, default=0, help="so many servers one after another, on each loop")
    args = parser.parse_args()
    if not args.soak:
        bench(args.times)
    for loop, factory in LOOPS.items() if args.soak else ():
        print(loop)
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(soak(args.soak))


if __name__ == "__main__":
    main()
