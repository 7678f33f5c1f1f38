from collections import deque
from collections.abc import Sequence, Sized

from pyjs.consensus.consensus import Consensus
from pyjs.consensus.engine import Groups
from pyjs.consensus.faults import MachineFaults
from pyjs.consensus.log.durability import Durability
from pyjs.consensus.log.node_log import NodeLog
from pyjs.consensus.member import Member
from pyjs.consensus.outbox import Outbox
from pyjs.consensus.payloads import Key, Payloads
from pyjs.core.sink import Turn

class Round:
    is_staged: bool
    rests: bool
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
        installs: list[int],
        chores: tuple[Sized, ...],
    ) -> None: ...
    def queue(self) -> None: ...
    def end(self) -> None: ...
    def continue_with(self, member: Member) -> None: ...
    def take_later(self) -> bool: ...
    def mark(self) -> None: ...
    def propose(self, group: int, payload: bytes, proposal: object) -> bool: ...
    def step(self, frames: bytes, payloads: Sequence[tuple[Key, bytes]]) -> None: ...
    def turn(self) -> None: ...
