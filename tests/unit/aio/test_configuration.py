"""A program's settings for its server become Options, or an exception that names the fault."""

from __future__ import annotations

from pathlib import Path
from typing import get_type_hints

import pytest

from pyjs.aio.configuration import options_from, wants_scratch
from pyjs.aio.keys import ConfigKeys, JetStreamKeys
from pyjs.config.errors import ConfigError
from pyjs.config.options import Options
from pyjs.config.tables import JETSTREAM, TOP


def test_alone_it_is_a_free_local_port_and_jetstream() -> None:
    options = options_from(None, {})

    assert (options.host, options.port, options.monitoring.http_port) == ("127.0.0.1", -1, 0)
    assert options.jetstream.enabled
    assert wants_scratch(None, options)


def test_keys_are_those_of_the_configuration_file(tmp_path: Path) -> None:
    keys = {
        "port": 4333,
        "ping_interval": "30s",
        "server_tags": ("One", "two"),
        "jetstream": {"store_dir": tmp_path, "max_file": "10GB", "limits": {"max_ack_pending": 7}},
        "accounts": {"A": {"users": [{"user": "a", "password": "b"}]}},
        "tls": {"cert_file": "c.pem", "key_file": "k.pem", "handshake_first": "auto"},
    }

    options = options_from(None, keys)

    assert (options.port, options.limits.ping_interval_ns, options.server_tags) == (
        4333,
        30 * 10**9,
        ("one", "two"),
    )
    assert options.jetstream.store_dir == str(tmp_path)
    assert (options.jetstream.max_storage, options.jetstream.limits.max_ack_pending) == (10 << 30, 7)
    assert [user.user for user in options.users()] == ["a"]
    assert (options.tls.certificates, options.tls.handshake_first_ns) == ((("c.pem", "k.pem"),), 50_000_000)
    assert not wants_scratch(None, options)


@pytest.mark.parametrize("keys", [{"jetstream": False}, {"jetstream": {"enabled": False}}])
def test_without_jetstream_there_is_nothing_to_keep(keys: dict[str, object]) -> None:
    options = options_from(None, keys)

    assert not options.jetstream.enabled
    assert not wants_scratch(None, options)


def test_port_0_is_any_free_port_in_python() -> None:
    assert options_from(None, {"port": 0}).port == -1


def test_a_file_means_what_it_means_to_the_command(tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_text("server_name: file\nmax_payload: 100\njetstream: true\n")

    options = options_from(path, {"server_name": "key"})

    assert (options.host, options.port) == ("0.0.0.0", 4222)
    assert (options.server_name, options.limits.max_payload) == ("key", 100)
    assert options.config_path == str(path)
    assert not wants_scratch(path, options)


def test_options_are_taken_as_they_are() -> None:
    options = Options(port=1)

    assert options_from(options, {}) is options
    with pytest.raises(TypeError, match="either Options or keys, not both: port"):
        options_from(options, {"port": 2})


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"prot": 1}, 'options: unknown field "prot"; did you mean "port"?'),
        ({"port": 70000}, 'options: "port" is 70000, the largest is 65535; use a port from 1 to 65535'),
        ({"gateway": {}}, 'options: "gateway" is not supported yet'),
        (
            {"host": None},
            'options: "host" is a value of type NoneType, which a configuration cannot hold; use a',
        ),
        ({"jetstream": {"store_dir": {"a"}}}, 'options: "store_dir" is a value of type set'),
    ],
)
def test_what_is_wrong_is_an_exception_with_the_words_of_the_command(
    keys: dict[str, object], text: str
) -> None:
    with pytest.raises(ConfigError) as told:
        options_from(None, keys)

    assert str(told.value).startswith(text)


def test_a_file_that_is_not_there_is_an_exception() -> None:
    with pytest.raises(ConfigError, match=r"open /nowhere/x.conf: no such file or directory"):
        options_from("/nowhere/x.conf", {})


def test_every_key_of_the_configuration_is_an_argument() -> None:
    assert set(get_type_hints(ConfigKeys)) == {key.name for key in TOP.keys}
    assert set(get_type_hints(JetStreamKeys)) == {key.name for key in JETSTREAM.keys}
