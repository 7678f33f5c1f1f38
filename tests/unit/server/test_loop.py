import os
import socket
import threading
from collections.abc import Iterator

import pytest

from pyjs.base.timers import SWEEP_MIN
from pyjs.server import loop as loop_module
from pyjs.server.loop import SPIN_CREDIT_MAX, EventLoop, default_spin_ns


@pytest.fixture(params=["epoll", "poll"])
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[EventLoop]:
    if request.param == "poll":
        monkeypatch.delattr("select.epoll")
    made = EventLoop()
    yield made
    made.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    one.setblocking(False)
    with one, other:
        yield one, other


def test_calls_run_in_the_order_given(loop: EventLoop) -> None:
    ran: list[int] = []
    for at in range(10):
        loop.call_soon(ran.append, at)
    loop.call_soon(loop.stop)

    loop.run()

    assert ran == list(range(10))


def test_a_run_after_a_stop_returns_at_once_and_the_next_one_runs(loop: EventLoop) -> None:
    ran: list[int] = []
    loop.call_soon(ran.append, 1)
    loop.stop()

    loop.run()
    assert ran == []

    loop.call_soon(loop.stop)
    loop.run()
    assert ran == [1]


def test_a_call_asked_for_by_a_call_comes_in_the_next_iteration(loop: EventLoop) -> None:
    ran: list[str] = []
    loop.call_soon(loop.call_soon, ran.append, "second")
    loop.call_soon(ran.append, "first")
    loop.call_soon(loop.stop)

    loop.run()
    assert ran == ["first"]

    loop.call_soon(loop.stop)
    loop.run()
    assert ran == ["first", "second"]


def test_what_a_reader_asks_for_runs_in_the_same_iteration(
    loop: EventLoop, pair: tuple[socket.socket, socket.socket]
) -> None:
    ran: list[str] = []

    def read() -> None:
        pair[0].recv(10)
        loop.call_soon(ran.append, "turn")
        loop.stop()

    loop.add_reader(pair[0].fileno(), read)
    pair[1].send(b"x")

    loop.run()

    assert ran == ["turn"]


def test_timers_fire_in_the_order_of_their_times(loop: EventLoop) -> None:
    fired: list[str] = []
    begun = loop.time()
    loop.call_later(0.02, fired.append, "late")
    loop.call_later(0.03, loop.stop)
    loop.call_later(0.001, fired.append, "early")
    loop.call_later(0.01, fired.append, "never").cancel()

    loop.run()

    assert fired == ["early", "late"]
    assert loop.time() - begun >= 0.03


@pytest.mark.parametrize("days", [25, 365, 292 * 365])
def test_a_loop_sleeps_towards_a_timer_that_is_years_away(loop: EventLoop, days: int) -> None:
    loop.call_later(days * 86400, print)
    thread = threading.Timer(0.05, loop.call_soon_threadsafe, (loop.stop,))
    thread.start()

    loop.run()

    thread.join()


def test_cancelled_timers_do_not_pile_up(loop: EventLoop) -> None:
    for _ in range(100 * SWEEP_MIN):
        loop.call_later(3600, loop.stop).cancel()

    assert len(loop._timers._heap) <= 2 * SWEEP_MIN


def test_another_thread_wakes_a_loop_that_sleeps(loop: EventLoop) -> None:
    thread = threading.Timer(0.05, loop.call_soon_threadsafe, (loop.stop,))
    thread.start()

    loop.run()

    thread.join()


def test_a_closed_loop_takes_no_calls() -> None:
    loop = EventLoop()
    loop.close()

    with pytest.raises(RuntimeError, match="closed"):
        loop.call_soon_threadsafe(print)


def test_a_hundred_thousand_wakes_do_not_fill_the_pipe_for_good(loop: EventLoop) -> None:
    called: list[int] = []
    for at in range(100_000):
        loop.call_soon_threadsafe(called.append, at)
    loop.call_soon_threadsafe(loop.stop)

    loop.run()

    assert len(called) == 100_000


