from typing import Self

class Answers:
    def __new__(cls, head: bytes) -> Self: ...
