"""Exports, imports and mappings of accounts as declarations.

A declaration is plain data, which was read from the configuration file or from the token of an account. This module
knows nothing of running accounts; core.exchange applies declarations to them.

Source: nats.docs "Accounts".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from pyjs.subjects.local_subject import LocalSubject, numbered, of_service_import, of_stream_import
from pyjs.subjects.tokens import is_subset

if TYPE_CHECKING:
    from typing import TypeAlias

NS_PER_S = 1_000_000_000
THRESHOLD_NS = 120 * NS_PER_S  # default time limit of a response
ANY = "*"  # in revocations: stands for every importer
SINGLETON, STREAM, CHUNKED = "Singleton", "Stream", "Chunked"  # response types


@dataclass(frozen=True, slots=True)
class Activation:
    """The permission to import a private export, signed by a key of the exporting account.

    Times are in seconds since the epoch.
    """

    importer: str
    issuer: str
    issuer_account: str = ""  # "": the issuer is the exporting account itself
    issued_at: int = 0
    not_before: int = 0
    expires: int = 0  # 0: never

    def is_valid(self, now_s: int) -> bool:
        """Return whether the activation is valid at `now_s`."""
        return self.not_before <= now_s and not 0 < self.expires <= now_s


@dataclass(frozen=True, slots=True)
class StreamExport:
    """Subjects whose messages other accounts may receive."""

    subject: str
    accounts: tuple[str, ...] = ()  # accounts that may import the subjects; empty: every account
    account_token_position: int = 0  # position of the importer's name in the subject, from 1; 0: none
    activation_required: bool = False  # importers need an activation token
    # By importer or ANY: the time in seconds up to which issued activation tokens are revoked.
    revocations: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Latency:
    """The options for the latency measurement of a service."""

    subject: str  # subject of the samples, in the exporting account
    sampling: int = 100  # percent of the requests; 0: only requests with a tracing header


@dataclass(frozen=True, slots=True)
class ServiceExport:
    """Subjects to which other accounts may send requests."""

    subject: str
    accounts: tuple[str, ...] = ()
    account_token_position: int = 0
    response_type: str = SINGLETON
    response_threshold_ns: int = THRESHOLD_NS
    latency: Latency | None = None
    allow_trace: bool = False  # traces continue into the exporting account
    activation_required: bool = False
    revocations: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class StreamImport:
    """Subjects of another account whose messages are delivered to the subscribers in this account."""

    account: str
    subject: str
    to: str = ""  # the subject in this account, with $1 for the first `*` of `subject`; "": the same
    allow_trace: bool = False  # traces continue into this account
    activation: Activation | None = None

    def local(self) -> LocalSubject:
        """Return the subject in the importing account.

        Raises:
            TransformError: `subject` cannot be mapped to `to`.
        """
        return of_stream_import(self.subject, self.to or self.subject)


@dataclass(frozen=True, slots=True)
class ServiceImport:
    """Subjects of this account whose messages are sent as requests to another account."""

    account: str
    subject: str
    to: str = ""  # the subject in this account; "": the same
    share: bool = False  # the service gets the client's user and address
    activation: Activation | None = None

    def local(self) -> LocalSubject:
        """Return the subject in the importing account.

        Raises:
            TransformError: `subject` cannot be mapped to `to`.
        """
        return of_service_import(self.subject, self.to or self.subject)


@dataclass(frozen=True, slots=True)
class MapDestination:
    """One destination of a mapping."""

    subject: str
    weight: int = 100  # percent


@dataclass(frozen=True, slots=True)
class SubjectMapping:
    """A mapping of the subjects of published messages.

    If the weights sum to less than 100, the remaining percentage of the messages keeps the published subject.
    """

    source: str
    destinations: tuple[MapDestination, ...]

    def weighted(self) -> list[tuple[str, int]]:
        """Return the subject and the weight of each destination.

        If the weights sum to less than 100, `source` is added with the remaining weight, unless it is a destination.
        """
        found = [(each.subject, each.weight) for each in self.destinations]
        rest = 100 - sum(weight for _, weight in found)
        if rest and self.source not in [subject for subject, _ in found]:
            found.append((numbered(self.source), rest))
        return found


Declared = TypeVar("Declared", "StreamExport", "ServiceExport", "StreamImport", "ServiceImport")


def without_rules(declared: Declared) -> Declared:
    """Return a copy of an export or import in which the fields that only `Check` uses have their defaults."""
    if isinstance(declared, StreamImport | ServiceImport):
        return replace(declared, activation=None)
    return replace(declared, accounts=(), account_token_position=0, activation_required=False, revocations=())


Export: TypeAlias = "StreamExport | ServiceExport"
Import: TypeAlias = "StreamImport | ServiceImport"


@dataclass(frozen=True, slots=True)
class Exchange:
    """The exports, imports and mappings that one account declares."""

    exports: tuple[Export, ...] = ()
    imports: tuple[Import, ...] = ()
    mappings: tuple[SubjectMapping, ...] = ()
    # the keys, in addition to the account's own, that may sign its activation tokens
    signers: frozenset[str] = frozenset()

    def stream_imports(self) -> list[StreamImport]:
        """Return the stream imports."""
        return [each for each in self.imports if isinstance(each, StreamImport)]

    def service_imports(self) -> list[ServiceImport]:
        """Return the service imports."""
        return [each for each in self.imports if isinstance(each, ServiceImport)]

    def export_of(self, wanted: Import) -> Export | None:
        """Return the export for the import `wanted`, or None if there is none.

        This is the export of the same kind and subject. If there is none, it is the first export of the same kind
        that covers the subject.
        """
        kind = StreamExport if isinstance(wanted, StreamImport) else ServiceExport
        exports = [each for each in self.exports if isinstance(each, kind)]
        for export in exports:
            if export.subject == wanted.subject:
                return export
        for export in exports:
            if is_subset(wanted.subject.encode(), export.subject.encode()):
                return export
        return None
