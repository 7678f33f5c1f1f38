"""The names of streams in subjects."""

from __future__ import annotations

import pytest

from pyjs.jetstream.names import stream_in


@pytest.mark.parametrize(
    ("subject", "stream"),
    [
        ("$JS.ACK.ORDERS.C.1.2.3.4.5", "ORDERS"),
        ("$JS.ACK._.hash.ORDERS.C.1.2.3.4.5.6", "ORDERS"),
        ("$JS.API.CONSUMER.MSG.NEXT.ORDERS.C", "ORDERS"),
        ("$JS.hub.API.CONSUMER.MSG.NEXT.ORDERS.C", "ORDERS"),
        ("$JS.API.DIRECT.GET.ORDERS", "ORDERS"),
        ("$JS.API.DIRECT.GET.ORDERS.orders.new", "ORDERS"),
        ("$JS.API.STREAM.INFO.ORDERS", ""),
        ("$JS.API.CONSUMER.MSG.NEXT", ""),
        ("$KV.B.key.a.b", ""),
        ("orders.new", ""),
    ],
)
def test_acks_pull_requests_and_direct_gets_name_their_stream(subject: str, stream: str) -> None:
    assert stream_in(subject, "hub") == stream
