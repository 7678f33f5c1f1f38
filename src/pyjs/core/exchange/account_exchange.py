"""The active imports of one account, which can change while clients are connected.

`apply` replaces the imports and subject mappings of an account; it may be called for any account between two
turns. A removed import delivers no more messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.config.exchange.declared import Exchange, ServiceExport, ServiceImport, without_rules
from pyjs.core.exchange.info import Describer
from pyjs.core.exchange.latency import Meter, Tracked
from pyjs.core.exchange.responses import Responses, ServiceCalls
from pyjs.core.exchange.service import ServiceSink
from pyjs.core.exchange.stream_imports import StreamImports
from pyjs.subjects.mappings import Destinations, Mappings
from pyjs.subjects.rewrite import Rewrite
from pyjs.subjects.sublist import Subscription
from pyjs.subjects.tokens import subject_matches
from pyjs.subjects.transform import SubjectTransform

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyjs.base.rng import Rng
    from pyjs.config.exchange.declared import StreamImport, SubjectMapping
    from pyjs.core.account import Account
    from pyjs.core.host import Host

# maximum number of noted requests, which end when their client stops waiting; others end at the threshold
MEASURED_MAX = 65536


class AccountExchange:
    """The active imports of one account."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self._streams = StreamImports(account.name)
        self._services: dict[tuple[ServiceImport, ServiceExport], tuple[ServiceSink, Subscription]] = {}
        self._last_sid = 0
        # Reply subject -> (calls, token, sample) of measured requests.
        self._measured: dict[bytes, tuple[ServiceCalls, bytes, Tracked]] = {}

    def subscribed(self, sub: Subscription) -> None:
        """Handle a new subscription of the account."""
        self._streams.subscribed(sub)

    def unsubscribed(self, sub: Subscription) -> None:
        """Handle the end of a subscription of the account."""
        self._streams.unsubscribed(sub)
        if self._measured:
            self._lose(sub.subject)

    def note_measured(self, reply: bytes, calls: ServiceCalls, token: bytes, tracked: Tracked) -> None:
        """Store a measured request, so that the measurement ends if the client unsubscribes from `reply`.

        If too many measured requests are stored, do nothing.
        """
        if len(self._measured) >= MEASURED_MAX:
            self._measured = {key: each for key, each in self._measured.items() if not each[2].done}
        if len(self._measured) < MEASURED_MAX:
            self._measured[reply] = calls, token, tracked

    def _lose(self, subject: bytes) -> None:
        for reply in [reply for reply in self._measured if subject_matches(reply, subject)]:
            if self.account.has_interest(reply):
                continue
            calls, token, tracked = self._measured.pop(reply)
            if not tracked.done:
                calls.lose(token)

    def set_services(self, host: Host, wanted: list[tuple[ServiceImport, Account, ServiceExport]]) -> None:
        """Replace the service imports; requests through unchanged imports continue to wait for responses."""
        keys = [(each, export) for each, _, export in wanted]
        kept = {key: self._services.pop(key) for key in keys if key in self._services}
        for sink, sub in self._services.values():
            self.account.remove_plain(sub)
            sink.calls.stop()
        self._services = kept
        for each, exporter, export in wanted:
            if (each, export) not in kept:
                self._services[each, export] = self._subscribed(host, each, exporter, export)

    def _subscribed(
        self, host: Host, wanted: ServiceImport, exporter: Account, export: ServiceExport
    ) -> tuple[ServiceSink, Subscription]:
        """Subscribe to the local subject of a service import; return the sink and its subscription."""
        responses = responses_of(exporter, host.rng)
        responses.subscribe()
        responses_of(self.account, host.rng)  # needed for responses that have their own reply subject
        local = wanted.local()
        describer = Describer(host.server_name, wanted.share, exporter is host.system_account)
        latency = export.latency
        sink = ServiceSink(
            self.account,
            exporter,
            ServiceCalls(
                host,
                responses,
                responses.exports.setdefault(export, export),
                None if latency is None else Meter(host, exporter, latency, host.server_name),
            ),
            None if local.transform is None else Rewrite(local.transform),
            b"" if local.same or local.transform is not None else wanted.subject.encode(),
            wanted.share,
            describer.text,
            describer.own_text(self.account.name),
            describer.extended,
        )
        self._last_sid += 1
        sub = Subscription(sink, local.pattern.encode(), b"", b"%d" % self._last_sid)
        self.account.add_plain(sub)
        return sink, sub

    def set_streams(self, wanted: list[tuple[StreamImport, Account]]) -> None:
        """Replace the stream imports; unchanged imports are not interrupted."""
        self._streams.apply(self.account, wanted)


def responses_of(account: Account, rng: Rng) -> Responses:
    """Return the object that forwards the responses of an account; the first call creates it."""
    if account.responses is None:
        account.responses = Responses(account, rng)
    assert isinstance(account.responses, Responses)
    return account.responses


def importers(declared: Mapping[str, Exchange], names: Iterable[str]) -> list[str]:
    """Return the accounts that import from an account in `names` and are not in `names` themselves."""
    exporters = set(names)
    return [
        name
        for name, exchange in declared.items()
        if name not in exporters and any(each.account in exporters for each in exchange.imports)
    ]


def apply(host: Host, declared: Mapping[str, Exchange], names: Iterable[str]) -> None:
    """Apply the imports, exports and subject mappings of the accounts `names`.

    `declared` has the declarations of all accounts, which were checked together.
    """
    for name in names:
        _apply_one(host, host.accounts[name], declared)


def _apply_one(host: Host, account: Account, declared: Mapping[str, Exchange]) -> None:
    exchange = declared[account.name]
    account.mappings = mappings_of(exchange.mappings, host.rng)
    at_work = account.exchange
    if not isinstance(at_work, AccountExchange):
        if not exchange.imports and not exchange.exports:
            return
        at_work = account.exchange = AccountExchange(account)
    at_work.set_streams(
        [(without_rules(each), host.accounts[each.account]) for each in exchange.stream_imports()]
    )
    services = []
    for wanted in exchange.service_imports():
        export = declared[wanted.account].export_of(wanted)
        assert isinstance(export, ServiceExport)
        services.append((without_rules(wanted), host.accounts[wanted.account], without_rules(export)))
    at_work.set_services(host, services)
    if isinstance(account.responses, Responses):
        _forget_exports(account.responses, exchange)


def _forget_exports(responses: Responses, exchange: Exchange) -> None:
    """Remove from `responses` the exports that are not in `exchange` any more."""
    present = {without_rules(each) for each in exchange.exports if isinstance(each, ServiceExport)}
    for export in [each for each in responses.exports if each not in present]:
        del responses.exports[export]


def mappings_of(declared: Iterable[SubjectMapping], rng: Rng) -> Mappings | None:
    """Return the mappings that `declared` describes, or None if there are none."""
    entries = [
        Destinations(
            [(Rewrite(SubjectTransform(each.source, to, rng)), weight) for to, weight in each.weighted()]
        )
        for each in declared
    ]
    return Mappings(entries, int.from_bytes(rng.randbytes(8), "little")) if entries else None
