"""Exports and imports of the accounts of operator mode, checked again whenever a token changes.

A changed account and the accounts that import from it are checked again. An import that is not allowed, or whose
exporting account is missing, has no effect until one of the two accounts changes, as in nats-server. An import ends
when its activation token expires.

Checks run at once up to a limit on work, and continue in later turns.

Source: nats-server 2.15.1, tests/conformance/test_jwt_exchange.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_S
from pyjs.config.exchange.check import Check
from pyjs.config.exchange.declared import Exchange, Export, Import, ServiceExport, StreamExport, StreamImport

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyjs.base.timers import Timer
    from pyjs.core.host import Host

STEP_WORK = 4096  # exports compared in one step
STEPS_AT_ONCE = 8


class TokenExchanges:
    """The declarations of the accounts, and the checks that are due."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._check = Check({})
        self._declared: dict[str, Exchange] = {}  # by account; without invalid exports
        self._check.declared = self._declared
        self._given: dict[str, Exchange] = {}  # of accounts to be checked, including invalid exports
        self._importers: dict[str, dict[str, None]] = {}  # the importing accounts of each exporting account
        self._due: dict[str, None] = {}  # accounts to check, in order
        self._steps: Iterator[None] | None = None  # the running check; None: none
        # one timer for each account, for its activation token that expires first
        self._expiries: dict[str, Timer] = {}

    def change(self, name: str, exchange: Exchange) -> None:
        """Replace the exports and imports of an account with those of its new token, and start to check them."""
        before = self._given.get(name) or self._declared.get(name, Exchange())
        for exporter in {each.account for each in before.imports} - {
            each.account for each in exchange.imports
        }:
            self._importers[exporter].pop(name, None)
            if not self._importers[exporter]:
                del self._importers[exporter]
        for each in exchange.imports:
            self._importers.setdefault(each.account, {})[name] = None
        self._given[name] = exchange
        self._queue(name, *self._importers.get(name, ()))

    def _queue(self, *names: str) -> None:
        self._due.update(dict.fromkeys(names))
        if self._steps is not None:
            return
        self._steps = self._run()
        for _ in range(STEPS_AT_ONCE):
            if next(self._steps, self) is self:
                self._steps = None
                return
        self._host.turn_state.go_on(self._rest(self._steps))

    def _rest(self, steps: Iterator[None]) -> Iterator[None]:
        try:
            yield from steps
        finally:
            self._steps = None

    def _run(self) -> Iterator[None]:
        while self._due:
            name = next(iter(self._due))
            del self._due[name]
            yield from self._check_one(name)

    def _check_one(self, name: str) -> Iterator[None]:
        """Check an account, and apply its allowed imports and exports."""
        now_s = self._check.now_s = self._host.clock.wall_ns() // NS_PER_S
        if name in self._given:
            given = self._given.pop(name)
            exports: list[Export] = []
            yield from self._check_exports(name, given, exports)
            self._declared[name] = replace(given, exports=tuple(exports))
        exchange = self._declared[name]
        self._check.forget(name)
        accepted: list[Import] = []
        work = 0
        for wanted in exchange.imports:
            cause = self._check.accept(name, wanted)
            if not cause:
                accepted.append(wanted)
            elif wanted.account in self._declared:
                kind = "stream" if isinstance(wanted, StreamImport) else "service"
                self._host.log.debug(f"Error adding {kind} import to account [{self._label(name)}]: {cause}")
            work += 1 + len(self._declared.get(wanted.account, exchange).exports)
            if work > STEP_WORK:
                work = 0
                yield
        self._set_expiry(name, accepted, now_s)
        self._host.share(name, replace(exchange, imports=tuple(accepted)))

    def _check_exports(self, name: str, given: Exchange, exports: list[Export]) -> Iterator[None]:
        """Append the valid exports to `exports`; if only the latency options of an export are invalid, drop these."""
        check, work = Check({name: given}), 0
        for export in given.exports:
            cause = check.export_fault(name, export)
            if cause:
                self._host.log.debug(f"Error adding an export to account [{self._label(name)}]: {cause}")
            if cause and isinstance(export, ServiceExport) and export.latency is not None:
                export = replace(export, latency=None)
                cause = check.export_fault(name, export)
            if not cause:
                exports.append(export)
            work += 1 if isinstance(export, StreamExport) or export.latency is None else len(given.exports)
            if work > STEP_WORK:
                work = 0
                yield

    def _label(self, name: str) -> str:
        account = self._host.accounts.get(name)
        return name if account is None or account.tag == name else f"{name}/{account.tag}"

    def _set_expiry(self, name: str, accepted: list[Import], now_s: int) -> None:
        timer = self._expiries.pop(name, None)
        if timer is not None:
            timer.cancel()
        ends = [each.activation.expires for each in accepted if each.activation and each.activation.expires]
        if ends:
            due_ns = self._host.clock.now_ns() + max(1, min(ends) - now_s) * NS_PER_S
            self._expiries[name] = self._host.timers.at(due_ns, lambda: self._queue(name))
