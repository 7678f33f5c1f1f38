"""A segment file that is cut while the server runs: the server continues, serves the rest and counts the losses."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conformance.harness.process import ServerProcess
from tests.support.raw import RawClient

StartServer = Callable[..., ServerProcess]
COUNT = 12_000


def messages(client: RawClient, seqs: range) -> list[int]:
    """Return those of `seqs` that direct gets find."""
    found = []
    frames = client.frames()
    for seq in seqs:
        request = b'{"seq":%d}' % seq
        client.send(b"PUB $JS.API.DIRECT.GET.S _INBOX.raw.g %d\r\n%b\r\n" % (len(request), request))
        _, _, _, payload = next(frames)
        if payload:
            assert payload == b"%08d" % seq + b"x" * 1000
            found.append(seq)
    return found


@pytest.mark.parametrize("segment", [0, -1])
def test_a_server_survives_a_cut_segment(start_server: StartServer, tmp_path: Path, segment: int) -> None:
    server = start_server()
    client = RawClient(server.port)
    client.api("STREAM.CREATE.S", name="S", subjects=["s"], allow_direct=True)
    for first in range(1, COUNT + 1, 500):
        numbers = range(first, first + 500)
        client.send(b"".join(b"PUB s 1008\r\n%08d%b\r\n" % (number, b"x" * 1000) for number in numbers))
    assert client.api("STREAM.INFO.S")["state"]["messages"] == COUNT
    seen = range(100, COUNT, 100)
    assert messages(client, seen) == list(seen)

    paths = sorted(tmp_path.rglob("S/msgs/*.seg"))
    assert len(paths) == 2
    os.truncate(paths[segment], 100_000)

    left = messages(client, seen)
    assert 0 < len(left) < len(seen)
    state = client.api("STREAM.INFO.S")["state"]
    assert state["messages"] < COUNT
    assert state["last_seq"] == COUNT
    assert messages(client, seen) == left
    client.close()
