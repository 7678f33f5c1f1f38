from collections.abc import Sequence

from pyjs.cluster.route import Route

class Batches:
    connections: dict[int, Route]
    dropped: int
    def send(self, node: int, parts: Sequence[bytes]) -> None: ...
    def pending_size(self, node: int) -> int: ...
