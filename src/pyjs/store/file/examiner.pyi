from collections.abc import Callable

from pyjs.store.store import StoredMessage

class Losses:
    msgs: int
    bytes: int
    seqs: list[int]
    def __init__(self) -> None: ...

class Examiner:
    losses: Losses
    mistaken: bool
    on_mistake: Callable[[], None] | None
    damaged: dict[int, list[int]]
    on_loss: Callable[[], None] | None
    def confirm(self, number: int) -> int: ...
    def wanted(self, number: int) -> list[int]: ...
    def fits(self, message: StoredMessage) -> bool: ...
    def give_up(self) -> None: ...
