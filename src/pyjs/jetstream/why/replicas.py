"""The reason why the replica of a stream on this server is not current."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyjs.jetstream.cluster.assignments import Assignment
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.member.member_node import MemberNode

LEADERLESS = "group node unhealthy"
CATCHING_UP = "stream catching up"  # also of a restarted replica, until it has had all committed entries
IN_DOUBT = (
    "in doubt after a power cut, waiting for {}:"
    " if that is lost, request SERVER.ACCEPT_LOSS (docs/cluster.md)"
)


def why_not_current(member: MemberNode, accounts: Mapping[str, JetStream], assigned: Assignment) -> str:
    """Return the reason why the replica of a stream on this server is not current, or "" if it is current.

    A consumer is in the group of its stream, so the same reason applies to it.
    """
    engine = accounts.get(assigned.account)
    stream = None if engine is None else engine.streams.get(assigned.name)
    if assigned.stored.offline:
        return assigned.stored.offline
    if stream is None:
        return member.trouble(assigned) or "stream not found"
    machine = None if member.replicated is None else member.replicated.machine_of(stream)
    if machine is None:
        missing = "group node missing" if assigned.config.num_replicas > 1 else ""
        return member.trouble(assigned) or missing
    if missing := member.missing(machine.group):
        return IN_DOUBT.format(missing)
    if machine.waits:
        return machine.waits
    if machine.catch_up is not None:
        return CATCHING_UP
    if machine.is_damaged:
        return "stream repairing damaged messages"
    is_led = machine.leader in member.online or machine.leader == member.node
    if not is_led or machine.replica.stopped is not None:
        return LEADERLESS
    return member.trouble(assigned) or ("" if machine.is_confirmed() else CATCHING_UP)
