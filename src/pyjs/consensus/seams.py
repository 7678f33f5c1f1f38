"""The interfaces of consensus: state machines above, other nodes beside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from pyjs.consensus.engine import Role

Making: TypeAlias = "Generator[None, None, bytes]"  # steps of a few milliseconds; one is made in a turn


class Machine(Protocol):
    """The state machine of one group. All replicas get the same calls of `apply`, so their states are equal.

    If a call raises, the group stops on this node: nothing is skipped.
    """

    def apply(self, index: int, term: int, time_ns: int, payload: bytes, proposal: object | None) -> None:
        """Apply a committed entry; called in order, once for each entry in the life of the machine.

        `time_ns` is the leader's time and never decreases. `proposal` is the argument of `propose` if this node
        proposed the entry. After this node has lost the lead it is None, unless the proposal `is_patient`.
        """

    def role(self, term: int, role: Role, leader: int) -> None:
        """Store the role of this node and the number of the leader's node (0: none).

        LEADER is reported once all entries of earlier terms have been applied; `propose` works from then on.
        """

    def dropped(self, proposal: object) -> None:
        """Handle a proposal that will not come back with its entry; whether it will be committed is unknown."""

    def durable(self) -> int:
        """Return the index up to which the log may be cut: a start needs `snapshot` and the entries after it.

        That is the last applied entry if the snapshot is the whole state, and the last entry whose effects are
        durable if the state is in files.
        """

    def snapshot(self) -> bytes | Making | None:
        """Return the state after the last applied entry; None: not now, ask again later.

        A large state is returned in steps. It is the state at the time of this call, although entries are applied
        between the steps.
        """

    def install(self, index: int, data: bytes) -> Iterator[None] | None:
        """Replace the state with `data`, which `snapshot` returned after entry `index`, here or on another replica.

        Long work is returned as steps: nothing is applied before they end. Another `install` may replace the steps
        that remain.
        """


class Peers(Protocol):
    """The connections to other nodes. A sent batch may be lost, duplicated or late, but not changed."""

    def send(self, node: int, parts: Sequence[bytes]) -> None:
        """Send a batch, or drop it if there is no connection."""

    def pending_size(self, node: int) -> int:
        """Return the number of unsent bytes for a node; they grow while it does not read."""

    def stop(self, reason: str) -> None:
        """End all connections, since other nodes must not rely on this one."""
