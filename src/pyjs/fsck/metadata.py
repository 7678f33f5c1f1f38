"""Metadata of a directory, checked: both copies whole, and of the same change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.errors import CorruptRecord
from pyjs.fsck.findings import DAMAGE, LOCKED, NOTE, UNCHECKED, Finding
from pyjs.fsck.images import envelope, metadata_paths
from pyjs.fsck.mending import write_metadata
from pyjs.store.crypt.vault import Locked
from pyjs.store.format.meta import UnknownFormat

if TYPE_CHECKING:
    from typing import Any

    from pyjs.base.disk import Disk
    from pyjs.store.format.meta import Opener


def locked_text(error: Locked) -> str:
    """Return what a report says of a file that cannot be opened."""
    if "another" in str(error):
        return "it is encrypted with another key than that of --key-file: nothing more of it can be checked"
    return "it is encrypted, and whole as far as its checksum tells; to check the rest needs --key-file"


class Copies:
    """What the two metadata files of a directory hold."""

    def __init__(self, disk: Disk, directory: str, kind: int, opener: Opener) -> None:
        self._disk = disk
        self._directory = directory
        self._kind = kind
        self.opener = opener
        self.locked = False  # a copy cannot be opened
        self.findings: list[Finding] = []
        self.values: dict[str, Any] | None = None  # None: no copy is whole
        self.generation = 0
        self.newer = False
        self._load()

    def _load(self) -> None:
        generations = set()
        for path in metadata_paths(self._directory):
            try:
                generation, values = envelope(self._disk, path, self._kind, self.opener)
            except Locked as error:
                self.newer = self.locked = True
                self.findings.append(Finding(LOCKED, path, locked_text(error)))
            except UnknownFormat as error:
                self.newer = True
                self.findings.append(Finding(UNCHECKED, path, str(error)))
            except CorruptRecord as error:
                self.findings.append(Finding(DAMAGE, path, error.reason, error.offset))
            except FileNotFoundError:
                self.findings.append(Finding(DAMAGE, path, "it is missing"))
            except OSError as error:
                self.newer = True
                self.findings.append(
                    Finding(UNCHECKED, path, f"it cannot be read: {error.strerror or error}")
                )
            else:
                generations.add(generation)
                if self.values is None or generation > self.generation:
                    self.generation, self.values = generation, values
        if len(generations) > 1:
            what = f"one copy is of change {min(generations)}, the other of {max(generations)}, which counts"
            self.findings.append(Finding(NOTE, self._directory, what))
        if self.values is not None and self.findings and not self.newer:
            self.be_written_anew(self.generation, self.values)

    def be_written_anew(self, generation: int, values: dict[str, Any]) -> None:
        """Have a repair write these values; they were found elsewhere, or in one copy."""
        self.values, self.generation = values, generation
        self.findings[0].mend = write_metadata(
            self._disk, self._directory, self._kind, generation, values, self.opener.key
        )
