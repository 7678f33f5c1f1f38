import asyncio
import os
import sys
import threading
import weakref

import pytest

from pyjs.server.threads.io_thread import IoThread


async def test_results_come_back_on_the_loop_in_order() -> None:
    loop = asyncio.get_running_loop()
    thread = IoThread(loop, "test")
    results: list[tuple[Exception | None, int]] = []
    done = loop.create_future()
    failure = OSError("disk")

    thread.submit(lambda: failure, lambda result: results.append((result, threading.get_ident())))
    thread.submit(
        lambda: None, lambda result: done.set_result(results.append((result, threading.get_ident())))
    )
    await asyncio.wait_for(done, 60)

    here = threading.get_ident()
    assert results == [(failure, here), (None, here)]
    assert thread.pending == 0
    thread.stop()


async def test_jobs_run_beside_the_loop() -> None:
    loop = asyncio.get_running_loop()
    thread = IoThread(loop, "test")
    release = threading.Event()
    done = loop.create_future()

    thread.submit(lambda: release.wait(5) and None, done.set_result)
    assert thread.pending == 1
    release.set()

    await asyncio.wait_for(done, 60)
    thread.stop()


async def test_stopping_finishes_what_was_given() -> None:
    ran: list[int] = []
    thread = IoThread(asyncio.get_running_loop(), "test")

    for at in range(10):
        thread.submit(lambda at=at: ran.append(at), lambda result: None)  # type: ignore[misc]
    thread.stop()
    thread.stop()

    assert ran == list(range(10))


async def test_the_loop_goes_on_while_a_thread_finishes() -> None:
    loop = asyncio.get_running_loop()
    thread = IoThread(loop, "test")
    release = threading.Event()
    results: list[Exception | None] = []
    thread.submit(lambda: release.wait(10) and None, results.append)

    loop.call_soon(release.set)  # only a running loop gets there before the ten seconds are over
    await asyncio.wait_for(thread.finish(), 60)

    assert results == [None]


async def test_a_thread_that_was_never_started_is_finished() -> None:
    await asyncio.wait_for(IoThread(asyncio.get_running_loop(), "test").finish(), 60)


async def test_a_job_that_raises_costs_no_other_job() -> None:
    thread = IoThread(asyncio.get_running_loop(), "test")
    results: list[Exception | None] = []
    done = asyncio.get_running_loop().create_future()
    error = ValueError("a defect")

    def fails() -> None:
        raise error

    thread.submit(fails, results.append)
    thread.submit(lambda: None, done.set_result)
    assert await asyncio.wait_for(done, 60) is None
    assert results == [error]
    thread.stop()


async def test_a_thread_that_waits_holds_nothing_of_its_last_job() -> None:
    class Stream:
        def sync(self) -> None:
            pass

        def finish_sync(self, result: Exception | None) -> None:
            done.set_result(None)

    thread = IoThread(asyncio.get_running_loop(), "test")
    done = asyncio.get_running_loop().create_future()
    stream = Stream()
    gone = threading.Event()
    weakref.finalize(stream, gone.set)

    thread.submit(stream.sync, stream.finish_sync)
    del stream
    await asyncio.wait_for(done, 60)

    assert await asyncio.to_thread(gone.wait, 5)
    thread.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives each thread a priority of its own")
async def test_a_thread_that_computes_lets_the_loop_have_a_core_first() -> None:
    loop = asyncio.get_running_loop()
    thread = IoThread(loop, "test", yields=True)
    seen = loop.create_future()
    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    if before >= 10:
        thread.stop()
        pytest.skip("this run has a lower priority than the thread asks for")

    def look() -> None:
        priority = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        loop.call_soon_threadsafe(seen.set_result, priority)

    thread.submit(look, lambda _: None)

    assert await asyncio.wait_for(seen, 60) > before
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == before
    thread.stop()


async def test_several_threads_run_that_many_jobs_at_the_same_time() -> None:
    loop = asyncio.get_running_loop()
    threads = IoThread(loop, "test", most=3)
    together, released = threading.Barrier(4), threading.Event()
    begun: list[int] = []
    results: list[Exception | None] = []

    def slow() -> None:
        together.wait(20)
        released.wait(20)

    for _ in range(3):
        threads.submit(slow, results.append)
    threads.submit(lambda: begun.append(1), results.append)
    await asyncio.to_thread(together.wait, 20)  # wait until three jobs run
    assert begun == []  # and the fourth waits for one of them
    released.set()
    await asyncio.wait_for(threads.finish(), 60)

    assert results == [None] * 4
    assert begun == [1]


async def test_an_idle_thread_takes_the_next_job() -> None:
    names: list[int] = []
    threads = IoThread(asyncio.get_running_loop(), "test", most=3)
    for _ in range(3):
        done = asyncio.get_running_loop().create_future()
        threads.submit(lambda: names.append(threading.get_ident()), done.set_result)
        await asyncio.wait_for(done, 60)
    threads.stop()

    assert len(set(names)) == 1
