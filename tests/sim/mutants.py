"""Servers with a flaw that the checkers must detect within some seeds, which proves that the checkers work.

A mutant changes a seam: how the disk handles a sync or a name, when the syncer reports a job as done, or what a
session passes to the node. Compiled code is not changed: for example, a stream that ignores message ids is simulated
by removing the ids from the messages of its clients.
"""

from __future__ import annotations

import errno
import re
from typing import Any

from tests.sim.disk import SimDisk
from tests.sim.files import Directory, File
from tests.sim.process import Process, SimClient, SimSwitch, SimThread
from tests.sim.world import World

import pyjs.jetstream.manage.consumers as consumers
from pyjs.jetstream.consumer.reset import reset_seq


class EarlyThread(SimThread):
    """Reports each job as done before it has run."""

    def submit(self, job: Any, done: Any) -> None:
        super().submit(job, lambda result: None)
        self._jobs.clear()  # the jobs never run
        self.pending = 0
        self._loop.call_soon(done, None)


class EarlySwitch(SimSwitch):
    """Syncs in an EarlyThread."""

    thread_class = EarlyThread
    group_min = 1_000


class AckBeforeSyncProcess(Process):
    """Acknowledges under `always` before the sync."""

    switch_class = EarlySwitch


class AckBeforeSync(World):
    """Acknowledges before the sync."""

    process_class = AckBeforeSyncProcess


class SwallowingDisk(SimDisk):
    """Writes of segments reach the file one write later, so acknowledgements are sent before the data is written."""

    _late: tuple[int, bytes, int] | None = None

    def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        late, self._late = self._late, None
        if late is not None and late[0] in self._fds:
            super().write_at(*late)
        if self._path(fd).endswith(".seg") and offset:
            self._file(fd)
            self._late = (fd, bytes(data), offset)
            return
        super().write_at(fd, data, offset)

    def _flush(self) -> None:
        late, self._late = self._late, None
        if late is not None and late[0] in self._fds:
            super().write_at(*late)

    def map_file(self, fd: int, size: int) -> Any:
        self._flush()
        return super().map_file(fd, size)

    def sync_file(self, fd: int) -> None:
        self._flush()
        super().sync_file(fd)

    def truncate(self, fd: int, size: int) -> None:
        self._flush()
        super().truncate(fd, size)

    def close_file(self, fd: int) -> None:
        self._flush()
        super().close_file(fd)

    def end_process(self) -> None:
        self._late = None
        super().end_process()


class AckBeforeWrite(World):
    """Acknowledges before the write."""

    disk_class = SwallowingDisk


class EditingClient(SimClient):
    """Changes the messages on their way to the server."""

    pattern = b""
    replacement: Any = b""

    def send(self, data: bytes) -> None:
        super().send(re.sub(self.pattern, self.replacement, data))


class ForgetfulClient(EditingClient):
    """Removes message ids, so that no message is a duplicate. The size of the headers does not change."""

    pattern = b"Nats-Msg-Id:"
    replacement = b"Xats-Msg-Id:"


class GenerousClient(EditingClient):
    """Changes increments of 7 to 8."""

    pattern = b"Nats-Incr: 7"
    replacement = b"Nats-Incr: 8"


class HastyClient(EditingClient):
    """Moves the time of schedules for one time into the past."""

    pattern = rb"Nats-Schedule: @at \d{4}"
    replacement = b"Nats-Schedule: @at 2001"


class DeafClient(EditingClient):
    """Moves the time of schedules for one time into the far future."""

    pattern = rb"Nats-Schedule: @at \d{4}"
    replacement = b"Nats-Schedule: @at 3001"


class StubbornClient(EditingClient):
    """Changes the subject in messages that end schedules. The size of the headers does not change."""

    pattern = rb"Nats-Scheduler: SCHED.at."
    replacement = b"Nats-Scheduler: SCHED.no."


class LeakyClient(EditingClient):
    """Removes the batch headers of the second message of atomic batches. The size of the headers does not change."""

    pattern = rb"Nats-Batch-Id:(.*\r\nNats-Batch-Sequence: 2\r\n)"
    replacement = rb"Xats-Batch-Id:\1"


class DoublingClient(SimClient):
    """Sends increments twice."""

    def send(self, data: bytes) -> None:
        super().send(data)
        if data.startswith(b"HPUB COUNT."):
            super().send(data)


def _one_less(match: re.Match[bytes]) -> bytes:
    digits = len(match[2])
    return match[1] + b"%0*d" % (digits, max(0, int(match[2]) - 1))


class OffByOneClient(EditingClient):
    """Lowers expected last sequences by one, so that the node accepts messages that it should refuse."""

    pattern = rb"(Nats-Expected-Last-Sequence: )(\d+)"
    replacement = staticmethod(_one_less)


class OffByOneSubjectClient(EditingClient):
    """Lowers expected last sequences of a subject by one, so that the node accepts messages that it should refuse."""

    pattern = rb"(Nats-Expected-Last-Subject-Sequence: )(\d+)"
    replacement = staticmethod(_one_less)


