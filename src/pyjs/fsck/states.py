"""The check of a stream's other files: consumers, positions of sources, the duplicate window."""

from __future__ import annotations

import re
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

import orjson

from pyjs.base.errors import NONSENSE, CorruptRecord
from pyjs.fsck.findings import DAMAGE, NOTE, UNCHECKED, ConsumerReport
from pyjs.fsck.images import Files, state_file
from pyjs.fsck.mending import (
    move_file_aside,
    remove_directory,
    rewrite_list,
    rewrite_state,
    set_state_aside,
)
from pyjs.fsck.metadata import UNREAD, finding_of
from pyjs.jetstream.config.consumer import from_json
from pyjs.jetstream.consumer.acks.log import UnknownChange, decode
from pyjs.jetstream.consumer.record import NewerState, check_version
from pyjs.store.format.layout import DAMAGED, UNSYNCED
from pyjs.store.format.meta import Opener
from pyjs.store.format.purge_file import read_purge
from pyjs.store.format.window_file import read_parts
from pyjs.store.state.consumer_list import (
    NAME,
    REMOVED,
    UNKNOWN,
    ConsumerList,
    Listed,
    Owners,
    list_paths,
    load_list,
    state_name,
)

if TYPE_CHECKING:
    from typing import Any

    from pyjs.fsck.findings import StreamReport

KNOWN = ("snap.tmp", "log.tmp", UNSYNCED)  # other files of a consumer's state, which a start handles
STATE_FILE = re.compile(r"(snap|log)\.\d{1,19}")
META_FILE = re.compile(r"meta\.(a|b|tmp)")
# kinds of changes that the report depends on
DELIVERED, ACKED, ACKED_ALL, EXHAUSTED, TERMINATED, ACKED_PENDING = 1, 2, 3, 8, 10, 11
REPLAY_MIN = 4096  # minimum for the number of steps allowed when a consumer's log is replayed
SEQ_MAX = 2**64 - 2
SET_ASIDE = "set aside: a start ignores it"
STRANGER = "not a file of this server"
NAMES = ("msgs", "window.tmp", "consumers", "consumers.a", "consumers.b", "consumers.tmp")


