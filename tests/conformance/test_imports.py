"""The store directory of nats-server, imported: equal messages, states and consumers on this server."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.js.api import KeyValueConfig, StoreCompression, StreamConfig
from tests.conformance.harness.both import needs_peer, running
from tests.conformance.harness.process import ServerProcess, our_command, peer_command
from tests.conformance.test_archives import fill, seen
from tests.support import archives

PEER = peer_command()
pytestmark = [
    needs_peer,
    pytest.mark.timeout(240),
]
CONFIG = """
jetstream { store_dir: "<<store>>", max_file: 2G, max_mem: 1G }
max_payload: 2MB
accounts {
  A { jetstream: enabled, users: [ { user: a, password: a } ] }
  B { jetstream: enabled, users: [ { user: b, password: b } ] }
  SYS { users: [ { user: s, password: s } ] }
}
system_account: SYS
"""
MESSAGES = 50_000


def imported(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """Import the store of the server that ran in `source` for the server that will run in `target`."""
    words = ["import", "-sd", str(target / "store"), str(source / "store")]
    return subprocess.run([*our_command(), *words], capture_output=True, text=True, timeout=120, check=False)


async def connected(server: ServerProcess, user: str) -> Client:
    return await nats.connect(f"nats://{user}:{user}@127.0.0.1:{server.port}", max_reconnect_attempts=1)


async def look(server: ServerProcess, streams: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Return everything that the clients of each user see of the streams."""
    found = {}
    for user, names in streams.items():
        client = await connected(server, user)
        for name in names:
            found[f"{user} {name}"] = await seen(client, name)
            found[f"{user} {name} config"] = (await archives.asked(client, f"STREAM.INFO.{name}", {}))[
                "config"
            ]
        await client.close()
    return found


def test_a_store_is_the_same_after_an_import(tmp_path: Path) -> None:
    streams = {"a": ("S", "KV_bakery"), "b": ("S2", "LATER")}

    async def fill_all(server: ServerProcess) -> None:
        client = await connected(server, "a")
        await fill(client, MESSAGES)
        js = client.jetstream()
        await js.add_stream(name="IN_MEMORY", subjects=["memory"], storage="memory")
        bucket = await js.create_key_value(KeyValueConfig(bucket="bakery", history=3))
        for number in range(300):
            await bucket.put(f"key{number % 40}", b"%d" % number)
        await bucket.delete("key1")
        await client.close()
        client = await connected(server, "b")
        js = client.jetstream(publish_async_max_pending=2000)
        config = StreamConfig(name="S2", subjects=["t.>"], compression=StoreCompression.S2, max_bytes=4 << 20)
        await js.add_stream(config)
        for number in range(6000):
            await js.publish_async(f"t.{number % 5}", b"compress " * 100 + b"%d" % number)
        await js.publish_async_completed()
        await js.add_stream(name="LATER", subjects=["later.>"], first_seq=1000, max_msgs_per_subject=1)
        for number in range(50):
            await js.publish(f"later.{number % 3}", b"x")
        await client.close()

    # given
    with running(tmp_path / "peer", "peer", CONFIG) as server:
        asyncio.run(fill_all(server))
        before = asyncio.run(look(server, streams))
    # when
    done = imported(tmp_path / "peer", tmp_path / "ours")
    # then
    assert (done.returncode, done.stderr) == (0, "")
    assert f"A > S: {MESSAGES - 6:,} messages" in done.stdout
    with running(tmp_path / "ours", "ours", CONFIG) as server:
        after = asyncio.run(look(server, streams))
    assert after.keys() == before.keys()
    for name in before:
        assert after[name] == before[name], name


def test_a_killed_servers_store_is_the_same_after_an_import(tmp_path: Path) -> None:
    # given
    assert PEER is not None
    directory = tmp_path / "peer"
    directory.mkdir()
    server = ServerProcess(PEER, CONFIG, directory, with_http=False, may_fork=True)
    server.start()

    async def fill_one() -> None:
        client = await connected(server, "a")
        await fill(client, 3000)
        await client.close()

    asyncio.run(fill_one())
    before = asyncio.run(look(server, {"a": ("S",)}))["a S"]
    server.kill()
    # when
    done = imported(directory, tmp_path / "ours")
    # then
    assert done.returncode == 0, done.stdout
    with running(tmp_path / "ours", "ours", CONFIG) as ours:
        after = asyncio.run(look(ours, {"a": ("S",)}))["a S"]
    assert after["messages"] == before["messages"]
    assert after["state"] == before["state"]
    assert after["consumers"].keys() == before["consumers"].keys()


