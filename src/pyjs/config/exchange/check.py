"""The rules for exports and imports across all accounts: which account may import which subjects.

An import needs an export that covers its subject. A chain of imports must not lead back to an account of the chain.

Source: rules, their order and texts of nats-server 2.15.1 (tests/conformance/test_account_exchange.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyjs.config.exchange.declared import (
    ANY,
    SINGLETON,
    Exchange,
    Export,
    Import,
    Latency,
    ServiceExport,
    ServiceImport,
    StreamExport,
    StreamImport,
)
from pyjs.subjects.tokens import is_subset, is_valid_subject, subject_has_wildcard, subjects_overlap
from pyjs.subjects.transform import TransformError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(slots=True)
class ExchangeProblem:
    """A problem with one export or import of an account."""

    account: str
    kind: str  # "exports" or "imports"
    index: int
    cause: str


@dataclass(slots=True)
class Check:
    """A check of the exports and imports of all accounts.

    It keeps the accepted imports, so that single accounts can be checked again later.
    """

    declared: Mapping[str, Exchange]
    now_s: int = 0  # time at which activation tokens must be valid, in seconds since the epoch
    # Accepted imports by account, in the order of the check; the search for cycles uses these.
    streams: dict[str, list[StreamImport]] = field(default_factory=dict)
    services: dict[str, list[ServiceImport]] = field(default_factory=dict)

    def run(self) -> list[ExchangeProblem]:
        """Check all accounts and return the problems; all exports are checked before the first import."""
        problems = []
        for name, exchange in self.declared.items():
            faults = [self.export_fault(name, each) for each in exchange.exports]
            problems += _problems(name, "exports", faults)
        for name, exchange in self.declared.items():
            faults = [self.accept(name, each) for each in exchange.imports]
            problems += _problems(name, "imports", faults)
        return problems

    def forget(self, name: str) -> None:
        """Discard the accepted imports of the account `name`, so that they can be checked again."""
        self.streams.pop(name, None)
        self.services.pop(name, None)

    def export_fault(self, name: str, export: Export) -> str:
        """Return the reason why an export of the account `name` is invalid, or "" if it is valid."""
        kind = "stream" if isinstance(export, StreamExport) else "service"
        for account in export.accounts:
            if account not in self.declared:
                return f'"{account}" account not defined for {kind} export'
        position = export.account_token_position
        tokens = export.subject.split(".")
        if not is_valid_subject(export.subject.encode()) or (
            position and (position > len(tokens) or tokens[position - 1] != "*")
        ):
            return f'Error adding {kind} export "{export.subject}": sublist: invalid subject'
        if isinstance(export, ServiceExport) and export.latency is not None:
            return self.latency_fault(name, export, export.latency)
        return ""

    def latency_fault(self, name: str, export: ServiceExport, latency: Latency) -> str:
        """Return the reason why the latency options of a service export are invalid, or "" if they are valid."""
        results = latency.subject.encode()
        own = [each for each in self.declared[name].exports if isinstance(each, ServiceExport)]
        looped = any(is_subset(results, each.subject.encode()) for each in own)
        start = f'Error adding service latency sampling for "{export.subject}" on subject "{latency.subject}"'
        if not is_valid_subject(results) or subject_has_wildcard(results) or looped:
            return f"{start}: invalid publish subject"
        return "" if export.response_type == SINGLETON else f"{start}: bad service response type"

    def accept(self, name: str, wanted: Import) -> str:
        """Accept an account's import and return "", or return the reason for refusing it."""
        kind = "stream" if isinstance(wanted, StreamImport) else "service"
        exporter = self.declared.get(wanted.account)
        if exporter is None:
            return f'"{wanted.account}" account not defined for {kind} import'
        start = f'Error adding {kind} import "{wanted.subject}": '
        if not is_valid_subject(wanted.subject.encode()):
            return start + (
                "stream import not authorized" if kind == "stream" else "sublist: invalid subject"
            )
        if not authorized(exporter, exporter.export_of(wanted), name, wanted, self.now_s):
            return f"{start}{kind} import not authorized"
        if isinstance(wanted, StreamImport):
            cause = self._stream_fault(name, wanted)
        else:
            cause = self._service_fault(name, wanted)
        return start + cause if cause and not cause.startswith("Duplicate") else cause

    def _stream_fault(self, name: str, wanted: StreamImport) -> str:
        for subject in (wanted.to or wanted.subject, wanted.subject):
            if self._stream_cycle(wanted.account, subject, {name}):
                return "import forms a cycle"
        try:
            wanted.local()
        except TransformError as error:
            return _no_transform("stream", wanted.subject, wanted.to, error)
        accepted = self.streams.setdefault(name, [])
        if any((each.account, each.subject) == (wanted.account, wanted.subject) for each in accepted):
            return "stream import already exists"
        accepted.append(wanted)
        return ""

    def _service_fault(self, name: str, wanted: ServiceImport) -> str:
        local = wanted.to or wanted.subject
        if not is_valid_subject(local.encode()):
            return "sublist: invalid subject"
        try:
            pattern = wanted.local().pattern
        except TransformError as error:
            return _no_transform("service", local, wanted.subject, error)
        if self._service_cycle(wanted.account, pattern, {name}):
            return "import forms a cycle"
        accepted = self.services.setdefault(name, [])
        for each in accepted:
            if each.account == wanted.account and each.local().pattern == pattern:
                return (
                    f'Duplicate service import subject "{local}", previously used in import'
                    f' for account "{each.account}", subject "{each.subject}"'
                )
        accepted.append(wanted)
        return ""

    def _stream_cycle(self, name: str, subject: str, visited: set[str]) -> bool:
        """Return whether an import of `subject` from the account `name` leads back to an account in `visited`.

        The search adds the accounts that it visits to `visited`.
        """
        exports = [each for each in self.declared[name].exports if isinstance(each, StreamExport)]
        if not any(is_subset(subject.encode(), each.subject.encode()) for each in exports):
            return False
        return any(
            each.account in visited or self._stream_cycle(each.account, narrowed, _with(visited, name))
            for each, narrowed in _met(self.streams.get(name, []), subject)
        )

    def _service_cycle(self, name: str, subject: str, visited: set[str]) -> bool:
        for each in self.services.get(name, []):
            if not _collide(subject, each.subject):
                continue
            if each.account in visited:
                return True
            local = each.local().pattern
            narrowed = local if is_subset(local.encode(), subject.encode()) else subject
            if self._service_cycle(each.account, narrowed, _with(visited, name)):
                return True
        return False


