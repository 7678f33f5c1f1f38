"""A publisher that is faster than its stream is slowed down; it is never disconnected and loses no message."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.conformance.harness.process import ServerProcess
from tests.support.raw import RawClient

MESSAGES = 1_000_000


@pytest.mark.timeout(300)
@pytest.mark.parametrize("storage", ["file", "memory"])
def test_a_million_publishes_without_reply_are_all_stored(
    start_server: Callable[..., ServerProcess], storage: str
) -> None:
    client = RawClient(start_server().port)
    client.api("STREAM.CREATE.BURST", name="BURST", subjects=["burst"], storage=storage)
    chunk = b"PUB burst 16\r\n0123456789abcdef\r\n" * 10_000
    for _ in range(MESSAGES // 10_000):
        client.send(chunk)
    client.fence()
    state = client.api("STREAM.INFO.BURST")["state"]
    assert (state["messages"], state["last_seq"]) == (MESSAGES, MESSAGES)
