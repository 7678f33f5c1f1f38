"""Subjects against filters, token by token: how NATS matches. Knows no server and no Arrow."""

from __future__ import annotations


def is_match(subject: list[bytes], wanted: list[bytes]) -> bool:
    """Return whether a subject's tokens match a filter's."""
    for at, token in enumerate(wanted):
        if token == b">":
            return len(subject) > at
        if at >= len(subject) or token not in (b"*", subject[at]):
            return False
    return len(subject) == len(wanted)