def test_mirrors_and_sources_go_on_after_an_import(tmp_path: Path) -> None:
    async def copied(client: Client, name: str, wanted: int) -> None:
        while (await archives.stream_state(client, name))["messages"] < wanted:
            await asyncio.sleep(0.05)

    async def fill_three(server: ServerProcess) -> None:
        client = await connected(server, "a")
        await archives.asked(client, "STREAM.CREATE.O", {"name": "O", "subjects": ["o"]})
        await archives.asked(client, "STREAM.CREATE.COPY", {"name": "COPY", "mirror": {"name": "O"}})
        await archives.asked(client, "STREAM.CREATE.SUM", {"name": "SUM", "sources": [{"name": "O"}]})
        for _ in range(20):
            await client.request("o", b"x")
        await copied(client, "COPY", 20)
        await copied(client, "SUM", 20)
        await client.close()

    async def go_on(server: ServerProcess) -> list[int]:
        client = await connected(server, "a")
        await client.request("o", b"later")
        await copied(client, "COPY", 21)
        await copied(client, "SUM", 21)
        found = [(await archives.stream_state(client, name))["messages"] for name in ("O", "COPY", "SUM")]
        await client.close()
        return found

    # given
    with running(tmp_path / "peer", "peer", CONFIG) as server:
        asyncio.run(fill_three(server))
    # when
    done = imported(tmp_path / "peer", tmp_path / "ours")
    # then
    assert done.returncode == 0, done.stdout
    with running(tmp_path / "ours", "ours", CONFIG) as ours:
        assert asyncio.run(go_on(ours)) == [21, 21, 21]


def test_a_running_servers_directory_is_refused(tmp_path: Path) -> None:
    async def fill_one(server: ServerProcess) -> None:
        client = await connected(server, "a")
        await client.jetstream().add_stream(name="S", subjects=["s"])
        await client.jetstream().publish("s", b"x")
        await client.close()

    with running(tmp_path / "peer", "peer", CONFIG) as server:
        asyncio.run(fill_one(server))
        done = imported(tmp_path / "peer", tmp_path / "ours")
        assert done.returncode == 2
        assert f"is in use by process {server.pid}: stop nats-server first" in done.stderr


def test_a_killed_import_leaves_whole_streams_or_none(tmp_path: Path) -> None:
    # given
    async def fill_two(server: ServerProcess) -> None:
        client = await connected(server, "a")
        await fill(client, 20_000)
        js = client.jetstream(publish_async_max_pending=2000)
        await js.add_stream(name="T", subjects=["t"])
        for number in range(20_000):
            await js.publish_async("t", b"%d" % number * 20)
        await js.publish_async_completed()
        await client.close()

    with running(tmp_path / "peer", "peer", CONFIG) as server:
        asyncio.run(fill_two(server))
        before = asyncio.run(look(server, {"a": ("S", "T")}))
    store = tmp_path / "ours" / "store"
    streams = store / "jetstream" / "A" / "streams"
    command = [*our_command(), "import", "-sd", str(store), str(tmp_path / "peer" / "store")]
    for wanted in (
        ".deleting-0-restore/S/msgs",
        ".deleting-0-restore/S/consumers",
        ".deleting-1-restore/T/msgs",
    ):
        # when
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while process.poll() is None and not (streams / wanted).exists():
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        # then
        found = {path.name for path in streams.iterdir() if not path.name.startswith(".")}
        assert found <= {"S", "T"}
        with running(tmp_path / "ours", "ours", CONFIG) as server:
            assert asyncio.run(named(server)) == found
            after = asyncio.run(look(server, {"a": tuple(sorted(found))}))
        assert after == {key: value for key, value in before.items() if key.split()[1] in found}
        assert not list(store.rglob(".deleting-*"))
        for name in found:
            subprocess.run(["rm", "-r", str(streams / name)], check=True)


async def named(server: ServerProcess) -> set[str]:
    client = await connected(server, "a")
    names = (await archives.asked(client, "STREAM.NAMES", {}))["streams"] or []
    await client.close()
    return set(names)
