"""The scrub: a check of sealed segments and metadata while the server runs, at a limited rate.

A pass checks everything; the next pass begins a day after its end. The upkeep thread runs the steps one by one and
changes nothing. A file that seems damaged is read again between two turns, since it may have changed in the meantime.
If it is damaged, its damaged messages are counted as lost and reported, as when a message is read; the next start
finds the damage again. Damaged metadata is rewritten from memory.

After a step of n bytes, a timer of the node starts the next step n / scrub_rate seconds later.

This module starts no threads: a turn runs the steps like other upkeep of stores.
"""

from __future__ import annotations

from heapq import nsmallest
from itertools import chain
from typing import TYPE_CHECKING

from pyjs.base.disk import is_shortage
from pyjs.base.errors import CorruptRecord, PyjsError, StoreFailed
from pyjs.base.gotext import time_text
from pyjs.jetstream.config.declared import as_json
from pyjs.jetstream.consumer.consumer import Consumer
from pyjs.jetstream.consumer.record import snapshot_of
from pyjs.jetstream.files.consumer_files import CheckedList
from pyjs.jetstream.files.metadata import Barrier
from pyjs.store.crypt.keys import Locked
from pyjs.store.file.store import FileStore
from pyjs.store.format.image import open_image
from pyjs.store.format.meta import KIND_STREAM, Opener, UnknownFormat, load_meta
from pyjs.store.segment.census import agrees
from pyjs.store.segment.index_file import IndexUnusable, decode_index, decrypted, index_path, map_whole
from pyjs.store.segment.recovery import contents_of
from pyjs.store.state.consumer_list import is_intact, load_list

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeAlias

    from pyjs.base.disk import Disk
    from pyjs.base.timers import Timer
    from pyjs.core.chore import Step as Chored
    from pyjs.core.sink import Turn
    from pyjs.jetstream.files.consumer_files import Known
    from pyjs.jetstream.manage.engine import JetStream, Shared
    from pyjs.jetstream.stream.stream import Stream
    from pyjs.store.segment.contents import SegmentContents

    # Called in a thread; `apply` is called between two turns.
    Step: TypeAlias = "SegmentStep | MetadataStep | ListStep"

NS_PER_S = 1_000_000_000
PASS_EVERY_NS = 24 * 3600 * NS_PER_S
RETRY_NS = 10 * NS_PER_S  # ns to wait after a step that failed for lack of descriptors or memory
STEP_NS = 10_000_000  # minimum ns between two steps
STREAMS_AT_ONCE = 64  # number of stream names that a pass reads at a time
META_SIZE = 1024  # bytes that count as read for both copies of metadata


class SegmentStep:
    """A step of the scrub that checks one sealed segment."""

    def __init__(self, disk: Disk, store: FileStore, number: int) -> None:
        self._disk = disk
        self._store = store
        self._number = number
        self._path = store.files.path_of(number)
        self._damaged = False
        self._problem = ""  # damage by which no message was lost; "": none
        self.size = 0  # bytes that were read

    def __call__(self) -> Exception | None:
        """Check every record, in a thread; return the error that prevented the check, or None."""
        try:
            self._read()
        except CorruptRecord:  # the outer header is damaged
            self._damaged = True
        except (OSError, ValueError, PyjsError) as error:
            return error
        return None

    def _read(self) -> None:
        fd = self._disk.open_read_only(self._path)
        try:
            self.size = self._disk.size_of(fd)
            image = open_image(self._disk, self._path, fd, self._store.files.key)
            image.problem = image.problem or image.spare_problem()
            data = image.whole(True)  # a separate image, so that the store's own map does not change
        finally:
            self._disk.close_file(fd)
        found = contents_of(self._path, data, self._number, self._store.files.incarnation, 1)
        self._damaged = found is None or bool(found.problems) or self._is_contradicted(found)
        self._problem = image.problem

    def _is_contradicted(self, found: SegmentContents) -> bool:
        """Return whether the index file contradicts the segment; an unusable index file does not count."""
        try:
            data = decrypted(memoryview(map_whole(self._disk, index_path(self._path))), self._store.files.key)
            return not agrees(decode_index(data), found)
        except (OSError, ValueError, IndexUnusable):
            return False

    def apply(self) -> int:
        """Drop damaged messages, or reopen the stream if its index file is wrong; return the number of problems."""
        if self._damaged:
            return self._store.examiner.confirm(self._number)
        if self._problem:
            self._store.files.log.warn(f"{self._path}: {self._problem}")
            return 1
        return 0


