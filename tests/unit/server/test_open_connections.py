"""The open connections of a port."""

from __future__ import annotations

import sys

from pyjs.server.open_connections import OpenConnections


async def test_when_the_last_one_is_gone_nothing_of_a_crowd_is_left() -> None:
    connections: OpenConnections[object] = OpenConnections()
    alone = sys.getsizeof(connections._open)
    crowd = [object() for _ in range(1_000)]
    for one in crowd:
        connections.add(one)
    for one in crowd:
        connections.discard(one)

    await connections.wait_empty()
    assert len(connections) == 0
    assert sys.getsizeof(connections._open) == alone
