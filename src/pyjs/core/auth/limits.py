"""The limits of one connection: each is the smallest of the limits of the server, the account and the user."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyjs.config.options import AccountLimits
    from pyjs.core.auth.users import User
    from pyjs.core.host import SessionSettings

SUBSCRIPTIONS_MAX = 0x7FFFFFFF  # no limit


def limits_of(settings: SessionSettings, account: AccountLimits | None, user: User | None) -> tuple[int, int]:
    """Return the maximum payload size in bytes and the maximum number of subscriptions of one connection."""
    payload, subscriptions = settings.max_payload, settings.max_subscriptions or SUBSCRIPTIONS_MAX
    if account is not None:
        payload = _smaller(payload, account.max_payload)
        subscriptions = _smaller(subscriptions, account.max_subscriptions)
    if user is not None and user.token is not None:
        payload = _smaller(payload, user.token.payload)
        subscriptions = _smaller(subscriptions, user.token.subs)
    return payload, subscriptions


def _smaller(limit: int, other: int) -> int:
    """Return the smaller limit; a negative `other` means no limit."""
    return limit if other < 0 else min(limit, other)
