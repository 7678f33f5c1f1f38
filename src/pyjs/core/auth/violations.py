"""The texts of permissions violations, for the client and for the log, as in nats-server 2.15."""

from __future__ import annotations

from typing import NamedTuple

from pyjs.base.gotext import quoted_bytes


class Violation(NamedTuple):
    """One permissions violation: its message for the client, and its message for the log."""

    error: str  # of the -ERR line
    logged: str


def publish_violation(subject: bytes) -> Violation:
    """Return the violation of a publish to `subject`."""
    name = quoted_bytes(subject)
    return Violation(f"Permissions Violation for Publish to {name}", f"Publish Violation - Subject {name}")


def reply_violation(reply: bytes) -> Violation:
    """Return the violation of a publish with a reserved reply subject."""
    name = quoted_bytes(reply)
    return Violation(
        f"Permissions Violation for Publish with Reply of {name}", f"Publish Violation - Reply {name}"
    )


def subscription_violation(subject: bytes, queue: bytes, sid: bytes) -> Violation:
    """Return the violation of a subscription to `subject`; b"" as `queue` means no queue group."""
    name, number = quoted_bytes(subject), quoted_bytes(sid)[1:-1]
    if queue:
        group = quoted_bytes(queue)
        return Violation(
            f"Permissions Violation for Subscription to {name} using queue {group}",
            f"Subscription Violation - Subject {name}, Queue: {group}, SID {number}",
        )
    return Violation(
        f"Permissions Violation for Subscription to {name}",
        f"Subscription Violation - Subject {name}, SID {number}",
    )


def too_many_tokens(subject: bytes, sid: bytes) -> Violation:
    """Return the violation of a subscription whose subject has more than max_sub_tokens tokens."""
    name, number = quoted_bytes(subject), quoted_bytes(sid)[1:-1]
    return Violation(
        f"Permissions Violation for Subscription to {name}, too many tokens",
        f"Subscription Violation Too Many Tokens - Subject {name}, SID {number}",
    )
