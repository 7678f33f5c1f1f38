"""The differences between the file and the streams, which clients may have changed since the file was applied.

A comparison begins when a page requests it. It sends the same requests as `pyjs-server plan`, so both show the same
differences. Its result is used for some time. All pages that wait share one comparison, and comparisons take at most
a twentieth of the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from pyjs.declared.asking import LookFailed, plan
from pyjs.declared.report import plan_line, printable
from pyjs.monitor.own.declaredz import DeclaredReport, DeclaredRow, Unnamed
from pyjs.server.declaring.requester import Requester

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator

    from pyjs.core.chore import Step
    from pyjs.declared.assets import AccountAssets
    from pyjs.declared.planning import Action, Plan
    from pyjs.server.driver import Driver

FRESH_NS = 5_000_000_000  # for which a result is used
REST = 20  # a result is used for at least so many times the duration of its comparison
STEP = 100  # assets described in one turn: a millisecond
UNNAMED_MAX = 256  # names of streams and consumers that are not in the file, for each account
VALUE_SIZE_MAX = 4096  # bytes of an option that a page shows: a stream may have many thousand subjects


class Drift:
    """The comparison of one server's streams and consumers with their declarations, made on request."""

    def __init__(self, driver: Driver, assets: Callable[[], tuple[AccountAssets, ...]]) -> None:
        self._driver = driver
        self._node = driver.node
        self._assets = assets
        self._last = DeclaredReport()
        self._fresh_until_ns = 0
        self._waiting: list[asyncio.Future[None]] | None = None  # pages; None: no comparison runs

    def forget(self) -> None:
        """Discard the last result, because the file or the streams have changed."""
        self._fresh_until_ns = 0

    def report(self) -> Generator[Any, None, DeclaredReport]:
        """Return the report of the last comparison, or of a new one if the last one is too old.

        If a comparison must be awaited, yield a future that is done when this comparison has ended.
        """
        if self._waiting is None and self._node.clock.now_ns() >= self._fresh_until_ns:
            self._waiting = []
            self._node.turn_state.go_on(self._steps())
            self._driver.wake()
        if self._waiting is not None:
            done = self._driver.loop.create_future()
            self._waiting.append(done)
            yield done
        return self._last

    def _steps(self) -> Generator[Step, None, None]:
        clock = self._node.clock
        began_ns, self._fresh_until_ns = clock.now_ns(), 1
        rows: list[DeclaredRow] = []
        accounts: dict[str, str] = {}
        unnamed: list[Unnamed] = []
        try:
            for assets in self._assets():
                accounts[assets.account] = yield from self._account_steps(assets, rows, unnamed)
            self._last = DeclaredReport(clock.wall_ns(), accounts, rows, unnamed)
        finally:
            if self._fresh_until_ns:  # not forgotten meanwhile
                took_ns = clock.now_ns() - began_ns
                self._fresh_until_ns = clock.now_ns() + max(FRESH_NS, REST * took_ns)
            waiting, self._waiting = self._waiting or [], None
            for each in waiting:
                if not each.done():
                    each.set_result(None)

    def _account_steps(
        self, assets: AccountAssets, rows: list[DeclaredRow], unnamed: list[Unnamed]
    ) -> Generator[Step, None, str]:
        """Append the rows and the unnamed assets of one account to `rows` and `unnamed`.

        Return the reason why the streams of the account cannot be listed, or "".
        """
        account = self._node.accounts.get(assets.account)
        if account is None or (self._node.jetstream is None and self._node.cluster is None):
            return "JetStream does not run"
        try:
            planned: Plan = yield from Requester(self._node, account).run(
                plan(assets, self._node.clock.wall_ns())
            )
        except LookFailed as error:
            return str(error)
        planned.actions.reverse()
        while planned.actions:  # freed in steps
            rows += [
                _row(assets.account, planned.actions.pop()) for _ in range(min(STEP, len(planned.actions)))
            ]
            yield None
        names = tuple(printable(name) for name in planned.others[:UNNAMED_MAX])
        if names:
            unnamed.append(Unnamed(assets.account, len(planned.others), names))
        return ""


def _row(account: str, action: Action) -> DeclaredRow:
    changes = tuple(
        {"field": each.field, "old": _bounded(each.old), "new": _bounded(each.new)} for each in action.changes
    )
    asset = action.asset
    return DeclaredRow(
        account, asset.kind, asset.shown_name, action.verb.value, changes, action.reason, plan_line(action)
    )


def _bounded(value: Any) -> Any:
    """Return `value`, or the beginning of its JSON text if that has more than `VALUE_SIZE_MAX` bytes."""
    text = orjson.dumps(value)
    return value if len(text) <= VALUE_SIZE_MAX else f"{text[:VALUE_SIZE_MAX].decode('utf-8', 'ignore')}..."
