"""Answers of the API from the metadata, and the servers that must be asked for the rest.

Names come from the metadata. A list needs the state of each stream, which only the leader of the stream has. So the
plan lists the streams that this server reports, those to request from other servers, and those that cannot be
reported now.

Source: order and pages as nats-server 2.15.1 answers, tests/conformance/test_cluster_jetstream.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyjs.jetstream import errcodes
from pyjs.subjects.tokens import subjects_overlap

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyjs.jetstream.cluster.assignments import Assignment
    from pyjs.jetstream.cluster.state import MetaState


@dataclass(slots=True)
class ListPlan:
    """The plan for one page of a list; every name of the page is in exactly one of its fields."""

    here: list[str] = field(default_factory=list)
    # by server: names that this server can report
    elsewhere: dict[int, list[str]] = field(default_factory=dict)
    # no server can report these: no leader, or the leader is unreachable
    missing: list[str] = field(default_factory=list)
    offline: dict[str, str] = field(default_factory=dict)  # streams that this server cannot serve -> reason


def require_leader(leader: int) -> None:
    """Refuse a create, delete, names, list or account info request if the metadata has no leader.

    `leader` is the node number of the leader of the metadata, or 0.

    Raises:
        ApiError: there is no leader (error code 10008).
    """
    errcodes.CLUSTER_NOT_AVAILABLE.raise_if(not leader)


def matching(state: MetaState, account: str, subject: str) -> list[Assignment]:
    """Return the streams of an account with a subject that overlaps `subject` ("": all streams), sorted by name."""
    streams = sorted(state.accounts.get(account, ()), key=lambda each: each.name)
    if not subject:
        return streams
    raw = subject.encode()
    return [each for each in streams if any(subjects_overlap(s.encode(), raw) for s in each.config.subjects)]


def list_plan(
    streams: list[Assignment], me: int, leaders: Mapping[int, int], online: Collection[int]
) -> ListPlan:
    """Return the plan to report `streams` from this server, node `me`.

    `leaders` maps each group to the node number of its leader, if that is known. `online` are the reachable nodes. A
    stream with one replica has no group; the server that holds the stream counts as its leader.
    """
    plan = ListPlan()
    for stream in streams:
        leader = stream.nodes[0] if len(stream.nodes) == 1 else leaders.get(stream.group, 0)
        if stream.stored.offline:
            plan.offline[stream.name] = stream.stored.offline
        elif leader == me:
            plan.here.append(stream.name)
        elif leader in online:
            plan.elsewhere.setdefault(leader, []).append(stream.name)
        else:
            plan.missing.append(stream.name)
    return plan
