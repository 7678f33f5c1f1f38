"""The number of clients that each account has at other servers; they count towards the account's limit.

When the number of clients of an account has changed, a server sends the number to the other servers in the same turn.
If two clients log in at two servers at the same time, both may be accepted above the limit; each server then closes
its newest clients, as nats-server does (tests/conformance/test_cluster_accounts.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyjs.cluster.route import Route
    from pyjs.core.account import Account


class Headcount:
    """The numbers of clients per account: the numbers to send, and the sums of the numbers that were received."""

    def __init__(self, routes: dict[str, Route]) -> None:
        self._routes = routes
        self._changed: dict[Account, None] = {}  # used as an ordered set

    def note(self, account: Account) -> None:
        """Include an account in the counts that the next `tell` sends."""
        self._changed[account] = None

    def tell(self) -> None:
        """Send the changed numbers on every open route."""
        changed, self._changed = self._changed, {}
        for account in changed:
            for route in self._routes.values():
                route.send_clients(account)

    def elsewhere(self, account: Account) -> int:
        """Return the number of clients that an account has at the other servers."""
        remotes = (route.remote.get(account.name) for route in self._routes.values())
        return sum(remote.clients for remote in remotes if remote is not None)