def authorized(exporter: Exchange, export: Export | None, importer: str, wanted: Import, now_s: int) -> bool:
    """Return whether `export`, which belongs to `exporter`, permits the account `importer` to import `wanted`.

    Activation tokens must be valid at `now_s`, in seconds since the epoch. If `export` is None, return False.
    """
    if export is None:
        return False
    position, subject = export.account_token_position, wanted.subject
    if position:
        tokens = subject.split(".") if subject != export.subject else []
        return position <= len(tokens) and tokens[position - 1] == importer
    if export.activation_required:
        return wanted.activation is not None and _is_active(exporter, export, importer, wanted, now_s)
    return not export.accounts or importer in export.accounts


def _is_active(exporter: Exchange, export: Export, importer: str, wanted: Import, now_s: int) -> bool:
    """Return whether the activation token of `wanted` has a valid signer, and permits `importer` to import now.

    A token that is revoked, expired or not yet valid does not permit it.
    """
    given = wanted.activation
    assert given is not None
    signed = given.issuer == wanted.account if not given.issuer_account else given.issuer in exporter.signers
    if given.issuer_account not in ("", wanted.account) or given.importer != importer or not signed:
        return False
    revoked = dict(export.revocations)
    return given.is_valid(now_s) and all(
        revoked.get(each, given.issued_at - 1) < given.issued_at for each in (importer, ANY)
    )


def _problems(name: str, kind: str, faults: list[str]) -> list[ExchangeProblem]:
    return [ExchangeProblem(name, kind, index, cause) for index, cause in enumerate(faults) if cause]


def _met(imports: list[StreamImport], subject: str) -> Iterator[tuple[StreamImport, str]]:
    """Yield (import, narrower subject) for each import whose local subject overlaps with `subject`.

    The narrower subject is the local subject if `subject` covers it, and `subject` otherwise.
    """
    for each in imports:
        local = each.local().pattern
        if _collide(subject, local):
            yield each, local if is_subset(local.encode(), subject.encode()) else subject


def _collide(subject: str, other: str) -> bool:
    return subjects_overlap(subject.encode(), other.encode())


def _with(visited: set[str], name: str) -> set[str]:
    """Add `name` to `visited` itself, not to a copy, and return `visited`."""
    visited.add(name)
    return visited


def _no_transform(kind: str, subject: str, to: str, error: TransformError) -> str:
    return f'failed to create mapping transform for {kind} import subject from "{subject}" to "{to}": {error}'
