from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from pyjs.base.clock import Clock
from pyjs.core.fair_queue import FairQueue, Owner

T = TypeVar("T")

class Share(NamedTuple):
    items: int
    ns: int
    stride: int = 1
    few: int = 0

class Lane(Generic[T]):
    waiting: FairQueue[T]
    do: Callable[[T], object]

    def __init__(
        self,
        clock: Clock,
        share: Share,
        do: Callable[[T], object],
        owner_of: Callable[[T], Owner],
        failed: Callable[[T, Exception], None],
    ) -> None: ...
    def run(self, fresh: list[T], turn: int) -> None: ...
