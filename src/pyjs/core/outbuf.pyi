SOURCE_HASH: bytes

class OutBuf:
    limit: int
    overflow: bool
    def __init__(self, limit: int = ...) -> None: ...
    def __len__(self) -> int: ...
