"""kill -9 in the middle of a burst: every acknowledged message is stored once, in order."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable

import pytest
from tests.conformance.harness.process import ServerProcess
from tests.support.raw import RawClient
from tests.system.conftest import JETSTREAM

StartServer = Callable[..., ServerProcess]
MESSAGES = 100_000
CYCLES = int(os.environ.get("PYJS_KILL_CYCLES", "20"))
# numbers of messages written to the socket when the server is killed
KILL_AFTER = [3_000, 25_000, 50_000, 75_000, 97_000]
CHUNK = 500


def publish_until_killed(server: ServerProcess, first: int, kill_after: int) -> dict[int, int]:
    """Publish MESSAGES messages from number `first` on, kill the server meanwhile; return {number: acked seq}."""
    client = RawClient(server.port)
    pad = b"x" * 112

    def send() -> None:
        for start in range(first, first + MESSAGES, CHUNK):
            numbers = range(start, start + CHUNK)
            try:
                client.send(
                    b"".join(b"PUB burst _INBOX.raw.%d 128\r\n%016d%b\r\n" % (n, n, pad) for n in numbers)
                )
            except OSError:
                return  # the server was killed, as intended
            if start - first == kill_after:
                server.kill()

    sender = threading.Thread(target=send)
    sender.start()
    acks: dict[int, int] = {}
    try:
        for subject, _, _, body in client.frames():
            acks[int(subject.rpartition(b".")[2])] = json.loads(body)["seq"]
    except OSError:
        sender.join()
    client.close()
    return acks


def stored(server: ServerProcess) -> list[tuple[int, int]]:
    """Return (seq, number) of every message of the stream, read through a pull consumer."""
    client = RawClient(server.port)
    state = client.api("STREAM.INFO.BURST")["state"]
    name = client.api(
        "CONSUMER.CREATE.BURST", stream_name="BURST", config={"ack_policy": "none", "deliver_policy": "all"}
    )["name"]
    found: list[tuple[int, int]] = []
    frames = client.frames()
    while len(found) < state["messages"]:
        batch = min(10_000, state["messages"] - len(found))
        client.send(
            b"PUB $JS.API.CONSUMER.MSG.NEXT.BURST.%b _INBOX.raw.n %d\r\n%d\r\n"
            % (name.encode(), len(str(batch)), batch)
        )
        for _ in range(batch):
            _, reply, _, payload = next(frames)
            found.append((int(reply.split(b".")[5]), int(payload[:16])))
    client.close()
    assert [seq for seq, _ in found[-1:]] == [state["last_seq"]][: len(found)]
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("encoding", ["plain", "encrypted and compressed"])
def test_every_acknowledged_message_survives_kill_9(start_server: StartServer, encoding: str) -> None:
    is_encoded = encoding != "plain"
    server = (
        start_server(jetstream=JETSTREAM.replace("}", ", key: secret}")) if is_encoded else start_server()
    )
    client = RawClient(server.port)
    compression = "s2" if is_encoded else "none"
    client.api("STREAM.CREATE.BURST", name="BURST", subjects=["burst"], compression=compression)
    client.close()
    acknowledged: dict[int, int] = {}
    for cycle in range(CYCLES // 2 if is_encoded else CYCLES):
        if cycle % 5 == 0 and cycle:
            client = RawClient(server.port)
            client.api("STREAM.PURGE.BURST")
            client.close()
            acknowledged.clear()
        kill_after = KILL_AFTER[cycle % len(KILL_AFTER)]

        acks = publish_until_killed(server, cycle * MESSAGES, kill_after)
        assert len(acks) < MESSAGES
        acknowledged |= acks
        server.start()

        messages = stored(server)
        seqs = [seq for seq, _ in messages]
        numbers = [number for _, number in messages]
        by_number = {number: seq for seq, number in messages}
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs))) if seqs else not acknowledged
        assert numbers == sorted(set(numbers))
        assert {n: by_number.get(n) for n in acknowledged} == acknowledged
