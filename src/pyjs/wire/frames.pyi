NEED: int
PLAIN: int
PACKED: int
CLOSE: int
PING: int
PONG: int
FAULT: int
TOO_LARGE: int

class FrameReader:
    payload: bytes
    fault: str
    packed_max: int
    def __init__(self, masked: bool, deflates: bool, packed_max: int) -> None: ...
    def begin(self, data: bytes) -> None: ...
    def next(self) -> int: ...
