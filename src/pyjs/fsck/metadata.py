"""The check of metadata: both copies must be intact and of the same generation."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pyjs.base.errors import CorruptRecord, PyjsError
from pyjs.fsck.findings import DAMAGE, LOCKED, NOTE, UNCHECKED, Finding
from pyjs.fsck.mending import write_metadata
from pyjs.store.crypt.keys import Locked
from pyjs.store.format.meta import COPIES, KIND_CLUSTER, UnknownFormat, decode

if TYPE_CHECKING:
    from typing import Any

    from pyjs.base.disk import Disk
    from pyjs.store.format.meta import Opener

CLUSTER_FILES = tuple(f".cluster.{each}" for each in (*COPIES, "tmp"))
UNREAD = (UnknownFormat, Locked, CorruptRecord, OSError)  # errors that prevent a check of a file


def locked_text(error: Locked) -> str:
    """Return the text of a finding about a file that is encrypted with an unknown key."""
    if "another" in str(error):
        return "it is encrypted with another key than that of --key-file: nothing more of it can be checked"
    return "it is encrypted, and whole as far as its checksum tells; to check the rest needs --key-file"


def finding_of(error: PyjsError | OSError, path: str) -> Finding:
    """Return the finding about a file that could not be read; `error` is one of UNREAD."""
    match error:
        case Locked():
            return Finding(LOCKED, path, locked_text(error))
        case CorruptRecord():
            return Finding(DAMAGE, path, error.reason, error.offset)
        case FileNotFoundError():
            return Finding(DAMAGE, path, "it is missing")
        case OSError():
            return Finding(UNCHECKED, path, f"it cannot be read: {error.strerror or error}")
    return Finding(UNCHECKED, path, str(error))


def cluster_findings(disk: Disk, path: str) -> list[Finding]:
    """Return the findings about one copy of the store's identity in a cluster; a temporary file has none."""
    if path.endswith(".tmp"):
        return []
    try:
        decode(disk.read_file(path), KIND_CLUSTER, path)
    except UNREAD as error:
        return [finding_of(error, path)]
    return []


class Copies:
    """The check of the two metadata files of a directory."""

    def __init__(self, disk: Disk, directory: str, kind: int, opener: Opener) -> None:
        self._disk = disk
        self._directory = directory
        self._kind = kind
        self.opener = opener
        self.locked = False  # a copy is encrypted with an unknown key
        self.findings: list[Finding] = []
        self.values: dict[str, Any] | None = None  # None: no copy is intact
        self.generation = 0
        self.newer = False
        self._load()

    def _load(self) -> None:
        generations = set()
        for path in (f"{self._directory}/meta.{copy}" for copy in COPIES):
            try:
                generation, values = decode(self._disk.read_file(path), self._kind, path, self.opener)
            except UNREAD as error:
                self.findings.append(finding_of(error, path))
                self.locked |= isinstance(error, Locked)
                self.newer |= not isinstance(error, (CorruptRecord, FileNotFoundError))
            else:
                generations.add(generation)
                if self.values is None or generation > self.generation:
                    self.generation, self.values = generation, values
        if len(generations) > 1:
            what = f"one copy is of change {min(generations)}, the other of {max(generations)}, which counts"
            self.findings.append(Finding(NOTE, self._directory, what))
        if self.values is not None and self.findings and not self.newer:
            self.plan_rewrite(self.generation, self.values)

    def plan_rewrite(self, generation: int, values: dict[str, Any]) -> None:
        """Set the mend of the first finding to a rewrite of both copies with `values`.

        There must be a finding. `values` come from an intact copy or from a segment.
        """
        self.values, self.generation = values, generation
        self.findings[0].mend = partial(
            write_metadata, self._disk, self._directory, self._kind, generation, values, self.opener.key
        )
