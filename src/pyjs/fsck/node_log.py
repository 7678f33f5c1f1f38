"""The check of the node log, which is read as the server would read it at its next start.

A starting server handles most damage itself. The check repairs only two things: it rewrites a damaged copy of a
header, and removes a file whose creation was interrupted.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pyjs.base.disk import closing
from pyjs.consensus.log.files import DIRECTORY, HEADER, LOG, SPARE, TEMPORARY, UnknownLog, number_in
from pyjs.consensus.log.replay import SET_APART, Replay
from pyjs.fsck.findings import DAMAGE, NOTE, UNCHECKED, NodeLogReport
from pyjs.fsck.states import SET_ASIDE, STRANGER
from pyjs.store.format.layout import DAMAGED, UNSYNCED

if TYPE_CHECKING:
    from pyjs.base.disk import Disk
    from pyjs.consensus.log.replay import Loss
    from pyjs.fsck.findings import StoreReport

NEW_REPLICAS = "groups that must come back as new replicas"


class NodeLogCheck:
    """The check of the node log in one store directory; only a server in a cluster has a node log."""

    def __init__(self, disk: Disk, report: StoreReport) -> None:
        self._disk = disk
        self._report = report
        self._directory = f"{report.root}/{DIRECTORY}"

    def run(self) -> None:
        """Check the node log, if there is one; add the findings and the totals to the report."""
        if not self._disk.is_directory(self._directory):
            return
        self._check_names()
        replay = Replay(self._disk, self._directory)
        try:
            for _ in replay.steps():
                pass
        except UnknownLog as error:
            self._report.find(UNCHECKED, self._directory, str(error))
            return
        for loss in replay.losses:
            self._report.find(DAMAGE, loss.path, self._text(replay, loss), loss.offset, loss.size)
        for note in replay.notes:
            finding = self._report.find(DAMAGE, note.path, note.what, note.offset, note.size)
            if note.size:
                finding.mend = partial(copy_header, self._disk, note.path, note.offset)
        for path, _ in replay.stale:
            self._report.find(NOTE, path, "nothing in it counts; a start uses it again")
        for group in replay.groups.values():
            if group.damage == SET_APART:
                what = f"{SET_APART}; {NEW_REPLICAS}: {group.number} {group.name!r}"
                self._report.find(NOTE, self._directory, what)
        self._report.node_log = self._summed(replay)

    def _check_names(self) -> None:
        for name in self._disk.list_dir(self._directory):
            path = f"{self._directory}/{name}"
            if name == TEMPORARY:
                finding = self._report.find(NOTE, path, "a file that was being made; a start removes it")
                finding.mend = partial(remove_temporary, self._disk, path)
            elif name.startswith(DAMAGED):
                self._report.find(NOTE, path, SET_ASIDE)
            elif name == UNSYNCED:
                self._report.find(NOTE, path, "a sync of the log failed, so its end may be missing")
            elif not name.endswith(SPARE) and not (name.endswith(LOG) and number_in(name)):
                self._report.find(NOTE, path, STRANGER)

    def _text(self, replay: Replay, loss: Loss) -> str:
        names = ", ".join(f"{number} {replay.groups[number].name!r}" for number in sorted(loss.groups))
        return f"{loss.what}; {NEW_REPLICAS}: {names or 'none'}"

    def _summed(self, replay: Replay) -> NodeLogReport:
        groups = replay.groups.values()
        return NodeLogReport(
            files=len(replay.files),
            groups=len(groups),
            damaged=sum(group.is_damaged for group in groups),
            records=replay.records,
            entries=sum(group.last - group.start for group in groups if not group.is_damaged),
            bytes=sum(replay.ends.values()),
        )


def copy_header(disk: Disk, path: str, offset: int) -> str:
    """Replace the damaged header at `offset` with the file's other copy; return a description of the repair."""
    with closing(disk, disk.open_file(path)) as fd:
        other = disk.size_of(fd) - HEADER.size if offset == 0 else 0
        disk.write_at(fd, disk.read_at(fd, HEADER.size, other), offset)
        disk.sync_file(fd)
    return f"{path} has both copies of its header again"


def remove_temporary(disk: Disk, path: str) -> str:
    """Remove a file whose creation was interrupted; return a description of the repair."""
    disk.unlink(path)
    return f"{path} is removed"
