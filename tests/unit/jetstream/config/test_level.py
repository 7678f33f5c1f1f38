"""The Nats-Required-Api-Level header; for streams stored by a newer server: tests/unit/jetstream/test_offline.py."""

from __future__ import annotations

import pytest

from pyjs.jetstream.config.level import needs_higher_level


@pytest.mark.parametrize(
    ("value", "refused"),
    [
        (b"0", False),
        (b"5", False),
        (b"05", False),
        (b"+5", False),
        (b"-6", False),
        (b"", False),
        (b"6", True),
        (b"x", True),
        (b"5.0", True),
        (b"9" * 5000, True),
    ],
)
def test_a_level_above_that_of_the_server_is_refused(value: bytes, refused: bool) -> None:
    assert needs_higher_level(b"NATS/1.0\r\nNats-Required-Api-Level: %b\r\n\r\n" % value) is refused


def test_a_request_without_the_header_needs_no_level() -> None:
    assert not needs_higher_level(b"")
    assert not needs_higher_level(b"NATS/1.0\r\nOther: 9\r\n\r\n")