class StatesCheck:
    """The check of all files in a stream's directory except messages and metadata.

    The messages must have been checked before.
    """

    def __init__(self, files: Files, report: StreamReport) -> None:
        self._files = files
        self._disk = files.disk
        self._report = report

    def run(self) -> None:
        """Check the files, and add the findings to the report."""
        directory = self._report.directory
        for name in self._disk.list_dir(directory):
            path = f"{directory}/{name}"
            if name == "sources":
                self._positions(path)
            elif name == "window":
                self._window(path)
            elif name == "purge":
                self._purge(path)
            elif name.startswith(DAMAGED):
                self._report.find(NOTE, path, SET_ASIDE)
            elif name not in NAMES and not META_FILE.fullmatch(name):
                self._report.find(NOTE, path, STRANGER)
        self._consumers()

    # -- consumers -----------------------------------------------------------------------------------------

    def _consumers(self) -> None:
        """Check the list of consumers, and the state of each."""
        directory = self._report.directory
        try:
            found = load_list(self._disk, directory, Opener(self._files.key))
        except UNREAD as error:
            self._report.findings.append(finding_of(error, list_paths(directory)[0]))
            return
        self._list(found)
        self._directories(found)
        for listed in found.live.values():
            self._consumer(listed)

    def _list(self, found: ConsumerList) -> None:
        findings = [
            self._report.find(
                NOTE if each.torn else DAMAGE, each.path, f"{each.what}; the other copy has it", each.at
            )
            for each in found.problems
        ]
        for first, last in found.gaps:
            what = f"entries {first} to {last} of both copies are damaged: consumers may be missing"
            findings.append(self._report.find(DAMAGE, list_paths(self._report.directory)[0], what))
        if not found.clean and not findings:
            what = "a change was being written; a start cuts it"
            findings.append(self._report.find(NOTE, list_paths(self._report.directory)[0], what))
        if findings:
            findings[0].mend = partial(rewrite_list, self._files, self._report.directory)

    def _directories(self, found: ConsumerList) -> None:
        """Report each name in the directory of consumer states that is not the name of a live consumer's state."""
        parent, owners = f"{self._report.directory}/{NAME}", Owners(found)
        for name in self._disk.list_dir(parent):
            path, owner = f"{parent}/{name}", owners.owner_of(name)
            if name.startswith(DAMAGED):
                self._report.find(NOTE, path, SET_ASIDE)
            elif not self._disk.is_directory(path):
                self._report.find(NOTE, path, STRANGER)
            elif owner == REMOVED:
                what = "its consumer was removed; a start removes it"
                finding = self._report.find(NOTE, path, what)
                finding.mend = partial(remove_directory, self._disk, path)
            elif owner == UNKNOWN:
                what = "it belongs to no consumer of the list; a start leaves it"
                self._report.find(DAMAGE if found.gaps else NOTE, path, what)

    def _consumer(self, listed: Listed) -> None:
        directory = f"{self._report.directory}/{NAME}/{state_name(listed.name, listed.ident)}"
        try:
            config = from_json(listed.config)
        except (*NONSENSE, RecursionError) as error:
            self._report.find(
                UNCHECKED, directory, f"its configuration says what this version does not know: {error}"
            )
            return
        self._strangers(directory, self._disk.list_dir(directory))
        self._state(directory, ConsumerReport(listed.name), config.ack_policy == "none", listed.state)

    def _strangers(self, directory: str, names: list[str]) -> None:
        for name in names:
            path = f"{directory}/{name}"
            if name.startswith(DAMAGED):
                self._report.find(NOTE, path, SET_ASIDE)
            elif not META_FILE.fullmatch(name) and not STATE_FILE.fullmatch(name) and name not in KNOWN:
                self._report.find(NOTE, path, STRANGER)

    def _state(self, directory: str, consumer: ConsumerReport, ack_none: bool, first: bytes | None) -> None:
        """Check the stored state of a consumer, and add `consumer` to the report.

        `first` is the consumer's snapshot in the consumer list, if there is one.
        """
        self._report.consumers.append(consumer)
        loaded = self._load(directory, "the consumer begins again at the first message", first)
        if loaded is None:
            return
        snapshot, changes = loaded
        try:
            state = orjson.loads(snapshot)
            check_version(state)
            replay(consumer, state, changes, ack_none, (self._report.first_seq, self._report.last_seq))
        except NewerState as error:
            self._report.find(UNCHECKED, directory, str(error))
            return
        except UnknownChange as error:
            self._report.find(UNCHECKED, directory, str(NewerState(str(error))))
            return
        except NONSENSE as error:
            what = f"its state is invalid: {error}; the consumer begins again at the first message"
            finding = self._report.find(DAMAGE, directory, what)
            finding.mend = partial(set_state_aside, self._disk, directory)
            return
        if consumer.ack_floor_seq > consumer.delivered_seq:
            what = f"it acknowledged up to {consumer.ack_floor_seq}, but was sent {consumer.delivered_seq}"
            finding = self._report.find(DAMAGE, directory, what)
            finding.mend = partial(set_state_aside, self._disk, directory)
        last_seq = self._report.last_seq
        if consumer.delivered_seq > last_seq:
            what = f"it was sent message {consumer.delivered_seq}, the stream ends at {last_seq}; a start goes back"
            self._report.find(NOTE, directory, what)

    def _load(
        self, directory: str, otherwise: str, first: bytes | None = None
    ) -> tuple[bytes, list[bytes]] | None:
        """Return the snapshot and the changes of a state; if the state is unreadable, report it and return None.

        `otherwise` describes the effect of an unreadable state.
        """
        try:
            snapshot, changes, problems = state_file(self._files, directory, first=first).load(seal=False)
        except FileNotFoundError:
            what = f"its state is missing: neither snap nor log is there; {otherwise}"
            finding = self._report.find(DAMAGE, directory, what)
            finding.mend = (
                partial(move_file_aside, self._disk, directory) if self._disk.exists(directory) else None
            )
        except CorruptRecord as error:
            if any(STATE_FILE.fullmatch(name) for name in self._disk.list_dir(directory)):
                finding = self._report.find(
                    DAMAGE, directory, f"its state cannot be read: {error.reason}; {otherwise}"
                )
                finding.mend = partial(set_state_aside, self._disk, directory)
            else:
                self._report.find(NOTE, directory, f"its state is set aside; {otherwise}")
        except UNREAD as error:
            self._report.findings.append(finding_of(error, directory))
        else:
            for problem in problems:
                self._report.find(DAMAGE, directory, problem)
            if problems:
                self._report.findings[-1].mend = partial(rewrite_state, self._files, directory)
            return snapshot, changes
        return None

    # -- the rest ------------------------------------------------------------------------------------------

    def _positions(self, directory: str) -> None:
        names = self._disk.list_dir(directory)
        self._strangers(directory, names)
        if not any(STATE_FILE.fullmatch(name) for name in names):
            return
        loaded = self._load(directory, "positions are read from messages")
        if loaded is None:
            return
        try:
            for entry in (loaded[0], *loaded[1]):
                values = orjson.loads(entry)
                for _, (seq, ident) in values["sources"].items():
                    int(seq), str(ident)
                at = int(values["at"])
        except NONSENSE as error:
            what = f"its positions are invalid: {error}; they are read from messages"
            finding = self._report.find(DAMAGE, directory, what)
            finding.mend = partial(set_state_aside, self._disk, directory)
            return
        if at > self._report.last_seq:
            what = f"positions as of message {at}, the stream ends at {self._report.last_seq}"
            self._report.find(NOTE, directory, what)

    def _purge(self, path: str) -> None:
        """Report the purge file at `path`, which an interrupted purge has left.

        If the file is damaged, the purge has not begun.
        """
        try:
            purge = read_purge(self._disk, path, self._files.key)
            what = f"{purge.subject or 'every subject'} below {purge.before_seq}"
            self._report.find(NOTE, path, f"a purge of {what} was begun; a start finishes it")
        except CorruptRecord as error:
            self._report.find(NOTE, path, f"a purge that had not begun: {error.reason}")
        except UNREAD as error:
            self._report.findings.append(finding_of(error, path))

    def _window(self, path: str) -> None:
        try:
            for _ in read_parts(self._disk, path, self._files.key):
                pass
        except CorruptRecord as error:
            what = f"{error.reason}; message ids are read from messages"
            finding = self._report.find(DAMAGE, path, what, error.offset)
            finding.mend = partial(move_file_aside, self._disk, path)
        except UNREAD as error:
            self._report.findings.append(finding_of(error, path))


