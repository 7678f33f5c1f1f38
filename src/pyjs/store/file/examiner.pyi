from collections.abc import Callable

class Losses:
    msgs: int
    bytes: int
    seqs: list[int]
    def __init__(self) -> None: ...

class Examiner:
    losses: Losses
    mistaken: bool
    on_mistake: Callable[[], None] | None
    on_loss: Callable[[], None] | None
    def confirm(self, number: int) -> int: ...
