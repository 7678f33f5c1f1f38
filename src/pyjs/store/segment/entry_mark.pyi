class EntryMark:
    index: int
    term: int
    ns: int
    group: int
    ids_from: int
    last_id: bytes
    steps: bytes
    def __init__(
        self, index: int, term: int, ns: int, last_id: bytes, group: int, ids_from: int, steps: bytes = ...
    ) -> None: ...
