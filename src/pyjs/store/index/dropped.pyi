from collections.abc import Iterator

class DropLog:
    def take(self) -> Iterator[tuple[int, bytes]]: ...

class Remains:
    def free(self) -> None: ...
