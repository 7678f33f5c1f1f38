"""Restores lost messages to the store of a closed stream, as a part of a copy (catch_up.py).

A start has counted messages as lost. It may not know which ones, for example if a file is missing, or if the damaged
bytes also recorded removals. So the copy compares the store with the state of an undamaged replica. Messages that are
in the state but not in the store are requested from all replicas. Each segment that lacks some of these messages is
rewritten with them, as in a compaction, and a missing segment is created. Then the store is reopened.

The file `.healing` in the directory of the messages exists from before the first change until the copy is complete
and durable. As long as it exists, a start applies no entry, this replica does not lead, and nobody copies from it.

Messages after the last one of the store are copied too. They are in segments of their own, which the file `.copied`
names. If no other replica can serve, these segments are removed before this replica leads as the last resort, because
the entries in the log add the same messages.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from pyjs.base.disk import write_file
from pyjs.base.errors import PyjsError, StoreFailed
from pyjs.core.job import Job, JobQueue
from pyjs.jetstream.replication.copying import STEP
from pyjs.jetstream.replication.repairing import fetch_steps, told
from pyjs.jetstream.stream.replicated.proposal import Outcome
from pyjs.store.format.layout import COPIED
from pyjs.store.segment.index_file import index_path, remove_file
from pyjs.store.segment.recorded_ids import kept_path
from pyjs.store.segment.recovery import is_segment
from pyjs.store.segment.rewrite import record_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from typing import TypeAlias

    from pyjs.base.disk import Disk
    from pyjs.base.log import Log
    from pyjs.core.chore import Step
    from pyjs.core.sink import Turn
    from pyjs.jetstream.replication.copying import Answer
    from pyjs.jetstream.replication.repairing import Lacking
    from pyjs.store.file.store import FileStore
    from pyjs.store.segment.rewrite import SegmentRewrite
    from pyjs.store.store import StoredMessage, SyncJob

    Steps: TypeAlias = Generator[Step, None, None]

SEQ_MAX = (1 << 64) - 2
NUMBERS_MAX = 1000  # maximum number of segment numbers tried for a missing segment
WRITTEN_MAX = 16 << 20  # bytes of messages after which a round ends; it always completes a segment


class PutBack(PyjsError):
    """Raised when lost messages were put back into the files of a store, which must be opened again."""


def put_back_steps(
    machine: Lacking,
    store: FileStore,
    seqs: Sequence[int],
    ids: Sequence[int],
    here: Mapping[int, StoredMessage],
    answer: Answer,
) -> Steps:
    """Put back the messages `seqs`, which the store lacks, rewrite its damaged segments, and close the store.

    A segment does not change unless the other replicas have all its missing messages. `ids` are the sequences of
    removed messages whose ids still count but are not in the store. They are put back as messages with only an id,
    which the end of the copy removes. `here` has those ids of removed messages that the store has. Rewritten segments
    keep these ids. Return without closing the store if no segment lacks messages and no other replica has any of
    `ids`.

    Raises:
        PutBack: segments were rewritten, so the store must be reopened.
        StoreFailed: no other replica has the messages of any segment now, or they cannot be written.
    """
    yield from cleared_steps(machine.stream.turn, store)
    jobs: list[SegmentRewrite] = []
    size = 0
    senders: Counter[str] = Counter()
    first_seq = seqs[0] if seqs else 0
    damaged, removed = store.damaged_numbers(first_seq), set(ids)
    for number, places in (yield from places_steps(store, damaged, sorted({*seqs, *ids}))):
        wanted = [seq for seq in places if seq not in removed]
        is_new = store.range_of(number)[1] == 0
        found, names = yield from _found_steps(machine, wanted, answer, WRITTEN_MAX if is_new else SEQ_MAX)
        if len(found) == len(wanted) or (is_new and found):
            texts = [seq for seq in places if seq in removed]
            told_ids, _ = yield from _found_steps(machine, texts, answer, SEQ_MAX, ids=True)
            base, last = _span(store, number, places[0]) if places else store.range_of(number)
            own = [each for seq, each in here.items() if base <= seq <= last]
            records = {each.seq: record_of(each) for each in (*own, *told_ids, *found)}
            if records or number in damaged:
                jobs.append(store.restoration(number, records, first_seq or SEQ_MAX))
            senders += names
            size += sum(len(each.headers) + len(each.payload) for each in found)
        if size >= WRITTEN_MAX:
            break
    if not jobs and not seqs and not damaged:
        return
    if not jobs:
        raise StoreFailed(store.files.directory, f"no other replica has {len(seqs)} lost messages now")
    files = store.files
    store.release()
    yield from work_steps(machine.stream.turn, lambda: write(files.disk, files.log, files.directory, jobs))
    files.log.warn(f"The replica of {machine.stream} has repaired lost messages: {told(senders)}")
    machine.js.shared.repaired += senders.total()
    raise PutBack(f"{senders.total()} messages are there again")


def _found_steps(
    machine: Lacking, wanted: Sequence[int], answer: Answer, size_max: int, *, ids: bool = False
) -> Generator[Step, None, tuple[list[StoredMessage], Counter[str]]]:
    """Return the `wanted` messages from other replicas, and the number of messages that each server sent.

    Requests end after `size_max` bytes have arrived. Messages are returned up to the first one that did not arrive.
    If `ids` is true, the servers send only the message ids; then all messages whose ids arrived are returned.
    """
    found: dict[int, StoredMessage] = {}
    names: Counter[str] = Counter()
    for node in machine.sources():
        rest = [seq for seq in wanted if seq not in found]
        came = yield from fetch_steps(machine, node, rest, answer, size_max=size_max, ids=ids)
        if came:
            names[machine.name_of(node)] += len(came)
            found |= came
        if sum(len(each.payload) for each in found.values()) >= size_max:
            break
    if ids:
        return list(found.values()), names
    return [found[seq] for seq in takewhile(found.__contains__, wanted)], names


def places_steps(
    store: FileStore, damaged: Sequence[int], seqs: Sequence[int]
) -> Generator[Step, None, list[tuple[int, list[int]]]]:
    """Return (segment number, sequences) for each segment to which some of the messages `seqs` belong.

    The `damaged` segments are always included. A missing segment gets a number between those of its neighbours. If
    there is no free number, its messages go to the end of the preceding segment. If there is no preceding segment
    either, its messages are left out.
    """
    ranges = store.ranges()
    bases = [base for _, base, _ in ranges]
    found: dict[int, list[int]] = {number: [] for number in damaged}
    # position in `ranges` of the segment before a gap -> segment number for the gap
    gaps: dict[int, int] = {}
    for count, seq in enumerate(seqs):
        if count % STEP == STEP - 1:
            yield None
        at = bisect_right(bases, seq) - 1
        if at >= 0 and seq <= ranges[at][2]:
            number = ranges[at][0]
        else:
            if at not in gaps:
                before = ranges[at][0] if at >= 0 else 0
                behind = ranges[at + 1][0] if at + 1 < len(ranges) else before + 2
                gaps[at] = _free_number(store, before + 1, behind) or before  # else it has lost its end
            number = gaps[at]
        if number:
            found.setdefault(number, []).append(seq)
    return sorted(found.items())


def _span(store: FileStore, number: int, seq: int) -> tuple[int, int]:
    """Return the first and the last sequence of a segment, or of the gap for a new segment that contains `seq`.

    The new segment may replace a file that has only ids of removed messages.
    """
    path = store.files.path_of(number)
    if store.range_of(number)[1] or not store.files.disk.exists(kept_path(path)):
        return store.range_of(number)
    low = max((last + 1 for _, _, last in store.ranges() if last < seq), default=1)
    return low, min((base - 1 for _, base, _ in store.ranges() if base > seq), default=SEQ_MAX)


def _free_number(store: FileStore, low: int, end: int) -> int:
    """Return a number from `low` to `end` - 1 for a missing segment, or 0 if this range is empty.

    Return the first number that no file uses. If files with only ids of removed messages use all numbers, return the
    last number. The new segment then replaces that file and includes its ids.
    """
    kept = 0
    for number in range(max(low, end - NUMBERS_MAX), end):
        if not store.files.disk.exists(kept_path(store.files.path_of(number))):
            return number
        kept = number
    return kept


def write(disk: Disk, log: Log, directory: str, jobs: Sequence[SegmentRewrite]) -> None:
    """Write the segments of `jobs`, and replace the old files. This may run in any thread.

    After a crash, each file is either old or new.

    Raises:
        Exception: a segment cannot be written.
    """
    for job in jobs:
        if (error := job()) is not None:
            raise error
        remove_file(disk, log, index_path(job.path))
        disk.rename(job.new_path, job.path)
        if job.old is not None:
            job.old.close()
    disk.sync_dir(directory)


# -- messages after the last one -----------------------------------------------------------------------------------


def note_copy_steps(turn: Turn, store: FileStore) -> Steps:
    """Write a durable note of the segment in which the copied messages begin, unless an earlier attempt wrote it.

    Raises:
        OSError, StoreFailed: the note is not written, so nothing may be copied.
    """
    if _first_copied(store) >= 0:
        return
    ranges = store.ranges()
    if ranges and not store.seal_damaged(ranges[-1][0]):
        raise StoreFailed(store.files.directory, "no new segment can be begun")
    first = store.ranges()[-1][0] if ranges else 0
    disk, directory = store.files.disk, store.files.directory
    note = [b"%d %d %d\n" % (store.group, store.applied_index, first)]
    yield from work_steps(turn, lambda: write_file(disk, f"{directory}/{COPIED}", note))
    yield from work_steps(turn, partial(disk.sync_dir, directory))


def _first_copied(store: FileStore) -> int:
    """Return the number of the first segment with copied messages that no mark covers, or -1 if there is none."""
    try:
        text = store.files.disk.read_file(f"{store.files.directory}/{COPIED}")
    except FileNotFoundError:
        return -1
    note = text.split() if text.endswith(b"\n") else []  # without its end, the last number may be cut
    is_current = note[:2] == [b"%d" % store.group, b"%d" % store.applied_index]
    return int(note[2]) if is_current and len(note) == 3 and note[2].isdigit() else -1


def drop_copy(store: FileStore) -> None:
    """From a closed store, remove the copied messages that no mark covers. This may run in any thread.

    Raises:
        OSError: some files may be left.
    """
    files, first = store.files, _first_copied(store)
    if first < 0:
        return
    numbers = [int(name[:-4]) for name in files.disk.list_dir(files.directory) if is_segment(name)]
    for number in sorted(numbers, reverse=True):  # a kill leaves a copy that ends earlier
        if number >= first:
            path = files.path_of(number)
            remove_file(files.disk, files.log, index_path(path))
            files.disk.unlink(path)
    files.disk.sync_dir(files.directory)
    end_copy(store)


def end_copy(store: FileStore) -> None:
    """Remove the note of a copy. Raises OSError.

    Before this, a mark must cover the copied messages, or they must be removed. This may run in any thread.
    """
    disk, path = store.files.disk, f"{store.files.directory}/{COPIED}"
    if disk.exists(path):
        disk.unlink(path)
        disk.sync_dir(store.files.directory)


# -- work on files -------------------------------------------------------------------------------------------------


class FileWork(Job):
    """A job that works on files in a thread while a chore waits for its end."""

    queue = JobQueue.REMOVALS

    def __init__(self, work: Callable[[], object], outcome: Outcome) -> None:
        self._work = work
        self._outcome = outcome

    def run(self) -> None:
        """Do the work, in a thread."""
        self._work()

    def finish(self, failure: Exception | None) -> None:
        """Store the result in the outcome, which wakes the chore. Called in a turn."""
        self._outcome.settle(None, failure)


def synced_steps(turn: Turn, store: FileStore, job: SyncJob) -> Steps:
    """Run a sync job of a store in a thread, and wait until everything that it covers is durable.

    Raises:
        OSError: the sync failed.
    """
    errors: list[Exception | None] = []
    yield from work_steps(turn, lambda: errors.append(job()))
    store.finish_sync(job, errors[0])
    if errors[0] is not None:
        raise errors[0]


def removed_steps(turn: Turn, store: FileStore) -> Steps:
    """Remove the files that the store no longer needs, since a start would find the damage in them again."""
    errors: list[OSError | None] = [None]
    while errors[-1] is None and (removal := store.begin_removal()) is not None:
        yield from work_steps(turn, partial(_keep_error, removal, errors))
        store.finish_removal(errors[-1])


def cleared_steps(turn: Turn, store: FileStore) -> Steps:
    """Sync the store, then remove the files that it no longer needs.

    The records in these files could remove messages that are put back later.

    Raises:
        OSError: the sync failed.
    """
    job = store.begin_sync()
    if job is not None:
        yield from synced_steps(turn, store, job)
    yield from removed_steps(turn, store)


def _keep_error(removal: Callable[[], OSError | None], errors: list[OSError | None]) -> None:
    errors.append(removal())


def work_steps(turn: Turn, work: Callable[[], object]) -> Steps:
    """Call `work` in a thread, and wait for its end.

    Raises:
        Exception: any error that `work` raised.
    """
    outcome = Outcome(turn)
    turn.jobs.append(FileWork(work, outcome))
    while not outcome.settled:
        yield outcome.park
    if outcome.error is not None:
        raise outcome.error
