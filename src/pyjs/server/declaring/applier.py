"""The part of a server that applies declared assets: at the start, after a reload, and as the leader of a cluster.

The assets are applied by one chore at a time. If the chore ends with a temporary error, it is repeated later; if the
file was reloaded in the meantime, it is repeated at once. In a cluster, only the leader of the metadata applies its
file; the other servers log the differences.
"""

from __future__ import annotations

import asyncio
import enum
from contextlib import suppress
from typing import TYPE_CHECKING

from pyjs.declared.asking import NO_ANSWER, LookFailed, carry_out, plan
from pyjs.declared.planning import Verb
from pyjs.declared.report import described, outcome_lines, totals
from pyjs.server.declaring.drift import Drift
from pyjs.server.declaring.requester import Requester

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pyjs.base.timers import Timer
    from pyjs.core.chore import Step
    from pyjs.declared.asking import Outcome
    from pyjs.declared.assets import AccountAssets
    from pyjs.declared.planning import Plan
    from pyjs.jetstream.member.member_node import MemberNode
    from pyjs.server.driver import Driver

START_S = 10.0  # maximum time for which clients wait at a start
COMPARE_S = 5.0  # seconds after which a server that is not the leader compares: the leader applies first
RETRY_FIRST_S, RETRY_LAST_S = 1.0, 60.0  # pause after the first temporary error, and the longest one


class State(enum.Enum):
    """The states of an Applier: IDLE -> RUNNING -> IDLE.

    If `_begin` is called in the state RUNNING, the state becomes AGAIN. `stop` changes any state to STOPPED.
    """

    IDLE = enum.auto()
    RUNNING = enum.auto()
    AGAIN = enum.auto()
    STOPPED = enum.auto()


class Applier:
    """The part of a server that applies the declared assets of its configuration."""

    def __init__(self, driver: Driver, assets: tuple[AccountAssets, ...]) -> None:
        self._driver = driver
        self._node = driver.node
        self._log = driver.node.log
        self._assets = assets
        self._state = State.IDLE
        self._led = False  # in a cluster: this server led the metadata at the last turn
        self._retry_s = RETRY_FIRST_S
        self._timer: Timer | None = None  # to the next attempt or comparison
        self._said: list[str] = []  # lines of the last application, which the next attempt does not log again
        self._idle = asyncio.Event()
        self.drift = Drift(driver, lambda: self._assets)
        driver.after_turn.append(self._after_turn)

    async def start(self) -> None:
        """Apply the assets after a start; return when this is done, but at the latest after START_S seconds.

        In a cluster, return at once: the servers must meet first.
        """
        if self._member is not None:
            self._compare_later()
            return
        self._begin()
        with suppress(TimeoutError):
            async with asyncio.timeout(START_S):
                await self._idle.wait()

    def reloaded(self, assets: tuple[AccountAssets, ...]) -> None:
        """Apply the assets of a reloaded file, or compare them later if another server applies its file."""
        self._assets = assets
        self.drift.forget()
        self._said = []
        if self._applies:
            self._begin()
        else:
            self._compare_later()

    def stop(self) -> None:
        """Start no further application or comparison of the assets."""
        self._state = State.STOPPED
        self._idle.set()
        self._cancel_timer()

    @property
    def _member(self) -> MemberNode | None:
        jetstream = self._node.jetstream
        return None if jetstream is None else jetstream.shared.member

    @property
    def _applies(self) -> bool:
        """Whether this server applies its file: it is alone, or leads the metadata."""
        member = self._member
        return member is None or member.machine.leads

    def _after_turn(self) -> None:
        member = self._member
        if member is None or member.machine.leads == self._led:
            return
        self._led = member.machine.leads
        if self._led and self._assets:
            self._begin()

    # -- one application -----------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Apply or compare the assets now; if this is in progress already, do it again afterwards."""
        self._cancel_timer()
        if self._state is not State.IDLE:
            self._state = State.AGAIN if self._state is State.RUNNING else self._state
            return
        self._state = State.RUNNING
        self._idle.clear()
        self._node.turn_state.go_on(self._steps())
        self._driver.wake()

    def _steps(self) -> Generator[Step, None, None]:
        is_temporary = False
        try:
            said: list[str] = []
            for assets in self._assets:
                is_temporary |= yield from self._account_steps(assets, said)
            self._said = said
        finally:
            self._end(is_temporary=is_temporary)

    def _account_steps(self, assets: AccountAssets, said: list[str]) -> Generator[Step, None, bool]:
        """Apply the assets of one account, or only compare them; return whether a later attempt may succeed."""
        account = self._node.accounts.get(assets.account)
        if account is None or self._node.jetstream is None:
            return False
        requester = Requester(self._node, account)
        try:
            planned = yield from requester.run(plan(assets, self._node.clock.wall_ns()))
        except LookFailed as error:
            self._say(
                f"Cannot apply what is declared in account {assets.account}: {error}", said, self._log.error
            )
            return error.is_temporary
        if not self._applies:
            return self._compare(planned)
        outcomes = yield from requester.run(carry_out(planned))
        if self._node.jetstream is None:  # it was stopped meanwhile
            return False
        self._report(assets.account, outcomes, said)
        return any(each.is_temporary for each in outcomes)

    def _compare(self, planned: Plan) -> bool:
        """Log a warning if the streams differ from the file; return whether some requests had no answer."""
        differing = [each for each in planned.actions if each.verb is not Verb.SAME]
        if any(each.reason == NO_ANSWER for each in differing):
            return True
        if differing:
            self._log.warn(
                f"The file of this server declares for account {planned.account} what the leader of the cluster"
                f" has not applied: {len(differing)} assets differ, the first: {described(differing[0])}"
            )
        return False

    def _report(self, account: str, outcomes: list[Outcome], said: list[str]) -> None:
        for is_error, line in outcome_lines(account, outcomes):
            if is_error:
                self._say(line, said, self._log.error)
            else:
                self._log.info(line)
        total = f"Declared in account {account}: {totals(outcomes)}"
        self._say(total, said, self._log.info)

    def _say(self, line: str, said: list[str], log: Callable[[str], None]) -> None:
        """Log a line, unless the previous attempt logged the same line."""
        said.append(line)
        if line not in self._said:
            log(line)

    def _end(self, *, is_temporary: bool) -> None:
        again, stopped = self._state is State.AGAIN, self._state is State.STOPPED
        if stopped:
            return
        self._state = State.IDLE
        self.drift.forget()
        if again:
            self._begin()
            return
        if is_temporary:
            self._timer = self._driver.after(self._retry_s, self._begin)
            self._retry_s = min(self._retry_s * 2, RETRY_LAST_S)
        else:
            self._retry_s = RETRY_FIRST_S
        self._idle.set()

    def _compare_later(self) -> None:
        self._cancel_timer()
        if self._assets and self._state is not State.STOPPED:
            self._timer = self._driver.after(COMPARE_S, self._begin)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
