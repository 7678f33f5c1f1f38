class WaitingQueue:
    count: int
    no_wait: int
    max: int
    def __init__(self, limit: int) -> None: ...
    def __len__(self) -> int: ...
    def add(
        self,
        reply: bytes,
        batch: int,
        max_bytes: int,
        no_wait: bool,
        now: int,
        expires_ns: int,
        heartbeat_ns: int,
        priority: int = 0,
    ) -> bool: ...
    def replies(self) -> list[bytes]: ...
    def wanted(self) -> int: ...
