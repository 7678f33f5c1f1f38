SOURCE_HASH: bytes

class Answers:
    def __init__(self, head: bytes) -> None: ...
