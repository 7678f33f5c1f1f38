from __future__ import annotations

import pytest
from tests.unit.config.conftest import Load


def test_accounts_may_be_a_list_of_names(load: Load) -> None:
    accounts = load("accounts [A, B]").accounts
    assert [(name, account.name, account.users) for name, account in accounts.items()] == [
        ("A", "A", ()),
        ("B", "B", ()),
    ]


def test_an_account_may_be_made_of_variables(load: Load) -> None:
    text = "accounts { p {publish: x}, A {default_permissions: $p, users [{user: a}]} }"
    options = load(text)
    assert list(options.accounts) == ["A"]


@pytest.mark.parametrize(
    ("text", "enabled"),
    [("true", True), ("enabled", True), ("{}", True), ("false", False), ("disable", False)],
)
def test_jetstream_of_an_account_is_switched_in_each_way(load: Load, text: str, enabled: bool) -> None:
    assert (load(f"accounts {{A {{jetstream: {text}}}}}").accounts["A"].jetstream is not None) is enabled


def test_jetstream_limits_of_an_account_have_many_names(load: Load) -> None:
    text = "mem: 1KB, disk: 2KB, streams: 3, consumers: 4, max_bytes: true, memory_max_stream_bytes: 5"
    limits = load(f"accounts {{A {{jetstream {{ {text} }} }} }}").accounts["A"].jetstream
    assert limits is not None
    assert (limits.max_memory, limits.max_storage, limits.max_streams, limits.max_consumers) == (
        1024,
        2048,
        3,
        4,
    )
    assert (limits.max_bytes_required, limits.mem_max_stream_bytes, limits.max_ack_pending) == (True, 5, -1)
