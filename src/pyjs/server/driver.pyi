import asyncio
from collections.abc import Callable

from pyjs.base.timers import Timer
from pyjs.node import Node
from pyjs.server.endings import Endings

class Driver:
    loop: asyncio.AbstractEventLoop
    node: Node
    endings: Endings
    after_turn: list[Callable[[], None]]
    buffer: bytearray

    def __init__(self, loop: asyncio.AbstractEventLoop, node: Node) -> None: ...
    def wake(self) -> None: ...
    def wake_for_input(self) -> None: ...
    def after(self, seconds: float, callback: Callable[[], None]) -> Timer: ...
    def turn_now(self) -> None: ...
    def stop(self) -> None: ...
