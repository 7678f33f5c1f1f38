"""The fetch of all accounts from which one account imports, directly or through other accounts.

A client is admitted only after the fetch, so that its first message finds the imports of its account. The number
of accounts is bounded. If an account cannot be fetched, the imports from it have no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyjs.core.trust.accounts import TrustedAccount, TrustedAccounts

GATHERED_MAX = 1024  # maximum number of accounts in one gathering


class Gathering:
    """A fetch of all accounts from which an account imports, directly or through other accounts.

    When the fetch is complete, `done` is called, within `begin` or in a later turn.
    """

    def __init__(self, trust: TrustedAccounts, account: TrustedAccount, done: Callable[[], None]) -> None:
        self._trust = trust
        self._seen = {account.name}
        self._found = [account]  # accounts whose exporters must still be fetched
        self._num_open = 0  # number of running fetches
        self._is_busy = False  # `_go_on` is running and must not be entered again
        self._done = done

    def begin(self) -> None:
        """Start the fetch."""
        self._go_on()

    def _go_on(self) -> None:
        """Fetch the exporters of all accounts found so far, except accounts that are already known.

        When no fetch is running any more, call `done`.
        """
        if self._is_busy:
            return
        self._is_busy = True
        while self._found:
            for name in self._found.pop().exporters:
                if name not in self._seen and len(self._seen) < GATHERED_MAX:
                    self._seen.add(name)
                    self._num_open += 1
                    self._trust.fetch(name, self._fetched)
        self._is_busy = False
        if not self._num_open:
            self._done()

    def _fetched(self, account: TrustedAccount | None) -> None:
        self._num_open -= 1
        if account is not None:
            self._found.append(account)
        self._go_on()
