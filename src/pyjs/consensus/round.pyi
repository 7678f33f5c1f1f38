from collections import deque
from collections.abc import Sequence

from pyjs.consensus.consensus import Consensus
from pyjs.consensus.durability import Durability
from pyjs.consensus.engine import Groups
from pyjs.consensus.faults import MachineFaults
from pyjs.consensus.log.node_log import NodeLog
from pyjs.consensus.member import Member
from pyjs.consensus.outbox import Outbox
from pyjs.consensus.payloads import Key, Payloads
from pyjs.core.sink import Turn

class Round:
    is_staged: bool
    @property
    def payloads(self) -> Payloads: ...
    @property
    def members(self) -> dict[int, Member]: ...
    @property
    def backlog(self) -> deque[Member]: ...
    def __init__(
        self,
        owner: Consensus,
        turn: Turn,
        engine: Groups,
        log: NodeLog,
        outbox: Outbox,
        payloads: Payloads,
        durability: Durability,
        faults: MachineFaults,
    ) -> None: ...
    def queue(self) -> None: ...
    def begin(self) -> bool: ...
    def end(self) -> None: ...
    def continue_with(self, member: Member) -> None: ...
    def take_later(self) -> bool: ...
    def step(self, frames: bytes, payloads: Sequence[tuple[Key, bytes]]) -> None: ...
    def agree(self) -> None: ...
    def apply_some(self) -> None: ...
