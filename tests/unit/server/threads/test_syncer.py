import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyjs.base.disk import OsDisk
from pyjs.config.options import JetStreamOptions
from pyjs.jetstream.config.choices import FILE
from pyjs.jetstream.config.stream import StreamConfig
from pyjs.jetstream.manage.expiry import Expiry
from pyjs.jetstream.stream.limits import Usage
from pyjs.jetstream.stream.stream import Stream
from pyjs.server.driver import Driver
from pyjs.server.threads import syncer
from pyjs.server.threads.io_thread import IoThread
from pyjs.server.threads.syncer import Syncer
from pyjs.store.file.store import FileStore
from pyjs.store.open_files import OpenFiles
from pyjs.testing import VirtualNode

S = 1_000_000_000


class GatedDisk(OsDisk):
    """Syncs files only while the gate is open; raises an error on request."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.failure: OSError | None = None
        self.syncs = 0

    def sync_file(self, fd: int) -> None:
        assert self.gate.wait(10)
        self.syncs += 1
        if self.failure is not None:
            raise self.failure
        super().sync_file(fd)


class Site:
    """A file stream in a node that runs on this loop."""

    def __init__(
        self, directory: Path, always: bool, interval_ns: int = 3600 * S, files_max: int = 512
    ) -> None:
        loop = asyncio.get_running_loop()
        self.disk = GatedDisk()
        self.fixture = VirtualNode()
        node = self.fixture.node
        self.driver = Driver(loop, node)
        self.io_thread = IoThread(loop, "test")
        options = JetStreamOptions(store_dir=str(directory), sync_interval_ns=interval_ns, sync_always=always)
        self.files = OpenFiles(self.disk, files_max)
        self.syncer = Syncer(self.driver, self.io_thread, options, self.files)
        self.driver.after_turn.append(self.syncer.after_turn)
        self.store = FileStore(self.disk, str(directory / "S"), node.log, files=self.files)
        config = StreamConfig(name="S", subjects=("s.>",), storage=FILE)
        head = b'{"stream":"S","seq":'
        account = node.accounts["$G"]
        self.stream = Stream(account, config, self.store, S, Usage(), Usage(), head, Expiry(node.timers))
        self.stream.sync_always = always
        account.subscribe(b"s.>", self.stream)
        self.client = self.fixture.client()
        self.client.send(b"SUB ack 1\r\n")
        self.client.take()

    def publish(self, count: int = 1) -> None:
        self.client.session.receive_data(b"PUB s.1 ack 2\r\nhi\r\n" * count)
        self.driver.turn_now()

    def acks(self) -> list[bytes]:
        return self.client.payloads()

    async def settle(self) -> None:
        """Wait until the thread is idle and its results have been processed."""
        self.driver.turn_now()
        while self.io_thread.pending:
            await asyncio.sleep(0.001)
            self.driver.turn_now()
        self.driver.turn_now()

    def close(self) -> None:
        self.disk.gate.set()
        self.io_thread.stop()
        self.driver.stop()


@pytest.fixture
def opened() -> Iterator[list[Site]]:
    sites: list[Site] = []
    yield sites
    for site in sites:
        site.close()


async def test_an_ack_leaves_after_the_sync(tmp_path: Path, opened: list[Site]) -> None:
    site = Site(tmp_path, always=True)
    opened.append(site)
    site.disk.gate.clear()

    site.publish()

    assert site.acks() == []
    assert site.stream.store.msgs == 1
    site.disk.gate.set()
    await site.settle()
    assert site.acks() == [b'{"stream":"S","seq":1}']
    assert site.store.syncs.synced_mark == site.store.syncs.written_mark


async def test_what_comes_during_a_sync_shares_the_next_one(tmp_path: Path, opened: list[Site]) -> None:
    site = Site(tmp_path, always=True)
    opened.append(site)
    await site.settle()
    before = site.disk.syncs
    site.disk.gate.clear()
    site.publish()

    for _ in range(50):
        site.publish(10)
    site.disk.gate.set()
    await site.settle()

    acks = site.acks()
    assert [ack for ack in acks if b"error" in ack] == []
    assert acks[-1] == b'{"stream":"S","seq":501}'
    assert len(acks) == 501
    assert site.disk.syncs - before == 2


async def test_a_failed_sync_refuses_what_waited_for_it(tmp_path: Path, opened: list[Site]) -> None:
    site = Site(tmp_path, always=True)
    opened.append(site)
    site.disk.failure = OSError(5, "Input/output error")

    site.publish(2)
    await site.settle()

    acks = site.acks()
    assert len(acks) == 2
    assert all(b'"error"' in ack for ack in acks)
    site.publish()
    assert b'"error"' in site.acks()[0]


async def test_a_stream_that_cannot_be_synced_at_its_end_refuses_what_waited(
    tmp_path: Path, opened: list[Site]
) -> None:
    site = Site(tmp_path, always=True)
    opened.append(site)
    site.disk.gate.clear()
    site.publish()
    site.publish()
    site.disk.failure = OSError(5, "Input/output error")
    site.disk.gate.set()

    site.stream.close()
    await site.settle()

    acks = site.acks()
    assert len(acks) == 2
    assert all(b'"error"' in ack for ack in acks)


async def test_without_always_acks_leave_at_once_and_the_sync_follows(
    tmp_path: Path, opened: list[Site]
) -> None:
    site = Site(tmp_path, always=False, interval_ns=S // 100)
    opened.append(site)

    site.publish()

    assert site.acks() == [b'{"stream":"S","seq":1}']
    assert site.store.dirty
    while site.store.dirty:
        await asyncio.sleep(0.001)
    assert site.store.syncs.synced_mark == site.store.syncs.written_mark


async def test_draining_syncs_everything_now(tmp_path: Path, opened: list[Site]) -> None:
    site = Site(tmp_path, always=False)
    opened.append(site)
    site.publish(3)

    drained = asyncio.get_running_loop().create_future()
    site.syncer.drain(lambda: drained.set_result(None))
    await asyncio.wait_for(drained, 60)

    assert not site.store.dirty
    assert len(site.acks()) == 3


@pytest.mark.parametrize("always", [True, False])
async def test_draining_ends_although_more_is_published_all_the_time(
    tmp_path: Path, opened: list[Site], monkeypatch: pytest.MonkeyPatch, always: bool
) -> None:
    monkeypatch.setattr(syncer, "DRAIN_S", 0.1)
    site = Site(tmp_path, always)
    opened.append(site)
    loop = asyncio.get_running_loop()
    site.publish()
    pending = loop.create_future()

    def flood() -> None:
        if not pending.done():
            site.publish()
            loop.call_soon(flood)

    loop.call_soon(flood)
    site.syncer.drain(lambda: pending.set_result(site.io_thread.pending))

    assert await asyncio.wait_for(pending, 60) == 0
    assert site.acks()[0] == b'{"stream":"S","seq":1}'


async def test_a_refusal_does_not_wait_for_a_sync_that_is_not_needed(
    tmp_path: Path, opened: list[Site]
) -> None:
    site = Site(tmp_path, always=True)
    opened.append(site)
    site.publish()
    await site.settle()
    site.acks()

    message = b"NATS/1.0\r\nNats-Expected-Stream: OTHER\r\n\r\n"
    size = len(message)
    site.client.session.receive_data(b"HPUB s.1 ack %d %d\r\n%b\r\n" % (size, size, message))
    await site.settle()

    assert b'"error"' in site.acks()[0]


class OneSyncDisk(GatedDisk):
    """Counts syncs of the whole file system; checks of files fail on request."""

    wholes = 0

    def sync_filesystem(self, fd: int) -> None:
        assert self.gate.wait(10)
        self.wholes += 1

    def check_file(self, fd: int) -> None:
        if self.failure is not None:
            raise self.failure


def grouped(site: Site, monkeypatch: pytest.MonkeyPatch) -> OneSyncDisk:
    """Make the streams of a site share a sync, however few they are."""
    disk = OneSyncDisk()
    site.driver.node.disk = disk
    monkeypatch.setattr(site.syncer, "group_min", 1)
    return disk


async def test_many_streams_are_synced_together(
    tmp_path: Path, opened: list[Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, always=False)
    opened.append(site)
    disk = grouped(site, monkeypatch)
    before = site.disk.syncs
    site.publish()

    site.syncer.sync()
    await site.settle()

    assert site.store.syncs.synced_mark == site.store.syncs.written_mark
    assert (disk.wholes, site.disk.syncs - before) == (1, 0)


async def test_a_stream_whose_bytes_were_not_written_fails_alone(
    tmp_path: Path, opened: list[Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, always=False)
    opened.append(site)
    disk = grouped(site, monkeypatch)
    disk.failure = OSError(5, "i/o")
    site.publish()

    site.syncer.sync()
    await site.settle()

    assert site.store.failed
    assert site.store.sync_lost


async def test_a_drain_ends_after_streams_were_synced_together(
    tmp_path: Path, opened: list[Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, always=True)
    opened.append(site)
    disk = grouped(site, monkeypatch)
    disk.gate.clear()
    site.publish()
    ended: list[int] = []

    site.syncer.drain(lambda: ended.append(1))
    assert ended == []
    disk.gate.set()
    await site.settle()

    assert ended == [1]
    assert site.acks() == [b'{"stream":"S","seq":1}']


async def test_many_unsynced_files_cut_the_interval_short(tmp_path: Path, opened: list[Site]) -> None:
    site = Site(tmp_path, always=False, files_max=1)
    opened.append(site)

    site.publish()
    await site.settle()

    assert site.store.syncs.synced_mark == site.store.syncs.written_mark


class Other:
    """A job that fails, with a stream that may fail to process the result."""

    together = None

    def __init__(self, taken: list[object], fails: bool) -> None:
        self._taken = taken
        self._fails = fails

    def __call__(self) -> Exception | None:
        raise ValueError("job")

    def finish_sync(self, error: Exception | None) -> None:
        self._taken.append(error)
        if self._fails:
            raise RuntimeError("?")


async def test_a_result_that_a_stream_cannot_take_keeps_none_from_the_others() -> None:
    taken: list[object] = []
    works: list[Any] = [(other, other) for other in (Other(taken, True), Other(taken, False))]
    errors = [syncer.result_of(job) for _, job in works]
    with pytest.raises(RuntimeError):
        syncer._finish(works, errors)
    assert [str(error) for error in taken] == ["job", "job"]


class Asked:
    """A stream that records when its job is requested; it has one, has none, or fails."""

    def __init__(self, asked: list[int], number: int, job: Any) -> None:
        self._asked = asked
        self._number = number
        self._job = job

    def begin_sync(self) -> Any:
        self._asked.append(self._number)
        if isinstance(self._job, Exception):
            raise self._job
        return self._job

    def finish_sync(self, error: Exception | None) -> None:
        self._asked.append(-self._number)


def written(site: Site, asked: list[int], jobs: list[Any]) -> None:
    """Make streams with these jobs request a sync."""
    unsynced: Any = site.driver.node.turn_state.unsynced
    unsynced[:] = [Asked(asked, number, job) for number, job in enumerate(jobs, 1)]


async def test_many_streams_are_asked_some_at_a_time(
    tmp_path: Path, opened: list[Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, always=False)
    opened.append(site)
    monkeypatch.setattr(syncer, "BEGUN_AT_ONCE", 2)
    asked: list[int] = []
    written(site, asked, [lambda: None] * 5)

    site.syncer.sync()
    assert asked == [1, 2]
    await asyncio.sleep(0)
    assert asked == [1, 2, 3, 4]
    await asyncio.sleep(0)
    await site.settle()

    assert asked == [1, 2, 3, 4, 5, -1, -2, -3, -4, -5]


async def test_a_stream_that_fails_to_give_its_job_keeps_none_from_the_others(
    tmp_path: Path, opened: list[Site]
) -> None:
    site = Site(tmp_path, always=False)
    opened.append(site)
    asked: list[int] = []
    written(site, asked, [lambda: None, RuntimeError("?"), lambda: None])

    with pytest.raises(RuntimeError):
        site.syncer.sync()
    await asyncio.sleep(0)
    await site.settle()

    assert asked == [1, 2, 3, -1, -3]


@pytest.mark.parametrize("job", [None, lambda: None])
async def test_a_drain_waits_until_all_streams_were_asked(
    tmp_path: Path, opened: list[Site], monkeypatch: pytest.MonkeyPatch, job: Any
) -> None:
    site = Site(tmp_path, always=False)
    opened.append(site)
    monkeypatch.setattr(syncer, "BEGUN_AT_ONCE", 2)
    asked: list[int] = []
    written(site, asked, [job] * 5)

    drained = asyncio.Event()
    site.syncer.drain(drained.set)
    assert not drained.is_set()
    await asyncio.wait_for(drained.wait(), 60)

    assert asked[:5] == [1, 2, 3, 4, 5]


async def test_the_log_of_replicated_streams_is_synced_with_them(tmp_path: Path, opened: list[Site]) -> None:
    site = Site(tmp_path, always=False, interval_ns=1000)
    opened.append(site)
    await site.settle()
    marks: list[object] = []
    site.syncer.beside = lambda: marks.append(site.store.syncs.synced_mark)

    site.publish()

    async with asyncio.timeout(10):
        while site.store.syncs.synced_mark != site.store.syncs.written_mark:
            await asyncio.sleep(0.001)
    assert marks
    assert marks[0] != site.store.syncs.synced_mark


async def test_a_stream_that_no_answer_waits_for_is_synced_later(tmp_path: Path, opened: list[Site]) -> None:
    site = Site(tmp_path, always=True)
    opened.append(site)
    await site.settle()
    site.stream.sync_always = False  # as for a replica
    before = site.disk.syncs

    site.publish(3)
    await site.settle()
    assert len(site.acks()) == 3
    assert site.disk.syncs == before

    drained: list[bool] = []
    site.syncer.drain(lambda: drained.append(True))
    await site.settle()
    assert drained
    assert site.store.syncs.synced_mark == site.store.syncs.written_mark


async def test_a_stream_that_is_synced_later_is_synced_within_the_interval(
    tmp_path: Path, opened: list[Site]
) -> None:
    site = Site(tmp_path, always=True, interval_ns=1000)
    opened.append(site)
    site.stream.sync_always = False
    await site.settle()

    site.publish()

    async with asyncio.timeout(10):
        while site.store.syncs.synced_mark != site.store.syncs.written_mark:
            await asyncio.sleep(0.001)


class Later(Asked):
    """A stream on which no publisher waits; its job waits for the gate of the disk, and is recorded."""

    sync_always = False

    def __init__(self, site: Site, ran: list[object], number: int) -> None:
        super().__init__([], number, self._run)
        self._gate = site.disk.gate
        self._ran = ran

    def _run(self) -> None:
        self._ran.append(self._number)
        assert self._gate.wait(10)


async def test_what_is_acknowledged_after_a_sync_waits_for_one_later_stream_at_most(
    tmp_path: Path, opened: list[Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, always=True, interval_ns=1000)
    opened.append(site)
    await site.settle()
    ran: list[object] = []
    unsynced: Any = site.driver.node.turn_state.unsynced
    unsynced[:] = [Later(site, ran, number) for number in range(1, 6)]
    site.disk.gate.clear()
    site.driver.turn_now()
    async with asyncio.timeout(10):
        while not ran:
            await asyncio.sleep(0.001)  # until the interval is over
    monkeypatch.setattr(site.disk, "sync_file", lambda _: ran.append("urgent"))

    site.publish()
    site.disk.gate.set()
    async with asyncio.timeout(10):
        while len(ran) < 6:
            await asyncio.sleep(0.001)

    assert ran == [1, "urgent", 2, 3, 4, 5]
    await site.settle()
    assert len(site.acks()) == 1
