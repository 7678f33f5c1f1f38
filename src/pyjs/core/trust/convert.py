"""Conversion of claims to the options and permissions that the rest of the server uses.

`account_token` checks the token of an account and converts its claims; it runs in a thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyjs.claims.account import account_issues, account_of
from pyjs.claims.exchange import STREAM, activation_of
from pyjs.claims.fields import are_blocking
from pyjs.claims.token import decode
from pyjs.config.exchange.declared import (
    SINGLETON,
    THRESHOLD_NS,
    Activation,
    Latency,
    MapDestination,
    ServiceExport,
    ServiceImport,
    StreamExport,
    StreamImport,
    SubjectMapping,
)
from pyjs.config.exchange.read import mapping_fault
from pyjs.config.options import (
    NS_PER_S,
    AccountJetStreamOptions,
    AccountLimits,
    AccountOptions,
    TraceDest,
)
from pyjs.core.auth.permissions import Permissions, ResponsePermission
from pyjs.subjects.tokens import is_valid_subject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyjs.claims.account import AccountClaims, JetStreamClaims, TraceClaims
    from pyjs.claims.exchange import Export, Import, MappedTo
    from pyjs.claims.user import PermissionLists

TIER = "R1"  # the tier of streams with one replica; no other tier is used
RESPONSES_MAX, RESPONSES_NS = 1, 120 * NS_PER_S  # used where the claims have 0
INT32_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class AccountToken:
    """The decoded token of an account."""

    text: str
    claims: AccountClaims
    options: AccountOptions
    is_valid: bool  # at the time of decoding


def account_token(text: str, now_s: int) -> AccountToken:
    """Decode and check the token of an account; `now_s` is the wall time in seconds.

    Raises:
        TokenFault: `text` is not the token of an account.
    """
    claims = account_of(decode(text))
    is_valid = not are_blocking(account_issues(claims, now_s), times=True)
    return AccountToken(text, claims, account_options(claims, with_exchange=is_valid), is_valid)


def permissions_of(lists: PermissionLists) -> Permissions | None:
    """Return the permissions in claims, or None if everything is allowed."""
    if lists.is_empty:
        return None
    responses = None
    if lists.responses is not None:
        most, lifetime_ns = lists.responses
        responses = ResponsePermission(most or RESPONSES_MAX, lifetime_ns or RESPONSES_NS)
    return Permissions(
        # A user with permission to answer requests may not publish other subjects, unless they are listed.
        publish_allow=lists.publish_allow or (None if responses is None else ()),
        publish_deny=lists.publish_deny,
        subscribe_allow=lists.subscribe_allow or None,
        subscribe_deny=lists.subscribe_deny,
        responses=responses,
    )


def limit_of(claimed: int) -> int:
    """Return a claimed limit, capped at INT32_MAX, or -1 for no limit."""
    return max(-1, min(claimed, INT32_MAX))


def account_options(claims: AccountClaims, *, with_exchange: bool = True) -> AccountOptions:
    """Return the options of the account that the claims describe.

    Exports, imports, mappings and the trace destination are included only if `with_exchange` is true. The claims must
    then be valid.
    """
    limits = claims.limits
    options = AccountOptions(
        claims.head.subject,
        jetstream=_jetstream(claims) if limits.has_jetstream else None,
        limits=AccountLimits(limit_of(limits.connections), limit_of(limits.subs), limit_of(limits.payload)),
    )
    if with_exchange:
        options.exports = tuple(_export(each) for each in claims.exports)
        options.imports = tuple(_import(each) for each in claims.imports)
        options.mappings = _mappings(claims.mappings)
        options.msg_trace = None if claims.trace is None else _trace_dest(claims.trace)
    return options


def _trace_dest(trace: TraceClaims) -> TraceDest | None:
    """Return the destination of traces, or None if its subject is invalid."""
    subject = trace.subject.encode()
    return TraceDest(trace.subject, trace.sampling) if is_valid_subject(subject) else None


def _export(claimed: Export) -> StreamExport | ServiceExport:
    if claimed.kind == STREAM:
        return StreamExport(
            claimed.subject,
            account_token_position=max(0, claimed.account_token_position),
            activation_required=claimed.token_required,
            revocations=claimed.revocations,
        )
    return ServiceExport(
        claimed.subject,
        account_token_position=max(0, claimed.account_token_position),
        response_type=claimed.response_type or SINGLETON,
        response_threshold_ns=claimed.response_threshold_ns or THRESHOLD_NS,
        latency=None if claimed.latency is None else Latency(claimed.latency[1], claimed.latency[0]),
        allow_trace=claimed.allow_trace,
        activation_required=claimed.token_required,
        revocations=claimed.revocations,
    )


def _import(claimed: Import) -> StreamImport | ServiceImport:
    activation = _activation(claimed.token) if claimed.token else None
    subject, to = claimed.subject, claimed.local_subject
    if claimed.kind == STREAM:
        if claimed.to:  # in older tokens, `to` is a prefix
            to = f"{claimed.to.removesuffix('.')}.{subject}"
        return StreamImport(claimed.account, subject, to, claimed.allow_trace, activation)
    if claimed.to and not to:  # in older tokens, `to` is the subject in the exporting account
        subject, to = claimed.to, subject
    return ServiceImport(claimed.account, subject, to, claimed.share, activation)


def _activation(text: str) -> Activation:
    claims = activation_of(decode(text))
    head = claims.head
    return Activation(
        head.subject, head.issuer, claims.issuer_account, head.issued_at, head.not_before, head.expires
    )


def _mappings(claimed: Mapping[str, tuple[MappedTo, ...]]) -> tuple[SubjectMapping, ...]:
    """Return the valid mappings; as in nats-server, invalid ones have no effect."""
    found = []
    for source, given in claimed.items():
        destinations = tuple(MapDestination(each.subject, each.weight) for each in given if not each.cluster)
        if is_valid_subject(source.encode()) and not mapping_fault(source, destinations):
            found.append(SubjectMapping(source, destinations))
    return tuple(found)


def _jetstream(claims: AccountClaims) -> AccountJetStreamOptions:
    limits = claims.limits
    tiers = dict(limits.tiers)
    if not tiers:
        return _jetstream_options(limits.jetstream)
    found = _jetstream_options(tiers[TIER]) if TIER in tiers else AccountJetStreamOptions(0, 0)
    found.tiers = tuple(tiers)
    return found


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
