SOURCE_HASH: bytes

class Usage:
    used: int
    reserved: int
    max: int
    def __init__(self, limit: int = -1) -> None: ...
