"""The consensus engine, a separate package; only this module imports it.

Importing this module raises EngineMissing if the package is not installed or has another interface. raft/README.md
describes the sizes and rules of the package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyjs.consensus.log.records import Membership

REMEDY = 'install it with pip install "pyjs-server[cluster]", or with make cluster in a checkout'
INTERFACE = 1  # number of the engine's interface that this code can use


class EngineMissing(ImportError):
    """Raised if the package pyjs-raft is missing or has another interface; the message states how to install it."""


try:
    from pyjs_raft import INTERFACE as _FOUND
    from pyjs_raft import (
        Change,
        Conf,
        EntryKind,
        FrameError,
        Groups,
        Point,
        Quarantined,
        RaftError,
        Ready,
        Refused,
        Role,
        Status,
        UnknownGroup,
        Write,
        node_of,
        payloads_of,
        peer_id,
    )
except ImportError as error:
    raise EngineMissing(f"the consensus engine (pyjs-raft) is missing: {REMEDY} ({error})") from error
if _FOUND != INTERFACE:
    age = "older" if _FOUND < INTERFACE else "newer"
    raise EngineMissing(
        f"the consensus engine (pyjs-raft) is {age} than this server (interface {_FOUND}, not {INTERFACE}): {REMEDY}"
    )


def incarnation_of(peer: int) -> int:
    """Return the incarnation that is part of a peer's number; the first replica of a group on a node has 1."""
    return peer & 0xFFFFFFFF


def voters_of(conf: Conf) -> set[int]:
    """Return the peers that vote; in a joint membership, those of both sets."""
    return {*conf.voters, *conf.outgoing}


def conf_of(stored: Membership) -> Conf:
    """Return a stored membership as the engine's type `Conf`."""
    voters, learners, outgoing, next_learners, auto_leave = stored
    return Conf(list(voters), list(learners), list(outgoing), list(next_learners), auto_leave)


__all__ = [
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
    "conf_of",
    "incarnation_of",
    "node_of",
    "payloads_of",
    "peer_id",
    "voters_of",
]
