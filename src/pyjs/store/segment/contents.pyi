class SegmentContents:
    base_seq: int
    incarnation: int
    number: int
    sealed: bool
    end: int
    chain: int
    floor: int
    first_ts: int
    last_ts: int
    messages: int
    with_headers: int
    message_bytes: int
    n: int
    problems: list[tuple[int, int, str]]
    lost: list[tuple[int, int]]
    mended: dict[int, bytes]
    lost_bytes: int
    end_damaged: bool
