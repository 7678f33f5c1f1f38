from typing import Self

SOURCE_HASH: bytes

class Usage:
    used: int
    reserved: int
    max: int
    def __new__(cls, limit: int = -1) -> Self: ...
