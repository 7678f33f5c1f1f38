"""A node on a virtual clock, as tests of other programs use it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pyjs.aio import ConfigError
from pyjs.config.options import ConnectionLimits, Options
from pyjs.testing import RawClient, VirtualNode

STREAM = b'{"name":"S","subjects":["s"],"max_age":60000000000}'


def last(client: RawClient) -> bytes:
    """Return the API's answer about the first message."""
    return client.request(b"$JS.API.STREAM.MSG.GET.S", b'{"seq":1}').payload


def test_messages_go_from_client_to_client_in_one_turn() -> None:
    node = VirtualNode()
    one, two = node.client(), node.client()

    two.send(b"SUB greet 1\r\n")
    one.send(b"PUB greet reply 2\r\nhi\r\nHPUB greet 12 14\r\nNATS/1.0\r\n\r\nho\r\n")

    frames = two.frames()
    assert [frame.payload for frame in frames] == [b"hi", b"ho"]
    assert (frames[0].reply, frames[1].headers) == (b"reply", b"NATS/1.0\r\n\r\n")


def test_time_passes_when_the_test_says_so() -> None:
    with VirtualNode(jetstream=True) as node:
        client = node.client()
        client.request(b"$JS.API.STREAM.CREATE.S", STREAM)
        client.request(b"s", b"a minute to live")

        node.advance(seconds=59)
        assert b"a2VlcA" not in last(client)
        assert b'"message"' in last(client)
        node.advance(seconds=2)
        assert b"no message found" in last(client)


def test_a_store_directory_that_is_named_stays_and_another_goes(tmp_path: Path) -> None:
    with VirtualNode(jetstream={"store_dir": tmp_path}) as node:
        node.client().request(b"$JS.API.STREAM.CREATE.S", STREAM)
    with VirtualNode(jetstream={"store_dir": tmp_path}) as node:
        assert b'"S"' in node.client().request(b"$JS.API.STREAM.INFO.S").payload
    with VirtualNode(jetstream=True) as node:
        scratch = node.options.jetstream.store_dir
        assert os.path.isdir(scratch)

    assert not os.path.exists(scratch)


def test_the_same_seed_is_the_same_node() -> None:
    one, two, other = VirtualNode(seed=5), VirtualNode(seed=5), VirtualNode(seed=6)

    assert one.node.server_id == two.node.server_id != other.node.server_id


def test_it_takes_options_and_refuses_wrong_keys() -> None:
    assert VirtualNode(Options(limits=ConnectionLimits(max_payload=7))).node.settings.max_payload == 7
    with pytest.raises(ConfigError, match="unknown field"):
        VirtualNode(prot=1)  # type: ignore[call-arg]