class MetadataStep:
    """One step of the scrub: the check of the metadata of one stream."""

    def __init__(self, disk: Disk, js: JetStream, stream: Stream) -> None:
        self._disk = disk
        self._js = js
        self._stream = stream
        self._key = stream.store.files.key if isinstance(stream.store, FileStore) else None
        self._is_suspect = False
        self.size = META_SIZE  # bytes read

    def __call__(self) -> Exception | None:
        """Check both copies of the metadata, in a thread; return the error that prevented the check, or None."""
        try:
            self._is_suspect = bool(self._problems())
        except OSError as error:
            return error
        return None

    def apply(self) -> int:
        """Rewrite the metadata if a copy is damaged; return the number of problems."""
        files, name = self._js.files, self._stream.name
        if not self._is_suspect or self._js.streams.get(name) is not self._stream:
            return 0
        problems = self._problems()
        for problem in problems:
            self._js.shared.log.warn(f"{problem}; both copies are rewritten")
        if problems:
            files.save(self._stream.config, self._stream.created_ns, self._stream.store)
        return len(problems)

    def _problems(self) -> list[str]:
        """Return a description of each problem of the metadata, or [] if the stream has no files.

        Raises:
            OSError: out of file descriptors or memory; the metadata was not checked.
        """
        directory = self._js.files.directory_of(self._stream.name)
        try:
            return load_meta(self._disk, directory, "meta", KIND_STREAM, Opener(self._key))[2]
        except (FileNotFoundError, UnknownFormat, Locked):
            return []
        except (CorruptRecord, OSError) as error:
            if is_shortage(error):
                raise
            return [str(error)]


class ListStep:
    """A step of the scrub that checks the list of a stream's consumers.

    `found` is called with the number of problems, which is known only after the list was checked again.
    """

    def __init__(self, disk: Disk, js: JetStream, stream: Stream, found: Callable[[int], None]) -> None:
        self._disk = disk
        self._js = js
        self._stream = stream
        self._found = found
        self._key = stream.store.files.key if isinstance(stream.store, FileStore) else None
        self._list = js.files.list_of(stream.name)
        self._is_suspect = False
        self.size = META_SIZE  # bytes read

    def __call__(self) -> Exception | None:
        """Check both copies of the list, in a thread; return the error that prevented the check, or None."""
        directory, ends = self._list.directory, self._list.ends
        self.size = META_SIZE + sum(ends)
        try:
            if is_intact(self._disk, directory, ends, Opener(self._key)):
                return None
            list_ = load_list(self._disk, directory, Opener(self._key))
        except (UnknownFormat, Locked):
            return None
        except OSError as error:
            return error
        self.size = META_SIZE + 2 * list_.size
        self._is_suspect = not list_.clean or not list_.last
        return None

    def apply(self) -> int:
        """If the list of consumers looked damaged, check it again in the thread that writes it.

        A concurrent write can look like damage. Return 0, because the problems are counted later.
        """
        if self._is_suspect and self._js.streams.get(self._stream.name) is self._stream:
            self._check()
        return 0

    def _check(self) -> None:
        change = CheckedList(self._js.files.list_of(self._stream.name))

        def done(failure: Exception | None) -> None:
            if change.is_early:
                self.apply()
            elif failure is not None:  # both copies are damaged, but the server has their contents in memory
                self._js.account.turn.go_on(self._write_known())
            else:
                self._tell(change, None)

        self._js.shared.metadata.submit(change, done)

    def _write_known(self) -> Iterator[Chored]:
        """Rewrite the list from memory; requests must not change it during this time."""
        js, name = self._js, self._stream.name
        yield from js.gates.enter(name, alone=True)
        change = CheckedList(js.files.list_of(name))
        try:
            yield from js.shared.metadata.commit(Barrier())  # after this, all earlier changes are written
            if js.streams.get(name) is not self._stream:
                return
            change.known = _known_consumers(self._stream)
            yield from js.shared.metadata.commit(change)
            if change.is_early:
                self._check()
            else:
                self._tell(change, None)
        except StoreFailed as failure:
            self._tell(change, failure)
        finally:
            js.gates.leave(name)

    def _tell(self, change: CheckedList, failure: Exception | None) -> None:
        """Log the problems, and pass their number to `found`."""
        log = self._js.shared.log
        for problem in change.problems:
            log.warn(f"{problem}; both copies are rewritten")
        if failure is not None:
            log.error(f"Damaged metadata could not be rewritten: {failure}")
        self._found(len(change.problems) or int(failure is not None))


def _known_consumers(stream: Stream) -> Known:
    """Return creation time, configuration and state of each stored consumer, by name."""
    known: Known = {}
    for name, consumer in stream.consumers.items():
        if isinstance(consumer, Consumer) and consumer.keeper.file is not None:
            known[name] = (consumer.created_ns, as_json(consumer.config), snapshot_of(consumer))
    return known


