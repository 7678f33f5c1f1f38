"""The consensus engine of pyjs-server: all replicated groups of a node behind one object.

Knows nothing of sockets, disks, clocks and streams. `Groups` is the engine: one call a turn for all groups. A turn is

    groups.step(frames); groups.tick(); groups.propose(...)
    ready = groups.ready()          # send ready.frames; write ready.writes, one sync for all of them
    frames = groups.stored(ready.token)   # send them; then call ready() again for new commits

`peer_id` names a replica: the node it lives on and how often it has begun again there. The engine itself is TiKV's
raft, compiled from Rust; the README of the distribution says how it is built.
"""

from __future__ import annotations

from enum import IntEnum

from pyjs_raft import _engine
from pyjs_raft._engine import (
    DESCRIPTOR_SIZE,
    FRAME_SIZE_MAX,
    FRAME_VERSION,
    Conf,
    FrameError,
    Groups,
    Point,
    Quarantined,
    RaftError,
    Ready,
    Refused,
    Status,
    UnknownGroup,
    Write,
    payloads_of,
)

__all__ = [
    "DESCRIPTOR_SIZE",
    "FRAME_SIZE_MAX",
    "FRAME_VERSION",
    "INTERFACE",
    "Change",
    "Conf",
    "EntryKind",
    "FrameError",
    "Groups",
    "Point",
    "Quarantined",
    "RaftError",
    "Ready",
    "Refused",
    "Role",
    "Status",
    "UnknownGroup",
    "Write",
    "node_of",
    "payloads_of",
    "peer_id",
]

INTERFACE: int = getattr(_engine, "INTERFACE", 0)  # 0: the engine was compiled before it had a number
NODE_SHIFT = 32


class Role(IntEnum):
    """The role of a peer in its group."""

    FOLLOWER = 0
    CANDIDATE = 1
    LEADER = 2
    PRE_CANDIDATE = 3


class EntryKind(IntEnum):
    """The kinds of entries."""

    EMPTY = 0  # a new leader's first entry
    DATA = 1  # a descriptor
    CHANGE = 2  # changes of the membership


class Change(IntEnum):
    """One change of a membership."""

    ADD_VOTER = 1  # a learner becomes a voter
    ADD_LEARNER = 2  # a voter becomes a learner
    REMOVE = 3


def peer_id(node: int, incarnation: int = 1) -> int:
    """Return the number of a replica on `node`; a replica that lost its log comes back with the next incarnation."""
    if not 1 <= node < 1 << NODE_SHIFT or not 0 <= incarnation < 1 << NODE_SHIFT:
        raise ValueError(f"node {node}, incarnation {incarnation}: the node starts at 1, both have 32 bits")
    return node << NODE_SHIFT | incarnation


def node_of(peer: int) -> int:
    """Return the node of a replica."""
    return peer >> NODE_SHIFT
