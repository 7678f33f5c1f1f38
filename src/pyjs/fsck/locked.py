"""The check of an encrypted stream without its key: envelopes, outer headers and unencrypted META records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.disk import closing
from pyjs.base.errors import CorruptRecord
from pyjs.fsck.findings import DAMAGE, LOCKED
from pyjs.fsck.images import Files
from pyjs.fsck.metadata import UNREAD, finding_of
from pyjs.fsck.states import StatesCheck
from pyjs.store.format.image import open_image
from pyjs.store.format.outer_header import clear_problem, outer_header_at

if TYPE_CHECKING:
    from pyjs.base.disk import Disk
    from pyjs.fsck.findings import StreamReport


class LockedCheck:
    """The check of one stream without its key; it repairs nothing."""

    def __init__(self, disk: Disk, report: StreamReport) -> None:
        self._disk = disk
        self._report = report

    def run(self) -> None:
        """Check everything that needs no key; add the findings to the report, without mends."""
        directory = f"{self._report.directory}/msgs"
        for name in self._disk.list_dir(directory):
            if name.endswith(".seg") and name[:-4].isdigit():
                self._segment(f"{directory}/{name}")
        StatesCheck(Files(self._disk), self._report).run()
        for finding in self._report.findings:
            finding.mend = None

    def _segment(self, path: str) -> None:
        self._report.segments += 1
        try:
            with closing(self._disk, self._disk.open_read_only(path)) as fd:
                outer, problem = outer_header_at(self._disk, fd, path)
                # the report already has one line about the encrypted stream
                if outer is not None and outer.cipher:
                    problem = problem or clear_problem(self._disk, fd, outer)
                    if problem:
                        self._report.find(DAMAGE, path, problem)
                    return
                image = open_image(self._disk, path, fd, None)
        except CorruptRecord as error:
            self._report.find(DAMAGE, path, error.reason)
        except UNREAD as error:
            self._report.findings.append(finding_of(error, path))
        else:
            if image.outer is None:
                what = "it is not encrypted, or its header is damaged; --key-file tells which"
                self._report.find(LOCKED, path, what)
