"""The table of possible requests is complete."""

from __future__ import annotations

from tests.support.border import ACKS, BODIES, HEADERS

from pyjs.jetstream.api.table import ENDPOINTS
from pyjs.jetstream.stream.pub_headers import scan


def test_every_endpoint_is_in_the_list_and_nothing_else() -> None:
    assert set(BODIES) == {each.words for each in ENDPOINTS} | {"CONSUMER.MSG.NEXT", "DIRECT.GET"}


def test_every_header_that_the_scanner_knows_is_in_the_list() -> None:
    block = b"NATS/1.0\r\n" + b"".join(b"%b: 1\r\n" % name.encode() for name in HEADERS) + b"\r\n"
    assert len(scan(block)) == 14  # the TTL and the increment are parsed in addition
    assert "+TERM" in ACKS
