"""kill -9 while streams copy: each message of the source stream is in its mirror and in the sourced copy, once."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable

import pytest
from tests.conformance.harness.process import ServerProcess
from tests.support.raw import RawClient

StartServer = Callable[..., ServerProcess]
MESSAGES = 20_000
CYCLES = int(os.environ.get("PYJS_KILL_CYCLES", "20")) // 5
CHUNK = 500
PAGE = 10_000
COPIES = {"MIRROR": {"mirror": {"name": "ORIGIN"}}, "COPY": {"sources": [{"name": "ORIGIN"}]}}


def publish_until_killed(server: ServerProcess, first: int, kill_after: int) -> None:
    """Publish MESSAGES messages, numbered from `first`; kill the server after a number of acknowledgements."""
    client = RawClient(server.port)

    def send() -> None:
        for start in range(first, first + MESSAGES, CHUNK):
            numbers = range(start, start + CHUNK)
            try:
                client.send(b"".join(b"PUB burst _INBOX.raw.1 16\r\n%016d\r\n" % n for n in numbers))
            except OSError:
                return  # the server was killed, as intended

    sender = threading.Thread(target=send)
    sender.start()
    try:
        for acknowledged, _ in enumerate(client.frames(), 1):
            if acknowledged == kill_after:
                server.kill()
    except OSError:
        sender.join()
    client.close()


def stored(server: ServerProcess, stream: str) -> list[tuple[int, int]]:
    """Return (seq, number) of every message of a stream."""
    client = RawClient(server.port)
    state = client.api(f"STREAM.INFO.{stream}")["state"]
    found: list[tuple[int, int]] = []
    frames = client.frames()
    while len(found) < state["messages"]:
        body = json.dumps({"batch": PAGE, "seq": found[-1][0] + 1 if found else 1}).encode()
        client.send(
            b"PUB $JS.API.DIRECT.GET.%b _INBOX.raw.n %d\r\n%b\r\n" % (stream.encode(), len(body), body)
        )
        for _, _, headers, payload in frames:
            if headers.startswith(b"NATS/1.0 204"):
                break
            found.append((int(headers.split(b"Nats-Sequence: ")[1].split(b"\r\n")[0]), int(payload)))
    client.close()
    return found


def wait_for_copies(server: ServerProcess) -> None:
    """Wait until the copies have the last message of the origin."""
    client = RawClient(server.port)
    last = client.api("STREAM.INFO.ORIGIN")["state"]["last_seq"]
    while client.api("STREAM.INFO.MIRROR")["state"]["last_seq"] < last:
        pass
    while client.api("STREAM.INFO.COPY")["sources"][0].get("seq", 0) < last:
        pass
    client.close()


@pytest.mark.timeout(300)
def test_copies_lose_and_double_nothing_after_kill_9(start_server: StartServer) -> None:
    # given
    server = start_server()
    client = RawClient(server.port)
    client.api("STREAM.CREATE.ORIGIN", name="ORIGIN", subjects=["burst"], allow_direct=True)
    for name, config in COPIES.items():
        client.api(f"STREAM.CREATE.{name}", name=name, allow_direct=True, **config)
    client.close()
    for cycle in range(CYCLES):
        # when
        publish_until_killed(server, cycle * MESSAGES, 1000 + 4000 * (cycle % 4))
        server.start()
        wait_for_copies(server)

        # then
        origin = stored(server, "ORIGIN")
        assert len(origin) > cycle
        assert stored(server, "MIRROR") == origin
        assert [number for _, number in stored(server, "COPY")] == [number for _, number in origin]
