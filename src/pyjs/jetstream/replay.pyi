from collections.abc import Iterable

from pyjs.jetstream.consumer import Consumer

SOURCE_HASH: bytes

def restore(consumer: Consumer, snapshot: bytes, deltas: Iterable[bytes]) -> bool: ...

class Replay:
    def __init__(self, consumer: Consumer) -> None: ...
    def take(self, delta: bytes) -> None: ...
