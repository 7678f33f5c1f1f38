"""Upkeep in its thread, and the work that its end causes in the event loop."""

from __future__ import annotations

import asyncio

from pyjs.server.driver import Driver
from pyjs.server.threads.io_thread import IoThread
from pyjs.server.threads.upkeep import Upkeep
from pyjs.testing import VirtualNode


class Store:
    """Requests upkeep a number of times; has a deadline when it is done."""

    def __init__(self, fixture: VirtualNode, jobs: int) -> None:
        self._fixture = fixture
        self._left = jobs
        self.results: list[Exception | None] = []
        self.deadline_passed = asyncio.Event()

    def begin_upkeep(self) -> object:
        if self._left == 0:
            return None
        self._left -= 1
        return lambda: None

    def finish_upkeep(self, error: Exception | None) -> None:
        self.results.append(error)
        if self._left == 0:
            self._fixture.node.timers.at(self._fixture.clock.now_ns(), self.deadline_passed.set)


async def test_a_deadline_that_the_end_of_a_job_set_is_kept_by_an_idle_server() -> None:
    loop, fixture = asyncio.get_running_loop(), VirtualNode()
    driver = Driver(loop, fixture.node)
    thread = IoThread(loop, "test")
    driver.after_turn.append(Upkeep(driver, thread).after_turn)
    store = Store(fixture, 3)

    fixture.node.turn_state.upkeep.append(store)
    driver.wake()

    await asyncio.wait_for(store.deadline_passed.wait(), 60)
    assert store.results == [None, None, None]
    thread.stop()
    driver.stop()


async def test_closed_upkeep_ends_the_job_at_work_and_begins_no_other() -> None:
    loop, fixture = asyncio.get_running_loop(), VirtualNode()
    driver = Driver(loop, fixture.node)
    thread = IoThread(loop, "test")
    upkeep = Upkeep(driver, thread)
    store = Store(fixture, 3)
    fixture.node.turn_state.upkeep.append(store)
    upkeep.after_turn()
    assert upkeep.is_busy

    upkeep.close()
    await asyncio.wait_for(thread.finish(), 60)

    assert store.results == [None]
    assert not upkeep.is_busy
    driver.stop()
