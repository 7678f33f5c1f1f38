class EntryMark:
    index: int
    term: int
    ns: int
    def __init__(self, index: int, term: int, ns: int, last_id: bytes) -> None: ...
