"""A server is killed or a client disconnects during a restore: nothing of the stream is left after a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from nats.aio.client import Client
from tests.conformance.harness.process import ServerProcess, our_command
from tests.support import archives

CONFIG = 'jetstream { store_dir: "<<store>>" }\n'
pytestmark = pytest.mark.timeout(120)


def started(directory: Path) -> ServerProcess:
    server = ServerProcess(our_command(), CONFIG, directory, with_http=False, may_fork=True)
    server.start()
    return server


def left(directory: Path) -> list[Path]:
    """Return the files stored for the account, without the directory of its streams."""
    return list((directory / "store" / "jetstream" / "$G" / "streams").iterdir())


async def made(client: Client) -> archives.Backup:
    """Create a stream of several segments, return its archive, and delete the stream."""
    await client.jetstream().add_stream(name="S", subjects=["s"], max_bytes=64 << 20)
    js = client.jetstream(publish_async_max_pending=200)
    for number in range(2000):
        await js.publish_async("s", b"%d" % number * 2000)
    await js.publish_async_completed()
    backup = await archives.back_up(client, "S")
    await js.delete_stream("S")
    return backup


async def send_half(client: Client, backup: archives.Backup) -> str:
    """Send the first half of an archive; return the subject for the second half."""
    body = {"config": backup.config, "state": backup.state}
    subject = str((await archives.asked(client, "STREAM.RESTORE.S", body))["deliver_subject"])
    for at in range(0, len(backup.data) // 2, 64 * 1024):
        await client.request(subject, backup.data[at : at + 64 * 1024], timeout=30)
    return subject


def test_nothing_is_left_after_a_kill(tmp_path: Path) -> None:
    async def run(server: ServerProcess) -> None:
        client = await archives.connected(server.port)
        await send_half(client, await made(client))
        assert any((path / "S" / "msgs").exists() for path in left(tmp_path))
        server.kill()
        await client.close()

    async def look(port: int) -> None:
        client = await archives.connected(port)
        assert (await archives.asked(client, "STREAM.NAMES", {}))["streams"] is None
        await client.jetstream().add_stream(name="S", subjects=["s"])
        await client.close()

    # given, when
    asyncio.run(run(started(tmp_path)))
    # then
    server = started(tmp_path)
    asyncio.run(look(server.port))
    server.stop()
    assert [path.name for path in left(tmp_path)] == ["S"]


def test_nothing_is_left_after_the_client_has_gone(tmp_path: Path) -> None:
    async def run(port: int) -> None:
        client = await archives.connected(port)
        await send_half(client, await made(client))
        await client.close()
        # when: the client is silent for five seconds
        client = await archives.connected(port)
        while left(tmp_path):
            await asyncio.sleep(0.1)  # polling: no event signals a change of the directory
        # then
        assert (await archives.asked(client, "STREAM.NAMES", {}))["streams"] is None
        await client.close()

    server = started(tmp_path)
    asyncio.run(run(server.port))
    server.kill()
