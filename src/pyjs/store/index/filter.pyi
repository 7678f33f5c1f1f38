class StoreFilter:
    subjects: tuple[bytes, ...]
    all: bool
