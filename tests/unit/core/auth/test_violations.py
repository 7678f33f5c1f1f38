"""The texts of permissions violations."""

from __future__ import annotations

from pyjs.core.auth.violations import (
    publish_violation,
    reply_violation,
    subscription_violation,
    too_many_tokens,
)


def test_a_publish_names_its_subject() -> None:
    assert publish_violation(b"a.b") == (
        'Permissions Violation for Publish to "a.b"', 'Publish Violation - Subject "a.b"'
    )  # fmt: skip


def test_a_reply_names_itself() -> None:
    assert reply_violation(b"_R_.x").error == 'Permissions Violation for Publish with Reply of "_R_.x"'
    assert reply_violation(b"_R_.x").logged == 'Publish Violation - Reply "_R_.x"'


def test_a_subscription_names_its_queue() -> None:
    assert subscription_violation(b"a", b"q", b"7") == (
        'Permissions Violation for Subscription to "a" using queue "q"',
        'Subscription Violation - Subject "a", Queue: "q", SID 7',
    )
    assert subscription_violation(b"a", b"", b"7").logged == 'Subscription Violation - Subject "a", SID 7'


def test_a_name_of_the_client_is_escaped_in_the_log() -> None:
    assert publish_violation(b'a"\x1b').logged == 'Publish Violation - Subject "a\\"\\x1b"'


def test_too_many_tokens_are_named() -> None:
    assert too_many_tokens(b"a.b.c", b"1") == (
        'Permissions Violation for Subscription to "a.b.c", too many tokens',
        'Subscription Violation Too Many Tokens - Subject "a.b.c", SID 1',
    )
