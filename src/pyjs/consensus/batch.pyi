from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from pyjs.consensus.payloads import Key

VERSION: int
SIZE_MAX: int
PAYLOAD_MAX: int
PART_MAX: int
HEADER_SIZE: int

class Kind(IntEnum):
    FRAMES = 1
    FETCH = 2
    PART = 3
    DONE = 4
    GONE = 5
    LACKS = 6
    HAS = 7

class BadBatch(ValueError): ...

class Frames:
    frames: bytes
    payloads: list[tuple[Key, bytes]]
    def __init__(self, frames: bytes, payloads: list[tuple[Key, bytes]]) -> None: ...
    def __eq__(self, other: object, /) -> bool: ...

@dataclass(frozen=True, slots=True)
class Fetch:
    group: int
    index: int
    offset: int

@dataclass(frozen=True, slots=True)
class Part:
    group: int
    index: int
    offset: int
    data: bytes

@dataclass(frozen=True, slots=True)
class Outcome:
    group: int
    index: int
    done: bool

@dataclass(frozen=True, slots=True)
class Lacks:
    group: int
    peer: int
    boot: int

@dataclass(frozen=True, slots=True)
class Has:
    group: int
    peer: int
    term: int
    index: int

Batch: TypeAlias = Frames | Fetch | Part | Outcome | Lacks | Has

def of_frames(frames: bytes, payloads: Sequence[bytes]) -> list[bytes]: ...
def of_fetch(group: int, index: int, offset: int) -> list[bytes]: ...
def of_part(group: int, index: int, offset: int, data: bytes) -> list[bytes]: ...
def of_outcome(group: int, index: int, *, done: bool) -> list[bytes]: ...
def of_lacks(group: int, peer: int, boot: int) -> list[bytes]: ...
def of_has(group: int, peer: int, term: int, index: int) -> list[bytes]: ...
def read(data: bytes, node: int = ...) -> Batch: ...
