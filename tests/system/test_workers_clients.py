"""nats-py on the second of two workers, over TLS and WebSocket: requests, key-value and object store."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from tests.conformance.harness.process import ServerProcess, free_port, our_command
from tests.support.certificates import COMMON, LOCAL, Authority, subject

TRIES_MAX = 200  # the kernel chooses the worker of a connection


class Doors:
    """A server of two workers with TLS on both of its ports, and a TLS context for clients."""

    def __init__(self, directory: Path) -> None:
        authority = Authority(directory)
        authority.issue("server", subject(("localhost", COMMON)), *LOCAL)
        pair = f'tls {{ cert_file: "{directory}/server.pem", key_file: "{directory}/server-key.pem" }}'
        self._ws_port = free_port()
        config = f'workers: 2\njetstream {{ store_dir: "<<store>>" }}\n{pair}\n'
        config += f'websocket {{ listen: "127.0.0.1:{self._ws_port}", {pair} }}\n'
        self.process = ServerProcess(our_command(), config, directory, with_http=False, name="W")
        self.process.start()
        self._context = ssl.create_default_context(cafile=str(authority.ca_file))

    async def client(self, scheme: str) -> Client:
        """Return a client of worker 2; `scheme` is tls or wss."""
        port = self._ws_port if scheme == "wss" else self.process.port
        for _ in range(TRIES_MAX):
            client = await nats.connect(f"{scheme}://localhost:{port}", tls=self._context)
            if client._server_info["server_name"] == "W-2":
                return client
            await client.close()
        raise AssertionError("no connection reaches worker 2")


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    made = Doors(tmp_path_factory.mktemp("doors"))
    yield made
    made.process.kill()


async def used(client: Client, bucket: str) -> None:
    """Put, get, update, watch and delete a key; store and read an object of several chunks."""
    stream = client.jetstream()
    values = await stream.create_key_value(bucket=bucket, history=3)
    first = await values.put("a", b"1")
    assert await values.update("a", b"2", last=first) == first + 1
    assert (await values.get("a")).value == b"2"
    watcher = await values.watchall()
    seen = await watcher.updates(timeout=30)
    assert seen is not None
    assert (seen.key, seen.value) == ("a", b"2")
    await watcher.stop()
    await values.delete("a")
    assert [each.operation for each in await values.history("a")] == [None, None, "DEL"]
    objects = await stream.create_object_store(bucket=f"{bucket}-objects")
    content = bytes(range(256)) * 2_000
    await objects.put("o", content)
    assert (await objects.get("o")).data == content


@pytest.mark.timeout(120)
@pytest.mark.parametrize("scheme", ["tls", "wss"])
def test_stores_of_the_second_worker_work_under_tls(doors: Doors, scheme: str) -> None:
    async def run() -> None:
        client = await doors.client(scheme)
        try:
            await used(client, f"KV-{scheme}")
        finally:
            await client.close()

    asyncio.run(run())
