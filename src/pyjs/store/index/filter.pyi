def is_wildcard(subject: bytes) -> bool: ...

class StoreFilter:
    subjects: tuple[bytes, ...]
    all: bool
