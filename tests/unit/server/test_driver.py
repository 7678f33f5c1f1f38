import asyncio
from typing import cast

import pytest
from tests.support.timers import fire

from pyjs.base.clock import VirtualClock
from pyjs.base.disk import OsDisk
from pyjs.base.log import ListLog
from pyjs.base.rng import SeededRng
from pyjs.base.timers import Timers
from pyjs.config.options import Options
from pyjs.core.sink import Turn
from pyjs.node import Node
from pyjs.server.driver import Driver
from pyjs.server.system.clock import SystemClock

MS = 1_000_000


class CountingNode:
    """Counts its turns; the first `work` turns leave work for another turn."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.log = ListLog()
        self.timers = Timers()
        self.turn_state = Turn()
        self.turns = 0
        self.work = 0
        self.has_work = False

    def turn(self, now_ns: int) -> None:
        self.turns += 1
        fire(self.timers, now_ns)
        self.has_work = self.work > 0
        self.work -= self.has_work

    def next_deadline_ns(self) -> int | None:
        return self.timers.next_deadline_ns()


def made() -> tuple[CountingNode, Driver]:
    node = CountingNode()
    return node, Driver(asyncio.get_running_loop(), cast(Node, node))


async def test_all_wakes_of_an_iteration_share_one_turn() -> None:
    node, driver = made()

    for _ in range(10):
        driver.wake()
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert node.turns == 1


async def test_left_over_work_gets_another_turn() -> None:
    node, driver = made()
    node.work = 2

    driver.wake()
    for _ in range(10):
        await asyncio.sleep(0)

    assert node.turns == 3


async def test_a_deadline_is_met_without_any_event() -> None:
    node, driver = made()
    loop = asyncio.get_running_loop()
    fired: asyncio.Future[int] = loop.create_future()
    due_ns = node.clock.now_ns() + 5 * MS
    node.timers.at(due_ns, lambda: fired.set_result(node.clock.now_ns()))

    driver.wake()

    assert await asyncio.wait_for(fired, 60) >= due_ns


async def test_a_deadline_that_is_near_does_not_make_turns_in_a_row() -> None:
    node, driver = made()
    loop = asyncio.get_running_loop()
    fired: asyncio.Future[None] = loop.create_future()
    # Ten deadlines of half a millisecond, each set when the one before has passed.
    left = 10

    def next_deadline() -> None:
        nonlocal left
        left -= 1
        if left:
            node.timers.at(node.clock.now_ns() + MS // 2, next_deadline)
        else:
            fired.set_result(None)

    next_deadline()
    driver.wake()
    await asyncio.wait_for(fired, 60)

    assert node.turns <= 12


async def test_an_earlier_deadline_replaces_the_armed_one() -> None:
    node, driver = made()
    fired: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    node.timers.at(node.clock.now_ns() + 3600_000 * MS, lambda: None)
    driver.wake()
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    node.timers.at(node.clock.now_ns() + MS, lambda: fired.set_result(None))
    driver.wake()

    await asyncio.wait_for(fired, 60)


@pytest.mark.parametrize("near_ms", [30, 150])
async def test_a_deadline_that_has_moved_far_does_not_wake_the_loop(near_ms: int) -> None:
    node, driver = made()
    near = node.timers.at(node.clock.now_ns() + near_ms * MS, lambda: None)
    driver.turn_now()
    driver.wake()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    near.cancel()
    node.timers.at(node.clock.now_ns() + 3600_000 * MS, lambda: None)
    driver.wake()
    await asyncio.sleep((near_ms + 30) / 1000)

    assert node.turns == 3


async def test_a_read_makes_a_turn_only_if_it_leaves_work() -> None:
    node, driver = made()
    driver.wake_if_needed()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert node.turns == 0

    node.turn_state.requests.append("work")  # type: ignore[arg-type]
    driver.wake_if_needed()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert node.turns == 1


async def test_a_read_without_work_sets_the_timer_to_its_deadline() -> None:
    node, driver = made()
    fired: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    node.timers.at(node.clock.now_ns() + MS, lambda: fired.set_result(None))
    driver.wake_if_needed()
    await asyncio.wait_for(fired, 60)


async def test_after_the_turn_others_have_their_say() -> None:
    node, driver = made()
    turns: list[int] = []
    driver.after_turn.append(lambda: turns.append(node.turns))

    driver.turn_now()

    assert turns == [1]


async def test_a_hook_with_a_list_is_called_only_after_turns_that_leave_items_in_it() -> None:
    _, driver = made()
    due, taken = [], []

    def take() -> None:
        taken.append(due.copy())
        due.clear()

    driver.after_turn_with(due, take)

    driver.turn_now()
    due.append("dial")
    driver.turn_now()
    driver.turn_now()

    assert taken == [["dial"]]


async def test_threads_are_given_work_only_after_turns_that_leave_some() -> None:
    node, driver = made()
    jobs, upkeep, state = [], [], node.turn_state
    driver.jobs_queued.append(lambda: jobs.append(state.take("jobs")))
    driver.upkeep_queued.append(lambda: upkeep.append(state.take("upkeep")))

    driver.turn_now()
    state.jobs.append("job")
    driver.turn_now()
    state.upkeep.append("store")
    driver.turn_now()
    driver.turn_now()

    assert (jobs, upkeep) == ([["job"]], [["store"]])


async def test_a_hook_for_the_next_turn_is_called_once_and_may_ask_again() -> None:
    node, driver = made()
    turns: list[int] = []

    def hook() -> None:
        turns.append(node.turns)
        if node.turns < 2:
            driver.after_next_turn(hook)

    driver.after_next_turn(hook)
    for _ in range(4):
        driver.turn_now()

    assert turns == [1, 2]


async def test_a_stopped_driver_takes_no_turn() -> None:
    node, driver = made()
    node.timers.at(node.clock.now_ns() + MS, lambda: None)
    driver.turn_now()
    driver.wake()

    driver.stop()
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert node.turns == 1


async def lone_reads(driver: Driver, count: int) -> None:
    """Do `count` reads, each in its own iteration of the loop."""
    for _ in range(count):
        driver.wake_for_input()
        await asyncio.sleep(0)


async def test_a_read_has_its_turn_at_once_when_the_ones_before_had_no_company() -> None:
    node, driver = made()

    driver.wake_for_input()
    assert node.turns == 0
    await asyncio.sleep(0)
    await lone_reads(driver, 10)
    assert node.turns == 11
    driver.wake_for_input()
    driver.wake_for_input()

    assert node.turns == 13


async def test_a_read_of_some_waits_and_if_another_one_comes_all_reads_share_turns_for_a_while() -> None:
    node, driver = made()
    await lone_reads(driver, 20)

    before = node.turns
    for _ in range(20):
        driver.wake_for_input()
    assert node.turns < before + 10
    await asyncio.sleep(0)
    before = node.turns
    for _ in range(100):
        driver.wake_for_input()
        driver.wake_for_input()
        await asyncio.sleep(0)
    assert node.turns == before + 100
    await lone_reads(driver, 300)
    before = node.turns
    driver.wake_for_input()

    assert node.turns == before + 1


async def test_a_read_waits_for_a_turn_that_is_scheduled_already() -> None:
    node, driver = made()
    await lone_reads(driver, 10)
    before = node.turns

    driver.wake()
    driver.wake_for_input()
    assert node.turns == before
    await asyncio.sleep(0)
    driver.wake_for_input()

    assert node.turns == before + 2


async def test_a_turn_that_fails_does_not_fail_the_read_before_it() -> None:
    node, driver = made()
    await lone_reads(driver, 10)
    before = node.turns
    loop, reported = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    failure = RuntimeError("a turn")
    driver.after_turn.append(lambda: _raise(failure))

    driver.wake_for_input()

    assert node.turns == before + 1
    assert reported == [failure]


def _raise(error: Exception) -> None:
    raise error


async def test_deadlines_of_connections_that_fall_together_share_turns_with_everything_else() -> None:
    clock = VirtualClock()
    node = Node(Options(), clock, SeededRng(1), OsDisk(), ListLog())
    driver = Driver(asyncio.get_running_loop(), node)
    per_turn: list[int] = []

    def close() -> None:
        clock.advance(MS // 10)
        per_turn[-1] += 1

    driver.after_turn.insert(0, lambda: per_turn.append(0))
    for _ in range(1000):
        driver.after(0.001, close)
    clock.advance(MS)
    per_turn.append(0)
    while sum(per_turn) < 1000:
        driver.wake()
        await asyncio.sleep(0)

    assert max(per_turn) <= 16
