"""/raftz: the replicated groups of this server.

Only a server in a JetStream cluster has groups. Without `acc` those of the system account are shown: the metadata.

Source: monitoring section of nats.docs; texts as on nats-server 2.15.1, tests/conformance/test_cluster_answers.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.monitor.json_text import JsonDict
    from pyjs.monitor.state import Monitored

NO_NODES = "No Raft nodes registered"


def has_groups(monitored: Monitored) -> bool:
    """Return whether this server has replicated groups."""
    jetstream = monitored.node.jetstream
    return jetstream is not None and jetstream.shared.member is not None


def raftz(monitored: Monitored, account: str, group: str) -> Generator[None, None, JsonDict]:
    """Return the groups of an account by account and name, or one of them, in steps; empty: there is none."""
    jetstream = monitored.node.jetstream
    member = None if jetstream is None else jetstream.shared.member
    if member is None:
        return {}
    wanted = account or monitored.options.system_account
    found = yield from member.groups.of_account(wanted, group)
    return {wanted: found} if found else {}
