SOURCE_HASH: bytes

class SubjectSet:
    def __init__(self) -> None: ...