class TermingClient(EditingClient):
    """Changes naks to acknowledgements, so that ack floors advance."""

    pattern = rb" 4\r\n(-NAK|\+WPI)\r\n"
    replacement = b" 4\r\n+ACK\r\n"


class _EditedWorld(World):
    client_class: type[SimClient]

    def _begin(self, crash_in: int | None = None) -> None:
        self.process_class = type("EditedProcess", (Process,), {"client_class": self.client_class})
        super()._begin(crash_in)


class GenerousCounter(_EditedWorld):
    """Adds wrong increments."""

    client_class = GenerousClient


class EarlySchedules(_EditedWorld):
    """Fires schedules too early."""

    client_class = HastyClient


class SilentSchedules(_EditedWorld):
    """Does not fire schedules."""

    client_class = DeafClient


class EndlessSchedules(_EditedWorld):
    """Continues a schedule after a message has ended it."""

    client_class = StubbornClient


class LeakyBatches(_EditedWorld):
    """Stores only a part of a batch."""

    client_class = LeakyClient


class ForgetfulResets(World):
    """Resets consumers to the ack floor, whatever sequence was requested and confirmed."""

    def run(self) -> None:
        names = vars(consumers)
        start_again = names["start_again"]

        def forget(consumer: Any, seq: int) -> None:
            start_again(consumer, reset_seq(consumer, 0))

        names["start_again"] = forget
        try:
            super().run()
        finally:
            names["start_again"] = start_again


class CountsTwice(_EditedWorld):
    """Adds each increment twice."""

    client_class = DoublingClient


class NoDedupe(_EditedWorld):
    """Stores duplicates."""

    client_class = ForgetfulClient


class OffByOneCas(_EditedWorld):
    """Compares an expected last sequence with the last sequence plus one."""

    client_class = OffByOneClient


class OffByOneSubjectCas(_EditedWorld):
    """Compares an expected last sequence of a subject with the subject's last sequence plus one."""

    client_class = OffByOneSubjectClient


class FloorAhead(_EditedWorld):
    """Treats a nak as an acknowledgement."""

    client_class = TermingClient


class LyingDisk(SimDisk):
    """Reports files as synced without syncing them."""

    def sync_file(self, fd: int) -> None:
        file = self._file(fd)
        self._call("sync", self._path(fd))
        if self._path(fd).endswith(".seg"):
            return
        file.sync()

    def sync_filesystem(self, fd: int) -> None:
        self._call("syncfs", self._path(fd))
        raise OSError(errno.ENOSYS, "no syncfs")


class SegmentsNotSynced(World):
    """Never syncs a segment."""

    disk_class = LyingDisk


class NamelessDisk(SimDisk):
    """Does not sync the names of streams, consumers and metadata."""

    def sync_dir(self, path: str) -> None:
        if path.endswith("/msgs"):
            super().sync_dir(path)
        else:
            self._call("sync_dir", path)

    def sync_filesystem(self, fd: int) -> None:
        self._call("syncfs", self._path(fd))
        raise OSError(errno.ENOSYS, "no syncfs")


class NamesNotSynced(World):
    """Does not sync a directory after a rename."""

    disk_class = NamelessDisk


class DeafDisk(SimDisk):
    """Writes zeros to a segment in place of data that begins with a DELETES record."""

    def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        if self._path(fd).endswith(".seg") and len(data) > 4 and bytes(data[4:5]) == b"\x03":
            data = bytes(len(data))
        super().write_at(fd, data, offset)


class DeletesDropped(World):
    """Loses DELETES records."""

    disk_class = DeafDisk


class UnlinkedFirstDisk(SimDisk):
    """Truncates segments in a power cut although they are synced, so that sequences are used again."""

    def lose_power(self) -> None:
        super().lose_power()
        self._cut(self._root)

    def _cut(self, directory: Directory) -> None:
        for name, node in sorted(directory.entries.items()):
            if isinstance(node, Directory):
                self._cut(node)
            elif name.endswith(".seg") and isinstance(node, File) and node.size > 600:
                node.resize(node.size * 3 // 4)


class TailCut(World):
    """Truncates an intact segment: acknowledged messages are lost, and their sequences are used again."""

    disk_class = UnlinkedFirstDisk


MUTANTS: dict[str, type[World]] = {
    "ack before write": AckBeforeWrite,
    "ack before sync": AckBeforeSync,
    "skip dedupe": NoDedupe,
    "off-by-one CAS": OffByOneCas,
    "off-by-one subject CAS": OffByOneSubjectCas,
    "floor ahead": FloorAhead,
    "segments not synced": SegmentsNotSynced,
    "names not synced": NamesNotSynced,
    "DELETES dropped": DeletesDropped,
    "tail cut": TailCut,
    "counts wrong": GenerousCounter,
    "fires early": EarlySchedules,
    "does not fire": SilentSchedules,
    "ends ignored": EndlessSchedules,
    "half a batch": LeakyBatches,
    "counts twice": CountsTwice,
    "reset forgotten": ForgetfulResets,
}
