"""A stream is read completely, also if its last batch has a single message."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.conformance.harness.process import ServerProcess, our_command
from tests.failover import reading
from tests.failover.link import Link


async def read_both(port: int, count: int) -> tuple[reading.Stored, reading.Stored]:
    """Publish `count` messages, and return what a consumer and direct gets read."""
    link = Link("127.0.0.1", port)
    link.begin()
    while not link.is_up:
        await asyncio.sleep(0.005)  # pause between two looks: a link has no event for its connection
    await link.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "allow_direct": True})
    for number in range(1, count + 1):
        assert await link.request(b"s", b"%d" % number)
    found = await reading.messages(link, "S"), await reading.messages(link, "S", is_direct=True)
    await link.end()
    return found


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_a_last_batch_of_one_message_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    # given
    monkeypatch.setattr(reading, "BATCH", batch)
    server = ServerProcess(our_command(), 'jetstream: {store_dir: "<<store>>"}', tmp_path, with_http=False)
    server.start()
    try:
        # when
        consumed, direct = asyncio.run(read_both(server.port, 4))
    finally:
        server.kill()
    # then
    assert consumed == direct == [(number, "s", b"%d" % number) for number in range(1, 5)]
