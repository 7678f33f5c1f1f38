class Parser:
    max_payload: int
    max_control_line: int
    headers: bool
    def feed(self, data: bytes) -> list[tuple[str, tuple[bytes, ...]]]: ...
