"""Other clients over WebSocket: nats-py, and the JavaScript client if Node is installed."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from tests.conformance.harness import javascript
from tests.conformance.harness.both import needs_peer
from tests.conformance.harness.websocket import Both, WebSocketServer, both_servers
from tests.support.certificates import COMMON, LOCAL, Authority, subject

pytest.importorskip("aiohttp", reason="nats-py needs aiohttp for WebSocket")
pytestmark = needs_peer
JETSTREAM = 'jetstream { store_dir: "<<store>>" }\n'
WS = JETSTREAM + 'websocket { listen: "127.0.0.1:<<ws>>", no_tls: true, compression: true, user_cookie: u }'
NODE_FLAG = "--experimental-websocket"  # Node 22 does not need the flag
SCRIPT = """
import { createRequire } from "node:module";
import path from "node:path";
const [url, modules] = process.argv.slice(2);
const require = createRequire(path.join(modules, "from.js"));
const { wsconnect } = require("@nats-io/nats-core");
const { jetstream, jetstreamManager } = require("@nats-io/jetstream");
const nc = await wsconnect({ servers: url });
const sub = nc.subscribe("echo");
(async () => { for await (const m of sub) m.respond(m.data); })();
const said = [(await nc.request("echo", "hello")).string()];
said.push((await nc.request("echo", "x".repeat(200000))).string().length);
const manager = await jetstreamManager(nc);
await manager.streams.add({ name: "JS", subjects: ["js.>"], storage: "memory" });
for (let i = 0; i < 50; i++) said.push((await jetstream(nc).publish("js.a", `${i}`)).seq);
console.log(JSON.stringify(said));
await nc.drain();
"""


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with both_servers(tmp_path_factory.mktemp("clients")) as servers:
        yield servers


async def session(url: str, tls: ssl.SSLContext | None = None) -> list[Any]:
    """Use core NATS and JetStream, and return the results."""
    seen: list[Any] = []
    client = await nats.connect(url, tls=tls, allow_reconnect=False)
    try:

        async def echo(message: Any) -> None:
            await message.respond(message.data)

        await client.subscribe("echo", cb=echo)
        for size in (0, 1, 100, 70_000, 900_000):
            answer = await client.request("echo", b"x" * size, timeout=10)
            seen.append(len(answer.data))
        stream = client.jetstream()
        await stream.add_stream(name="S", subjects=["s.>"])
        for number in range(100):
            ack = await stream.publish(f"s.{number % 3}", b"payload %d" % number, headers={"A": "b"})
            seen.append(ack.seq)
        pull = await stream.pull_subscribe("s.1", "durable")
        for message in await pull.fetch(10, timeout=5):
            seen.append((message.subject, message.data))
            await message.ack()
        await stream.delete_stream("S")
    finally:
        await client.close()
    return seen


def test_nats_py_works(both: Both) -> None:
    both.see(lambda server: asyncio.run(session(f"ws://127.0.0.1:{server.ws_port}")), WS)


def test_nats_py_works_over_tls(both: Both, tmp_path_factory: pytest.TempPathFactory) -> None:
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    authority.issue("server", subject(("localhost", COMMON)), *LOCAL)
    folder = authority.ca_file.parent
    pair = f'cert_file: "{folder}/server.pem", key_file: "{folder}/server-key.pem"'
    config = JETSTREAM + f'websocket {{ listen: "127.0.0.1:<<ws>>", tls {{ {pair} }} }}'
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    both.see(lambda server: asyncio.run(session(f"wss://localhost:{server.ws_port}", context)), config)


def test_a_client_of_the_websockets_library_may_compress(both: Both) -> None:
    """Masks, fragments and compressed messages come from another implementation than this server's."""
    websockets = pytest.importorskip("websockets.sync.client")

    def look(server: WebSocketServer) -> object:
        with websockets.connect(f"ws://127.0.0.1:{server.ws_port}", max_size=None) as line:
            assert line.recv().startswith(b"INFO ")
            line.send(b'CONNECT {"verbose":false}\r\nSUB a 1\r\n')
            line.send([b"PUB a 100000\r\n", b"x" * 60_000, b"x" * 40_000, b"\r\nPING\r\n"])
            text = b""
            while not text.endswith(b"PONG\r\n"):
                text += line.recv()
            line.close(1000, "done")
            return text, line.protocol.close_rcvd

    both.see(look, WS)


@pytest.mark.skipif(not (shutil.which("node") and shutil.which("npm")), reason="node and npm are missing")
def test_the_javascript_client_works(both: Both, tmp_path: Path) -> None:
    try:
        modules = javascript.packages()
    except javascript.NotInstalled as problem:
        pytest.skip(str(problem))
    if not _has_websocket():
        pytest.skip("this node has no WebSocket: it came with node 20.10")
    script = tmp_path / "ws.mjs"
    script.write_text(SCRIPT)

    def look(server: WebSocketServer) -> Any:
        command = ["node", NODE_FLAG, str(script), f"ws://127.0.0.1:{server.ws_port}", str(modules)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert both.see(look, WS)[:2] == ["hello", 200_000]


def _has_websocket() -> bool:
    script = "process.exit(globalThis.WebSocket ? 0 : 1)"
    return subprocess.run(["node", NODE_FLAG, "-e", script], timeout=30, check=False).returncode == 0