def replay(
    consumer: ConsumerReport,
    state: dict[str, Any],
    changes: list[bytes],
    ack_none: bool,
    stream: tuple[int, int],
) -> None:
    """Set the numbers of `consumer` to those of the snapshot `state` after all `changes`.

    `stream` has the first and the last sequence of the stream.

    Raises:
        ValueError, KeyError, TypeError, IndexError: the state is invalid.
        UnknownChange: a newer version wrote a change.
    """
    first, last = stream
    delivered, floor = _sequence(state["delivered"][1]), _sequence(state["floor"][1])
    pending = {_sequence(entry[0]) for entry in state["pending"]}
    order = deque(sorted(pending))  # ascending; some of these are no longer pending
    left = max(last - first, 0) + len(pending) + REPLAY_MIN  # number of steps allowed for the replay
    acked = False
    for change in changes:
        for kind, seq, *more in decode(change):
            if kind == DELIVERED:
                end = _sequence(seq + more[1] - 1)
                if seq <= delivered or not more[1]:
                    raise ValueError(f"{more[1]} first deliveries from {seq} on, behind {delivered}")
                delivered = end
                if not ack_none:
                    some = range(max(seq, first), min(end, last) + 1)
                    pending.update(some)
                    order.extend(some)
            elif kind == ACKED:
                left -= min(more[0], len(pending))
                if left < 0:
                    raise ValueError("more acks than there were deliveries")
                if more[0] < len(pending):
                    pending.difference_update(range(seq, seq + more[0]))
                else:
                    pending = {each for each in pending if not seq <= each < seq + more[0]}
                acked = True
            elif kind in (ACKED_ALL, ACKED_PENDING):
                while order and order[0] <= seq:
                    pending.discard(order.popleft())
                floor = max(floor, seq)
            elif kind in (EXHAUSTED, TERMINATED):
                pending.discard(seq)
    if acked:
        floor = max(floor, min(pending) - 1 if pending else delivered)
    consumer.delivered_seq = delivered
    consumer.ack_floor_seq = delivered if ack_none else floor
    consumer.pending = len(pending)


def _sequence(value: object) -> int:
    """Return `value` as a sequence. Raises ValueError if it is not one."""
    if not isinstance(value, int) or not 0 <= value <= SEQ_MAX:
        raise ValueError(f"{value!r} is no sequence")
    return value
