from typing import Final, TypeAlias

from pyjs.archive.frames import BadArchive

_Buffer: TypeAlias = bytes | bytearray | memoryview

MESSAGE: Final = 0
ERASED: Final = 1
TOMBSTONE: Final = 2

class BadBlock(BadArchive):
    offset: int
    def __init__(self, what: str, offset: int) -> None: ...

class BlockRecord:
    kind: int
    seq: int
    ts: int
    name: bytes
    headers: bytes
    payload: bytes

class BlockReader:
    offset: int
    check: bytes
    left: int
    passed_by: list[int]
    def __init__(self, stream: str, number: int) -> None: ...
    def add(self, data: _Buffer) -> None: ...
    def next(self, limit: int) -> list[BlockRecord]: ...
