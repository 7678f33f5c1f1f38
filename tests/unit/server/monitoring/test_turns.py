"""Work of the monitoring port in the turns of the node."""

from __future__ import annotations

from collections.abc import Iterator

from pyjs.aio import Server
from pyjs.server.driver import Driver
from pyjs.server.monitoring.turns import in_turns


def driver_of(server: Server) -> Driver:
    assert server._server is not None
    return server._server.driver


async def test_steps_run_in_the_turns_of_the_node_even_if_nobody_waits() -> None:
    done = []

    def steps() -> Iterator[None]:
        for number in range(3):
            done.append(number)
            yield None

    async with Server() as server:
        driver = driver_of(server)
        for _ in range(2):
            await next(in_turns(driver, steps()))
        (gone,) = in_turns(driver, steps())
        gone.cancel()
        await next(in_turns(driver, steps()))

    assert sorted(done) == [0] * 4 + [1] * 4 + [2] * 4


async def test_the_wait_ends_if_a_step_fails() -> None:
    def broken() -> Iterator[None]:
        yield None
        raise ZeroDivisionError("broken step")

    async with Server() as server:
        await next(in_turns(driver_of(server), broken()))
