from builtins import bytes as Bytes

SOURCE_HASH: Bytes

class Losses:
    msgs: int
    bytes: int
    seqs: list[int]
    def __init__(self) -> None: ...
