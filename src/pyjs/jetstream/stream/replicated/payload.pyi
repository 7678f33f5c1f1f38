from typing import Literal, TypeAlias

from pyjs.base.errors import PyjsError

ItemName: TypeAlias = Literal[
    "message", "batch", "purge", "delete", "configuration", "expiry", "removal", "skip", "schedules"
]
ITEM_NAMES: dict[int, ItemName]
KINDS: dict[ItemName, int]

class BrokenEntry(PyjsError):
    index: int
    reason: object
    def __init__(self, stream: str, index: int, reason: object) -> None: ...

class PayloadBuffer:
    items: int
    @property
    def size(self) -> int: ...
    def clear(self) -> None: ...

def operation(kind: ItemName, body: bytes = b"", subject: bytes = b"") -> bytes: ...
def payload_fault(payload: bytes) -> str | None: ...
def items_of(payload: bytes) -> list[tuple[ItemName, bytes, bytes, bytes]]: ...
