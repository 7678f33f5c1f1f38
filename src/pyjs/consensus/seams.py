"""What the consensus of a node stands between: state machines above, the log below, other nodes beside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyjs.consensus.engine import Role

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyjs.consensus.engine import Conf, Write

__all__ = ["Machine", "NodeLog", "Peers", "Role", "StoredGroup"]


class Machine(Protocol):
    """The state machine of one group. All replicas get the same calls of `apply`, so they have the same state.

    If a call raises, the group stops on this node: nothing is skipped.
    """

    def apply(self, index: int, term: int, time_ns: int, payload: bytes, proposal: object | None) -> None:
        """Apply a committed entry: in order, each one once in the life of the machine.

        `time_ns` is the leader's time and never decreases. `proposal` is what `propose` got if this node proposed the
        entry and still leads in that term.
        """

    def role(self, term: int, role: Role, leader: int) -> None:
        """Note the role of this node and the number of the leader's node, 0: none.

        LEADER comes when everything from earlier terms has been applied; `propose` works from then on.
        """

    def dropped(self, proposal: object) -> None:
        """Note that a proposal will not come back with its entry: nobody knows whether it will be committed."""

    def snapshot(self) -> bytes | None:
        """Return the state after the last applied entry; None: not now, ask again later.

        The log before it is cut: what the data refers to must be durable.
        """

    def install(self, index: int, data: bytes) -> None:
        """Replace the state by that of another replica or an earlier life: what `snapshot` returned after `index`."""


class StoredGroup(Protocol):
    """What the log has of one group."""

    name: str
    peer: int
    conf: Conf
    hard: tuple[int, int, int]  # term, vote, commit
    start: int
    start_term: int
    state: bytes  # of the last `point`; b"": none

    @property
    def is_damaged(self) -> bool:
        """Whether something of it was lost: it must come back as another replica."""


class SyncJob(Protocol):
    """A sync of the log, for any thread."""

    def __call__(self) -> Exception | None:
        """Run; return what went wrong."""


class NodeLog(Protocol):
    """The log of all groups of this node. What a power cut leaves is a prefix of all writes."""

    groups: Mapping[int, StoredGroup]  # as written, with everything that was staged

    def create(self, group: int, name: str, peer: int, conf: Conf, start: int, start_term: int) -> None:
        """Stage the birth of a group."""

    def remove(self, group: int) -> None:
        """Stage the end of a group."""

    def write(self, write: Write, payloads: Sequence[bytes]) -> None:
        """Stage a vote and entries, with the payload of each; b"" where there is none."""

    def point(self, group: int, index: int, term: int, conf: Conf, state: bytes) -> None:
        """Stage a new start: entries up to `index` are in `state`."""

    def flush(self) -> None:
        """Write everything that is staged.

        Raises:
            StoreFailed: nothing more can be written until a restart.
        """

    def begin_sync(self) -> SyncJob | None:
        """Return a job that makes everything written durable; None: nothing to do, or a job is running."""

    def finish_sync(self, job: SyncJob, error: Exception | None) -> None:
        """Take the result of the job."""

    @property
    def boot(self) -> int:
        """Return the number of this start of the node."""

    def entries(self, group: int) -> Sequence[tuple[int, int, bytes]]:
        """Return term, kind and body of each entry after the start."""

    def crowding(self) -> Sequence[int]:
        """Return groups whose logs should be cut, so that a file can be used again."""

    def payload(self, group: int, index: int) -> bytes:
        """Read a payload back, checked."""


class Peers(Protocol):
    """The way to other nodes. What is sent may be lost, doubled or late, but not changed."""

    def send(self, node: int, parts: Sequence[bytes]) -> None:
        """Send a batch, or drop it if there is no connection."""

    def pending_size(self, node: int) -> int:
        """Return the bytes that wait for that node; it does not read while they grow."""

    def stop(self, reason: str) -> None:
        """End all connections: the others must not count on this node."""
