"""Applications that use the client library nats-py with its defaults; every error that they get is counted by kind.

They publish, pull, receive from a push consumer, use a key-value store, and request from a service with two
instances. Each has its own connection. A fetch without messages is not an error, since callers of a pull consumer
repeat it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import nats
from nats.aio.client import Client
from nats.errors import TimeoutError as NothingInTime
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, KeyValueConfig, RetentionPolicy, StorageType, StreamConfig

STREAM, BUCKET = "LOAD", "SETTINGS"
ALONE = "ALONE"  # name of a stream with one replica
REST_S = 0.05  # pause between two operations of one application
WINDOW = 10  # maximum number of published messages without an answer
ANSWER_S = 5.0  # seconds to wait for an answer, as for a publish in nats-py
FETCH = 20
SIZE = 128
INSTANCES = 2  # number of instances of the service
SLOW_S = 1.0
SEEN_MAX = 200


class Applications:
    """All applications, and their results."""

    def __init__(self, urls: list[str], *, with_alone: bool = False) -> None:
        self._urls = urls
        self.with_alone = with_alone
        self._clients: list[Client] = []
        self._stop = asyncio.Event()
        self.done: Counter[str] = Counter()  # number of operations without an error
        self.errors: Counter[str] = Counter()
        self.phase = ""  # the current action of the operator
        self.seen: list[str] = []  # the first errors, each with its time and phase
        self.notes: Counter[str] = Counter()  # events that an application handles itself
        self.slowest_s: dict[str, float] = {}
        self.slow: Counter[str] = Counter()  # number of operations that took longer than SLOW_S
        self.acked: dict[str, dict[str, int]] = {STREAM: {}, ALONE: {}}  # id of a message -> sequence
        self.sent = 0
        self.delivered: dict[str, set[int]] = {"pull": set(), "push": set()}

    async def connect(self) -> Client:
        """Return a new connection with the defaults of nats-py."""

        async def told(error: Exception) -> None:
            self.notes[f"error callback: {type(error).__name__}"] += 1

        client = await nats.connect(self._urls, error_cb=told)
        self._clients.append(client)
        return client

    async def prepare(self) -> None:
        """Create the streams as soon as the cluster accepts requests."""
        context = (await self.connect()).jetstream()
        stream = StreamConfig(STREAM, subjects=["load.>"], num_replicas=3, retention=RetentionPolicy.LIMITS)
        await _patiently(lambda: context.add_stream(stream))
        if self.with_alone:
            alone = StreamConfig(ALONE, subjects=["alone.>"], num_replicas=1)
            await _patiently(lambda: context.add_stream(alone))
        await _patiently(
            lambda: context.create_key_value(KeyValueConfig(BUCKET, replicas=3, storage=StorageType.FILE))
        )
        worker = ConsumerConfig(durable_name="worker", ack_policy=AckPolicy.EXPLICIT, ack_wait=2)
        await _patiently(lambda: context.add_consumer(STREAM, worker))

    async def run(self) -> None:
        """Run the applications until `stop`."""
        for _ in range(INSTANCES):
            await self._serve()
        await self._listen()
        async with asyncio.TaskGroup() as group:
            for number in range(2):
                group.create_task(self._work("publish", self._publisher(STREAM, f"s{number}")))
            if self.with_alone:
                group.create_task(self._work("publish_alone", self._publisher(ALONE, "alone")))
            group.create_task(self._work("publish_async", self._bulk_publisher()))
            group.create_task(self._work("pull", self._puller()))
            group.create_task(self._work("kv", self._keeper()))
            group.create_task(self._work("request", self._asker()))
            group.create_task(self._work("info", self._looker()))

    def stop(self) -> None:
        """Stop after the current operations."""
        self._stop.set()

    async def close(self) -> None:
        """Close all connections."""
        for client in self._clients:
            await client.close()

    async def _work(self, name: str, made: Awaitable[Callable[[], Awaitable[Any]]]) -> None:
        """Repeat an operation; count its results and errors."""
        operation = await made
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                await operation()
                self.done[name] += 1
            except Exception as error:
                self._failed(name, error)
            took = time.monotonic() - began
            self.slowest_s[name] = max(self.slowest_s.get(name, 0.0), took)
            self.slow[name] += took > SLOW_S
            await asyncio.sleep(REST_S)

    def _failed(self, name: str, error: BaseException) -> None:
        text = f"{name}: {type(error).__name__}: {error}"
        self.errors[text] += 1
        if len(self.seen) < SEEN_MAX:
            self.seen.append(f"{time.strftime('%H:%M:%S')} {self.phase}: {text}")

    def _next_id(self, prefix: str) -> str:
        self.sent += 1
        return f"{prefix}-{self.sent}"

    async def _publisher(self, stream: str, prefix: str) -> Callable[[], Awaitable[Any]]:
        context = (await self.connect()).jetstream()

        async def publish() -> None:
            name = self._next_id(prefix)
            ack = await context.publish(f"{stream.lower()}.{prefix}", name.ljust(SIZE).encode())
            self.acked[stream][name] = ack.seq

        return publish

    async def _bulk_publisher(self) -> Callable[[], Awaitable[Any]]:
        context = (await self.connect()).jetstream()

        async def publish() -> None:
            names = [self._next_id("b") for _ in range(WINDOW)]
            waits = [await context.publish_async("load.b", name.ljust(SIZE).encode()) for name in names]
            found = await asyncio.gather(
                *(asyncio.wait_for(each, ANSWER_S) for each in waits), return_exceptions=True
            )
            for name, ack in zip(names, found, strict=True):
                if isinstance(ack, BaseException):
                    self._failed("publish_async", ack)
                else:
                    self.acked[STREAM][name] = ack.seq

        return publish

    async def _puller(self) -> Callable[[], Awaitable[Any]]:
        context = (await self.connect()).jetstream()
        found = await context.pull_subscribe_bind("worker", STREAM)

        async def pull() -> None:
            try:
                messages = await found.fetch(FETCH, timeout=ANSWER_S)
            except NothingInTime:
                self.notes["pull: nothing in time"] += 1
                return
            for message in messages:
                self.delivered["pull"].add(message.metadata.sequence.stream)
                await message.ack_sync()

        return pull

    async def _keeper(self) -> Callable[[], Awaitable[Any]]:
        bucket = await (await self.connect()).jetstream().key_value(BUCKET)
        revision = await bucket.put("counter", b"0")
        state = {"revision": revision, "value": 0}

        async def count() -> None:
            entry = await bucket.get("counter")
            if entry.value is None or int(entry.value) < state["value"]:
                self.notes["kv: a stale get"] += 1  # from a replica that is behind
            state["value"] += 1
            state["revision"] = await bucket.put("counter", str(state["value"]).encode())
            state["value"] += 1
            state["revision"] = await bucket.update(
                "counter", str(state["value"]).encode(), last=state["revision"]
            )

        return count

    async def _looker(self) -> Callable[[], Awaitable[Any]]:
        context = (await self.connect()).jetstream()

        async def look() -> None:
            await context.stream_info(STREAM)
            await context.consumer_info(STREAM, "worker")

        return look

    async def _serve(self) -> None:
        client = await self.connect()

        async def answer(message: Any) -> None:
            await message.respond(message.data)

        await client.subscribe("service", queue="instances", cb=answer)
        await client.flush()

    async def _asker(self) -> Callable[[], Awaitable[Any]]:
        client = await self.connect()

        async def ask() -> None:
            await client.request("service", b"hello")

        return ask

    async def _listen(self) -> None:
        """Receive messages of a push consumer; acknowledge each."""
        context: JetStreamContext = (await self.connect()).jetstream()

        async def take(message: Any) -> None:
            self.delivered["push"].add(message.metadata.sequence.stream)
            self.done["push"] += 1

        config = ConsumerConfig(ack_wait=2)
        await context.subscribe("load.>", durable="pushed", stream=STREAM, cb=take, config=config)


async def _patiently(act: Callable[[], Awaitable[Any]]) -> None:
    """Repeat a request until the cluster accepts it."""
    deadline = time.monotonic() + 60
    while True:
        try:
            await act()
            return
        except Exception:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.1)  # pause between two requests