class Scrubber:
    """The scrub of all stored streams of a server."""

    def __init__(self, shared: Shared, accounts: dict[str, JetStream], disk: Disk, turn: Turn) -> None:
        self._shared = shared
        self._accounts = accounts
        self._disk = disk
        self._turn = turn
        self._steps: Iterator[Step] | None = None  # None: no pass is running
        self._step: Step | None = None  # the step that the thread runs
        self._timer: Timer | None = None
        self._stopped = False
        self._passes = 0
        self._finished_ns = 0  # time at which the last pass ended; 0: none has
        self._checked_bytes = 0  # bytes checked in the running pass, or in the last one
        self._damaged = 0  # number of damaged places found since the start

    def report(self) -> dict[str, Any]:
        """Return the fields about the scrub in /jsz."""
        shown: dict[str, Any] = {"rate": self._shared.options.scrub_rate, "passes": self._passes}
        if self._finished_ns:
            shown["last_finished"] = time_text(self._finished_ns)
        return shown | {
            "running": self._steps is not None,
            "checked_bytes": self._checked_bytes,
            "damaged": self._damaged,
        }

    def begin_pass(self) -> None:
        """Begin a pass over all stored streams."""
        self._steps = self._all_steps()
        self._checked_bytes = 0
        self._go_on()

    def stop(self) -> None:
        """Stop the scrub after the running step."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    # -- upkeep --------------------------------------------------------------------------------------------

    def begin_upkeep(self) -> Step | None:
        """Return the next step for the thread, or None if no step is due."""
        if self._stopped or self._step is not None or self._timer is not None or self._steps is None:
            return None
        self._step = next(self._steps, None)
        if self._step is None:
            self._end_pass()
        return self._step

    def finish_upkeep(self, error: Exception | None) -> None:
        """Handle the result of the running step, then wait in proportion to the bytes that it read."""
        step, self._step = self._step, None
        if step is None or self._stopped:
            return
        try:
            if error is None:
                self._damaged += step.apply()
            elif is_shortage(error):
                self._again(step, error)
                return
            elif not isinstance(error, FileNotFoundError):
                self._shared.log.warn(f"The check of stored files leaves out what it cannot read: {error}")
        except (OSError, PyjsError) as failure:
            if is_shortage(failure):
                self._again(step, failure)
                return
            self._damaged += 1
            self._shared.log.error(
                f"The check of stored files found damage and could not settle it: {failure}"
            )
        self._checked_bytes += step.size
        pause_ns = step.size * NS_PER_S // self._shared.options.scrub_rate
        self._wait(max(pause_ns, STEP_NS))

    def _add_damaged(self, places: int) -> None:
        self._damaged += places

    def _again(self, step: Step, error: Exception) -> None:
        """Repeat a failed step after RETRY_NS."""
        self._shared.log.warn(f"The check of stored files waits {RETRY_NS // NS_PER_S} s: {error}")
        self._steps = chain([step], self._steps or ())
        self._wait(RETRY_NS)

    def _wait(self, pause_ns: int) -> None:
        self._timer = self._shared.timers.at(self._shared.clock.now_ns() + pause_ns, self._go_on)

    def _go_on(self) -> None:
        self._timer = None
        if self._steps is None:
            self.begin_pass()
        else:
            self._turn.upkeep.append(self)

    def _end_pass(self) -> None:
        self._steps = None
        self._passes += 1
        self._finished_ns = self._shared.clock.wall_ns()
        self._wait(PASS_EVERY_NS)

    # -- steps of a pass -----------------------------------------------------------------------------------

    def _all_steps(self) -> Iterator[Step]:
        """Yield the steps of a pass; each step uses the state that its stream has at that time."""
        for js in list(self._accounts.values()):
            name = ""
            # A list of all streams would keep deleted streams in memory during a pass, which may take hours.
            while names := nsmallest(STREAMS_AT_ONCE, (each for each in js.streams if each > name)):
                for name in names:  # the next names after the last one of the previous group
                    yield from self._stream_steps(js, name)

    def _stream_steps(self, js: JetStream, name: str) -> Iterator[Step]:
        stream = js.streams.get(name)
        if stream is None or not isinstance(stream.store, FileStore):
            return
        store = stream.store
        yield MetadataStep(self._disk, js, stream)
        if js.streams.get(name) is not stream:  # the stream was deleted: do not create its list again
            return
        if js.files.list_of(name).live:
            yield ListStep(self._disk, js, stream, self._add_damaged)
        for number in store.sealed_numbers():
            if not store.closed and number in store.sealed_numbers():
                yield SegmentStep(self._disk, store, number)
