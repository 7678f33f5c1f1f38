class Losses:
    msgs: int
    bytes: int
    seqs: list[int]
    def __init__(self) -> None: ...
