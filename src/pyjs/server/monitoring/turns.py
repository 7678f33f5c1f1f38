"""Work of the monitoring port that changes something: it runs as a chore in the turns of the node."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Generator, Iterator

    from pyjs.core.chore import Step
    from pyjs.server.driver import Driver


def in_turns(driver: Driver, steps: Iterator[Step]) -> Generator[asyncio.Future[None], None, None]:
    """Queue `steps` as a chore of the server, and yield a future that is done when they have ended.

    The chore runs to its end even if nobody waits for it.
    """
    ended = driver.loop.create_future()
    driver.node.turn_state.go_on(_and_tell(steps, ended))
    driver.wake()
    yield ended


def _and_tell(steps: Iterator[Step], ended: asyncio.Future[None]) -> Iterator[Step]:
    try:
        yield from steps
    finally:
        if not ended.done():
            ended.set_result(None)
