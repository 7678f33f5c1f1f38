"""Limits of one account on core NATS; -1 is unlimited. Source: nats.docs "Multi Tenancy using Accounts"."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AccountLimits:
    """What all clients of an account may use together."""

    max_connections: int = -1
    max_subscriptions: int = -1
    max_payload: int = -1
