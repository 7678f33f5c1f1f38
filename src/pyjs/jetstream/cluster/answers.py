"""What the API answers from the metadata alone, and whom it must ask for the rest.

Names come from the metadata. A list needs the state of each stream, which its leader has: the plan says which streams
are here, which are to be asked for where, and which cannot be reported now.

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
    """How one page of a list is made; every name of the page is in exactly one place."""

    here: list[str] = field(default_factory=list)
    elsewhere: dict[int, list[str]] = field(default_factory=dict)  # names by the server to ask
    missing: list[str] = field(default_factory=list)  # no leader, or its server cannot be reached
    offline: dict[str, str] = field(default_factory=dict)  # this cluster cannot serve them; the reasons


def require_leader(leader: int) -> None:
    """Refuse a request if the metadata has no leader: creates, deletes, names, lists and the info of an account.

    nats-server refuses so about ten seconds after the leader was lost and does not answer before; the info of a
    stream it answers from a replica, without a leader.

    Raises:
        ApiError: 10008.
    """
    errcodes.CLUSTER_NOT_AVAILABLE.raise_if(not leader)


def matching(state: MetaState, account: str, subject: str) -> list[Assignment]:
    """Return the streams of an account that match `subject` ("": all), in the order of their names."""
    streams = sorted(state.accounts.get(account, ()), key=lambda each: each.name)
    if not subject:
        return streams
    raw = subject.encode()
    return [each for each in streams if any(subjects_overlap(s.encode(), raw) for s in each.config.subjects)]


def list_plan(
    streams: list[Assignment], me: int, leaders: Mapping[int, int], online: Collection[int]
) -> ListPlan:
    """Return how to report `streams`; `leaders` has the server that leads each group, as far as it is known here.

    The only replica of a stream leads without a group.
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
