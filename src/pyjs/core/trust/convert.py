"""Claims as the options and permissions that the rest of the server uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.config.options import (
    NS_PER_S,
    AccountJetStreamOptions,
    AccountLimits,
    AccountOptions,
)
from pyjs.core.auth.permissions import Permissions, ResponsePermission

if TYPE_CHECKING:
    from pyjs.claims.account import AccountClaims, JetStreamClaims
    from pyjs.claims.user import PermissionLists

TIER = "R1"  # of streams with one replica: the only ones
RESPONSES_MAX, RESPONSES_NS = 1, 120 * NS_PER_S  # where the claims have 0
INT32_MAX = (1 << 31) - 1


def permissions_of(lists: PermissionLists) -> Permissions | None:
    """Return the permissions in claims; None: everything is allowed."""
    if lists.is_empty:
        return None
    responses = None
    if lists.responses is not None:
        most, lifetime_ns = lists.responses
        responses = ResponsePermission(most or RESPONSES_MAX, lifetime_ns or RESPONSES_NS)
    return Permissions(
        # With permission to answer, nothing else may be published unless it is listed.
        publish_allow=lists.publish_allow or (None if responses is None else ()),
        publish_deny=lists.publish_deny,
        subscribe_allow=lists.subscribe_allow or None,
        subscribe_deny=lists.subscribe_deny,
        responses=responses,
    )


def limit_of(claimed: int) -> int:
    """Return a limit of 32 bits; -1: none."""
    return max(-1, min(claimed, INT32_MAX))


def account_options(claims: AccountClaims) -> AccountOptions:
    """Return limits and JetStream of an account."""
    limits = claims.limits
    return AccountOptions(
        claims.head.subject,
        jetstream=_jetstream(claims) if limits.has_jetstream else None,
        limits=AccountLimits(limit_of(limits.connections), limit_of(limits.subs), limit_of(limits.payload)),
    )


def _jetstream(claims: AccountClaims) -> AccountJetStreamOptions:
    limits = claims.limits
    tiers = dict(limits.tiers)
    if not tiers:
        return _jetstream_options(limits.jetstream)
    # Without a tier for them, there may be no streams.
    return _jetstream_options(tiers[TIER]) if TIER in tiers else AccountJetStreamOptions(0, 0)


def _jetstream_options(claims: JetStreamClaims) -> AccountJetStreamOptions:
    return AccountJetStreamOptions(
        max_memory=max(-1, claims.memory),
        max_storage=max(-1, claims.disk),
        max_streams=claims.streams if claims.streams > 0 else -1,
        max_consumers=claims.consumers if claims.consumers > 0 else -1,
        max_bytes_required=claims.max_bytes_required,
        mem_max_stream_bytes=claims.memory_max_stream if claims.memory_max_stream > 0 else -1,
        disk_max_stream_bytes=claims.disk_max_stream if claims.disk_max_stream > 0 else -1,
        max_ack_pending=claims.max_ack_pending if claims.max_ack_pending > 0 else -1,
    )
