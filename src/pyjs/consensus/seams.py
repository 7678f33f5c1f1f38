"""The interfaces of consensus: to the state machines, and to the other nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from pyjs.consensus.engine import Role

Making: TypeAlias = "Generator[None, None, bytes]"  # steps of a few milliseconds; one step is done per turn


class Machine(Protocol):
    """The state machine of one group. All replicas get the same calls of `apply`, so their states are equal.

    If a call raises an exception, the group stops on this node: no entry is skipped.
    """

    def apply(self, index: int, term: int, time_ns: int, payload: bytes, proposal: object | None) -> None:
        """Apply a committed entry. The calls are in order, one for each entry.

        `time_ns` is the leader's time in ns since the epoch, and never decreases. `proposal` is the object that was
        passed to `propose` on this node. It is None if another node proposed the entry, or if the proposal was
        reported as dropped.
        """

    def role(self, term: int, role: Role, leader: int) -> None:
        """Store the role of this node, and the number of the leader's node (0: none).

        LEADER is reported when all entries of earlier terms have been applied; from then on, `propose` works.
        """

    def dropped(self, proposal: object) -> None:
        """Handle a proposal that will not be passed to `apply`; its entry may still be committed."""

    def durable(self) -> int:
        """Return the index of the last entry that may be cut from the log.

        If `snapshot` returns the whole state, this is the last applied entry. If the state is in files, it is the
        last entry whose effects are durable.
        """

    def snapshot(self) -> bytes | Making | None:
        """Return the state after the last applied entry, or None if this is not possible now.

        A large state may be created in steps by a generator that returns the state at its end. Entries are applied
        between the steps, but the returned state must not include their effects.
        """

    def install(self, index: int, data: bytes) -> Iterator[None] | None:
        """Replace the state with `data`, which `snapshot` returned after entry `index` on this or another replica.

        Long work is returned as an iterator of steps; no entry is applied before the last step. If `install` is
        called again before that, the new steps replace the remaining ones.
        """

    def renewed(self) -> None:
        """Reopen the group after its log has been dropped, because the log was damaged, too large or lacked entries.

        The replica is then empty and has a higher incarnation. The leader must add it to the group.
        """


class Peers(Protocol):
    """The connections to other nodes. A batch may be lost, duplicated or late, but not altered."""

    def send(self, node: int, parts: Sequence[bytes]) -> None:
        """Send a batch, or drop it if there is no connection."""

    def pending_size(self, node: int) -> int:
        """Return the number of unsent bytes for a node; it grows while the node does not read."""

    def stop(self, reason: str) -> None:
        """End all connections, because other nodes must not rely on this node."""
