"""What the consensus of a node stands between: state machines above, other nodes beside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from pyjs.consensus.engine import Role

Making: TypeAlias = "Generator[None, None, bytes]"  # steps of a few milliseconds; one is made in a turn


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

    def durable(self) -> int:
        """Return the index up to which the log may be cut: a start needs `snapshot` and the entries after it.

        That is the last applied entry if the snapshot is the whole state, and the last entry whose effects are
        durable if the state is in files.
        """

    def snapshot(self) -> bytes | Making | None:
        """Return the state after the last applied entry; None: not now, ask again later.

        A large state is returned by steps: it is the one at this call, entries are applied between the steps.
        """

    def install(self, index: int, data: bytes) -> Iterator[None] | None:
        """Replace the state by that of another replica or an earlier life: what `snapshot` returned after `index`.

        If there is much to do, it is done by the steps that are returned: nothing is applied before their end.
        Another `install` may come instead of the rest of them.
        """


class Peers(Protocol):
    """The way to other nodes. What is sent may be lost, doubled or late, but not changed."""

    def send(self, node: int, parts: Sequence[bytes]) -> None:
        """Send a batch, or drop it if there is no connection."""

    def pending_size(self, node: int) -> int:
        """Return the bytes that wait for that node; it does not read while they grow."""

    def stop(self, reason: str) -> None:
        """End all connections: the others must not count on this node."""
