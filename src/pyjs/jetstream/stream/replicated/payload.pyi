from pyjs.base.errors import PyjsError

KINDS: dict[str, int]

class BrokenEntry(PyjsError):
    index: int
    reason: object
    def __init__(self, stream: str, index: int, reason: object) -> None: ...

class PayloadBuffer:
    items: int
    @property
    def size(self) -> int: ...
    def clear(self) -> None: ...

def operation(kind: str, body: bytes = b"", subject: bytes = b"") -> bytes: ...
def items_of(payload: bytes) -> list[tuple[str, bytes, bytes, bytes]]: ...
