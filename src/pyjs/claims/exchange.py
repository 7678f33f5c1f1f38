"""Exports, imports and mappings in the claims of an account, and the activation tokens of private imports."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING

from pyjs.claims.fields import (
    Head,
    Issue,
    block,
    blocks,
    flag,
    head_of,
    number,
    numbers,
    text,
)
from pyjs.claims.subjects import (
    has_wildcards,
    is_contained,
    renaming_issues,
    subject_issues,
    without_references,
)
from pyjs.claims.token import TokenFault, decode
from pyjs.wire.nkeys import ACCOUNT, public_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyjs.claims.fields import Map
    from pyjs.claims.token import Token

STREAM, SERVICE = "stream", "service"
RESPONSES = ("", "Singleton", "Stream", "Chunked")
WHOLE = 100  # percent
DECLARED_MAX = 2048  # exports, imports or mappings of one account
COMPARED_MAX = 512  # subjects that are compared with each other


@dataclass(frozen=True, slots=True)
class Export:
    """A stream or service that other accounts may import."""

    subject: str
    kind: str  # STREAM or SERVICE; "": not given
    name: str = ""
    token_required: bool = False  # an importing account needs an activation token
    # (account, time): activation tokens issued up to this time are revoked
    revocations: tuple[tuple[str, int], ...] = ()
    response_type: str = ""
    response_threshold_ns: int = 0
    # (sampling in percent, or 0 for requests with a header; subject of the samples)
    latency: tuple[int, str] | None = None
    account_token_position: int = 0
    advertise: bool = False
    allow_trace: bool = False


@dataclass(frozen=True, slots=True)
class Import:
    """A stream or service that an account imports from another account."""

    subject: str
    account: str
    kind: str  # STREAM or SERVICE; "": not given
    name: str = ""
    token: str = ""  # an activation token
    to: str = ""  # the subject in the importing account, in older tokens
    local_subject: str = ""
    share: bool = False
    allow_trace: bool = False


@dataclass(frozen=True, slots=True)
class MappedTo:
    """One destination of a mapping."""

    subject: str
    weight: int = WHOLE  # percent
    cluster: str = ""  # name of the cluster in which the mapping applies; "": all clusters


@dataclass(frozen=True, slots=True)
class ActivationClaims:
    """The permission for one account to import a private export."""

    head: Head
    subject: str
    kind: str
    issuer_account: str = ""

    @property
    def account(self) -> str:
        """The public key of the exporting account."""
        return self.issuer_account or self.head.issuer


def activation_of(token: Token) -> ActivationClaims:
    """Return the claims of an activation token.

    Raises:
        TokenFault: the token is of another kind, or a claim has the wrong type.
    """
    if token.kind != "activation":
        raise TokenFault("not activation claim")
    nats = token.nats
    return ActivationClaims(
        head_of(token), text(nats, "subject"), _kind(nats, "kind"), text(nats, "issuer_account")
    )


def read_exports(fields: Map) -> tuple[Export, ...]:
    """Return the exports in the claims of an account.

    Raises:
        TokenFault: a claim has the wrong type.
    """
    return tuple(_read_export(each) for each in blocks(fields, "exports"))


def read_imports(fields: Map) -> tuple[Import, ...]:
    """Return the imports in the claims of an account.

    Raises:
        TokenFault: a claim has the wrong type.
    """
    return tuple(
        Import(
            text(each, "subject"),
            text(each, "account"),
            _kind(each, "type"),
            text(each, "name"),
            text(each, "token"),
            text(each, "to"),
            text(each, "local_subject"),
            flag(each, "share"),
            flag(each, "allow_trace"),
        )
        for each in blocks(fields, "imports")
    )


def read_mappings(fields: Map) -> dict[str, tuple[MappedTo, ...]]:
    """Return the mappings in the claims of an account: the destinations by source subject.

    Raises:
        TokenFault: a claim has the wrong type.
    """
    given = block(fields, "mappings")
    return {
        source: tuple(
            MappedTo(text(each, "subject"), number(each, "weight") or WHOLE, text(each, "cluster"))
            for each in blocks(given, source)
        )
        for source in given
    }


def _kind(fields: Map, name: str) -> str:
    kind = text(fields, name)
    if name in fields and kind not in (STREAM, SERVICE):
        raise TokenFault(f'unknown export type "{kind}"')
    return kind


def _read_export(fields: Map) -> Export:
    latency = None
    if fields.get("service_latency") is not None:
        given = block(fields, "service_latency")
        by_headers = str(given.get("sampling", "")).lower() == "headers"
        latency = 0 if by_headers else number(given, "sampling"), text(given, "results")
    return Export(
        text(fields, "subject"),
        _kind(fields, "type"),
        text(fields, "name"),
        flag(fields, "token_req"),
        tuple(numbers(fields, "revocations").items()),
        text(fields, "response_type"),
        number(fields, "response_threshold"),
        latency,
        number(fields, "account_token_position"),
        flag(fields, "advertise"),
        flag(fields, "allow_trace"),
    )


# Issues


def export_issues(exports: tuple[Export, ...]) -> list[Issue]:
    """Return the issues in the exports of an account."""
    if len(exports) > DECLARED_MAX:
        return [Issue(f"the account contains more than {DECLARED_MAX} exports")]
    issues = [issue for export in exports for issue in _issues_of_export(export)]
    for kind, subjects in (
        (SERVICE, [each.subject for each in exports if each.kind == SERVICE]),
        (STREAM, [each.subject for each in exports if each.kind != SERVICE]),
    ):
        issues += _covered(kind, subjects)
    return issues


def _covered(kind: str, subjects: list[str]) -> list[Issue]:
    """Return an issue for each subject that covers another subject.

    If there are more than COMPARED_MAX subjects, only equal subjects are found.
    """
    found: dict[str, str] = {}
    if len(subjects) > COMPARED_MAX:
        found = {subject: subject for subject, count in Counter(subjects).items() if count > 1}
    else:
        for inner, outer in permutations(subjects, 2):
            if outer not in found and is_contained(inner, outer):
                found[outer] = inner
    return [Issue(f'{kind} export subject "{key}" already exports "{inner}"') for key, inner in found.items()]


def _issues_of_export(export: Export) -> list[Issue]:
    issues: list[Issue] = []
    is_service = export.kind == SERVICE
    if not export.kind:
        issues.append(Issue('invalid export type: "unknown"'))
    if is_service and export.response_type not in RESPONSES:
        issues.append(Issue(f'invalid response type for service: "{export.response_type}"'))
    if export.kind == STREAM and export.response_type:
        issues.append(Issue(f'invalid response type for stream: "{export.response_type}"'))
    if export.kind == STREAM and export.allow_trace:
        issues.append(Issue("AllowTrace only valid for service export"))
    issues += _issues_of_latency(export)
    if export.response_threshold_ns < 0:
        issues.append(Issue("negative response threshold is invalid"))
    if export.response_threshold_ns > 0 and not is_service:
        issues.append(Issue("response threshold only valid for services"))
    return issues + subject_issues(export.subject) + _issues_of_position(export)


def _issues_of_latency(export: Export) -> list[Issue]:
    if export.latency is None:
        return []
    sampling, results = export.latency
    issues = [] if export.kind == SERVICE else [Issue("latency tracking only permitted for services")]
    if sampling and not 1 <= sampling <= 100:
        issues.append(Issue("sampling percentage needs to be between 1-100"))
    issues += subject_issues(results)
    if has_wildcards(results):
        issues.append(Issue("results subject can not contain wildcards"))
    return issues


def _issues_of_position(export: Export) -> list[Issue]:
    position, subject = export.account_token_position, export.subject
    if position <= 0:
        return []
    if not has_wildcards(subject):
        return [Issue(f"Account Token Position can only be used with wildcard subjects: {subject}")]
    tokens = subject.split(".")
    if position > len(tokens):
        return [Issue(f"Account Token Position {position} exceeds length of subject '{subject}'")]
    token = tokens[position - 1]
    if token != "*":
        text = f"Account Token Position {position} matches '{token}' but must match a * in: {subject}"
        return [Issue(text)]
    return []


def mapping_issues(mappings: Mapping[str, tuple[MappedTo, ...]]) -> list[Issue]:
    """Return the issues in the mappings of an account."""
    if len(mappings) > DECLARED_MAX:
        return [Issue(f"the account contains more than {DECLARED_MAX} mappings")]
    issues: list[Issue] = []
    for source, destinations in mappings.items():
        issues += subject_issues(source)
        totals: dict[str, int] = {}
        for each in destinations:
            issues += subject_issues(each.subject)
            if each.weight > WHOLE:
                issues.append(Issue(f'Mapping "{source}" has a weight {each.weight} that exceeds 100'))
            totals[each.cluster] = totals.get(each.cluster, 0) + each.weight
            if each.cluster and totals[each.cluster] > WHOLE:
                where = f'in cluster "{each.cluster}"'
                issues.append(
                    Issue(f'Mapping "{source}" {where} exceeds 100% among all of it\'s weighted to mappings')
                )
        if totals.get("", 0) > WHOLE:
            issues.append(Issue(f'Mapping "{source}" exceeds 100% among all of it\'s weighted to mappings'))
    return issues


def import_issues(imports: tuple[Import, ...], account: str) -> list[Issue]:
    """Return the issues in the imports of `account`."""
    if len(imports) > DECLARED_MAX:
        return [Issue(f"the account contains more than {DECLARED_MAX} imports")]
    issues: list[Issue] = []
    seen: dict[str, list[str]] = {}
    for each in imports:
        if each.kind == SERVICE:
            subject = each.to or without_references(each.local_subject) or each.subject
            others = seen.setdefault(each.account, [])
            for other in others[:COMPARED_MAX]:
                if is_contained(subject, other) or is_contained(other, subject):
                    text = f'overlapping subject namespace for "{subject}" and "{other}"'
                    issues.append(Issue(f'{text} in same account "{each.account}"'))
            others.append(subject)
        issues += _issues_of_import(each, account)
    return issues


def _issues_of_import(given: Import, account: str) -> list[Issue]:
    issues: list[Issue] = []
    if not given.kind:
        issues.append(Issue('invalid import type: "unknown"'))
    if given.kind == SERVICE and given.allow_trace:
        issues.append(Issue("AllowTrace only valid for stream import"))
    if not given.account:
        issues.append(Issue("account to import from is not specified"))
    if given.to:
        issues.append(Issue("the field to has been deprecated (use LocalSubject instead)", False))
    issues += subject_issues(given.subject)
    if given.local_subject:
        issues += renaming_issues(given.local_subject, given.subject)
        if given.to:
            issues.append(Issue("Local Subject replaces To"))
    if given.share and given.kind != SERVICE:
        issues.append(
            Issue(f'sharing information (for latency tracking) is only valid for services: "{given.subject}"')
        )
    return issues + (_issues_of_activation(given, account) if given.token else [])


def _issues_of_activation(given: Import, account: str) -> list[Issue]:
    try:
        activation = activation_of(decode(given.token))
    except TokenFault:
        return [Issue(f'import "{given.subject}" contains an invalid activation token')]
    issues: list[Issue] = []
    if given.account not in (activation.head.issuer, activation.issuer_account):
        issues.append(Issue(f'activation token doesn\'t match account for import "{given.subject}"'))
    if activation.head.subject != account:
        text = f'activation token doesn\'t match account it is being included in, "{given.subject}"'
        issues.append(Issue(text))
    if activation.kind != given.kind:
        text = f"mismatch between token import type {activation.kind} and type of import {given.kind}"
        issues.append(Issue(text))
    issues += subject_issues(activation.subject)
    if activation.issuer_account and public_key(activation.issuer_account, ACCOUNT) is None:
        issues.append(Issue("account_id is not an account public key"))
    subject = given.to if given.kind == SERVICE and given.to else given.subject
    if not is_contained(subject, activation.subject):
        text = (
            f'activation token import subject "{activation.subject}" doesn\'t match import "{given.subject}"'
        )
        issues.append(Issue(text))
    return issues
