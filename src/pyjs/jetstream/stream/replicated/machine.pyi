from pyjs.consensus.consensus import Consensus
from pyjs.jetstream.cluster.assignments import Assignment
from pyjs.jetstream.replication.agreement import Agreement
from pyjs.jetstream.replication.catch_up import CatchUp
from pyjs.jetstream.stream.replicated.proposal import Proposal
from pyjs.jetstream.stream.replicated.replica import Replica

class EntryMachine:
    assignment: Assignment
    consensus: Consensus
    replica: Replica
    agreement: Agreement
    catch_up: CatchUp | None
    def apply(self, index: int, term: int, time_ns: int, payload: bytes, proposal: object | None) -> None: ...
    def propose(self, payload: bytes, proposal: Proposal) -> bool: ...
