from collections.abc import Generator

class StoreStart:
    def steps(self) -> Generator[None, None, list[str]]: ...