def test_a_writer_is_told_when_there_is_room(
    loop: EventLoop, pair: tuple[socket.socket, socket.socket]
) -> None:
    one, other = pair
    while True:
        try:
            one.send(b"x" * 65536)
        except BlockingIOError:
            break
    loop.add_writer(one.fileno(), loop.stop)
    loop.call_later(0.01, other.recv, 1 << 24)

    loop.run()

    assert one.send(b"y") == 1
    assert loop.remove_writer(one.fileno())
    assert not loop.remove_writer(one.fileno())


def test_a_reader_is_told_of_the_end(loop: EventLoop, pair: tuple[socket.socket, socket.socket]) -> None:
    loop.add_reader(pair[0].fileno(), loop.stop)
    pair[1].close()

    loop.run()

    assert pair[0].recv(1) == b""


def test_a_descriptor_that_nobody_waits_for_keeps_no_loop_busy(
    loop: EventLoop, pair: tuple[socket.socket, socket.socket]
) -> None:
    loop.add_reader(pair[0].fileno(), loop.stop)
    loop.add_writer(pair[0].fileno(), lambda: loop.remove_writer(pair[0].fileno()))
    assert loop.remove_reader(pair[0].fileno())
    assert not loop.remove_reader(pair[0].fileno())
    pair[1].close()
    loop.call_later(0.01, loop.stop)

    loop.run()

    assert not loop._readers.keys() & {pair[0].fileno()}
    assert loop._poll.poll(0) == []


def test_an_exception_is_handed_over_and_the_loop_goes_on(loop: EventLoop) -> None:
    told: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: told.append(context))
    loop.call_soon(int, "no number")
    loop.call_soon(loop.stop)

    loop.run()

    assert isinstance(told[0]["exception"], ValueError)
    assert "Exception in callback" in str(told[0]["message"])


def test_without_a_handler_an_exception_ends_the_run(loop: EventLoop) -> None:
    loop.call_soon(int, "no number")

    with pytest.raises(ValueError, match="no number"):
        loop.run()


class Waits:
    """Stands for the poll of a loop and for its clock: waits that end after planned times."""

    def __init__(self, loop: EventLoop, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = loop
        self.now_ns = 0
        self.ready_at_ns = 0
        self.sleeps = 0
        monkeypatch.setattr(loop._poll, "poll", self.poll)
        monkeypatch.setattr(loop_module, "monotonic_ns", lambda: self.now_ns)

    def poll(self, timeout_s: float | None) -> list[tuple[int, int]]:
        if timeout_s is None:
            self.sleeps += 1
            self.now_ns = max(self.now_ns, self.ready_at_ns) + 30_000
        else:
            self.now_ns += 1_000
        return [(-1, 0)] if self.now_ns >= self.ready_at_ns else []

    def wait(self, gap_ns: int) -> bool:
        """Wait for what comes `gap_ns` from now; return whether the loop slept."""
        self.ready_at_ns = self.now_ns + gap_ns
        before = self.sleeps
        self.loop._wait()
        return self.sleeps > before


def test_short_waits_are_spun_and_long_ones_soon_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = EventLoop(spin_ns=50_000)
    waits = Waits(loop, monkeypatch)

    assert not any(waits.wait(20_000) for _ in range(100))
    assert all(waits.wait(10_000_000) for _ in range(SPIN_CREDIT_MAX))
    before_ns = waits.now_ns
    waits.wait(10_000_000)

    assert waits.now_ns - before_ns == 10_030_000  # went to sleep without a look
    loop.close()


def test_short_sleeps_bring_spinning_back(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = EventLoop(spin_ns=50_000)
    waits = Waits(loop, monkeypatch)
    for _ in range(SPIN_CREDIT_MAX + 1):
        waits.wait(10_000_000)

    assert waits.wait(20_000)
    assert not waits.wait(20_000)
    loop.close()


def test_nothing_spins_where_there_is_one_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert default_spin_ns() == 0

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert default_spin_ns() > 0
