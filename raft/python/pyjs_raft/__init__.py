"""The consensus engine of pyjs-server: all replicated groups of a node behind one object.

`Groups` is the engine. It uses no sockets, disks or clocks, and knows nothing of streams. One turn of all groups is

    groups.step(frames); groups.tick(); groups.propose(...)
    ready = groups.ready()          # send ready.frames; write ready.writes, one sync for all of them
    frames = groups.stored(ready.token)   # send them; then call ready() again for new commits

`peer_id` identifies a replica by its node and its incarnation, which counts the replicas of a group on that node. The
engine is TiKV's raft, compiled from Rust; the README of the distribution describes the build.
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

INTERFACE: int = getattr(_engine, "INTERFACE", 0)  # 0: an engine compiled before the interface had a number
NODE_SHIFT = 32


class Role(IntEnum):
    """The role of a peer in its group."""

    FOLLOWER = 0
    CANDIDATE = 1
    LEADER = 2
    PRE_CANDIDATE = 3


class EntryKind(IntEnum):
    """The kinds of entries in a log."""

    EMPTY = 0  # a new leader's first entry
    DATA = 1  # the descriptor of a payload
    CHANGE = 2  # changes of the membership


class Change(IntEnum):
    """One change of a membership."""

    ADD_VOTER = 1  # a learner becomes a voter
    ADD_LEARNER = 2  # a voter becomes a learner
    REMOVE = 3


def peer_id(node: int, incarnation: int = 1) -> int:
    """Return the number of a replica on `node`; a replica that has lost its log returns with the next incarnation."""
    if not 1 <= node < 1 << NODE_SHIFT or not 0 <= incarnation < 1 << NODE_SHIFT:
        raise ValueError(f"node {node}, incarnation {incarnation}: the node starts at 1, both have 32 bits")
    return node << NODE_SHIFT | incarnation


def node_of(peer: int) -> int:
    """Return the node of a replica."""
    return peer >> NODE_SHIFT
