SOURCE_HASH: bytes

class FlowControl:
    window: int
    pending: int
    asked: int
    reply: bytes
    def switch(self, on: bool) -> None: ...
    def ask(self, reply: bytes) -> None: ...
    def confirm(self, reply: bytes) -> bool: ...
