SOURCE_HASH: bytes

class Remains:
    def free(self) -> None: ...
