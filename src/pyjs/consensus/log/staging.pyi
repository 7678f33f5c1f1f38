from collections.abc import Sequence
from enum import Enum

from pyjs.consensus.log.files import LogFile, Seal
from pyjs.consensus.log.group import StoredGroup
from pyjs.consensus.log.shelf import Shelf

class Staged(Enum):
    RECORD = "record"
    COMMIT = "commit"
    NOTHING = "nothing"

class Staging:
    boot: int
    machine: int
    is_in_doubt: bool
    number: int
    synced: int
    before: int
    at: int
    @property
    def claimed(self) -> int: ...
    @property
    def is_empty(self) -> bool: ...
    def __init__(
        self, shelf: Shelf, groups: dict[int, StoredGroup], incarnation: int, file_size: int
    ) -> None: ...
    def reserve(self, size: int) -> LogFile: ...
    def begin_file(self, size: int, number: int) -> LogFile: ...
    def end_doubt(self) -> None: ...
    def seal(self, next_file: int) -> Seal: ...
    def stage_census(self) -> None: ...
    def stage(
        self,
        group: StoredGroup,
        kind: int,
        flags: int,
        index: int,
        body: bytes = b"",
        payload: bytes = b"",
        entry_term: int = 0,
        entry_kind: int = 0,
    ) -> None: ...
    def stage_changes(
        self,
        group: StoredGroup,
        hard: tuple[int, int, int] | None,
        first: int,
        entries: Sequence[tuple[int, int, bytes]],
        payloads: Sequence[bytes],
    ) -> Staged: ...
    def stage_entries(
        self,
        group: StoredGroup,
        index: int,
        entries: Sequence[tuple[int, int, bytes]],
        payloads: Sequence[bytes],
    ) -> None: ...
    def forget(self, group: int) -> None: ...
    def write(self) -> None: ...
