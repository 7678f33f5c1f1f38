"""The configuration by key in /varz?config=1: the values in effect, without secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import Authority
from tests.unit.monitor.conftest import Site

from pyjs.config.load import load_options
from pyjs.testing.jwt import Key

PROXY, USER = Key("server", b"p" * 32), Key("user", b"u" * 32)
SECRETS = f"""
jetstream {{ store_dir: "/dev/null/none", key: hidden1, prev_key: hidden2 }}
server_name: n1
server_metadata {{ upstream: "nats://hidden4:hid@den5@host:1/a b", plain: "a@b" }}
cluster {{ name: c, port: 6222, routes: ["nats://hidden6@127.0.0.1:6223", "nats://r:hidden7@127.0.0.1:6224"] }}
accounts {{ A {{ users: [{{user: a, password: hidden3}}, {{nkey: {USER.public}}}] }} }}
"""


def shown(text: str) -> dict[str, Any]:
    site = Site(load_options("server.conf", lambda path: text, {}, {}))
    config: dict[str, Any] = site.json("/varz?config=1")["config"]
    return config


def test_the_public_keys_of_proxies_are_shown() -> None:
    config = shown(f"proxies {{ trusted: [{{key: {PROXY.public}}}] }}")
    assert config["proxies"] == {"trusted": [{"key": PROXY.public}]}


@pytest.mark.parametrize("secret", ["hidden1", "hidden2", "hidden3", "hidden4", "den5", "hidden6", "hidden7"])
def test_secrets_are_shown_as_stars(secret: str) -> None:
    config = str(shown(SECRETS))
    assert secret not in config
    assert config.count("'***'") >= 3


def test_what_is_no_secret_remains() -> None:
    config = shown(SECRETS)
    assert config["server_metadata"] == {"upstream": "nats://***@host:1/a b", "plain": "a@b"}
    assert [each["user"] for each in config["cluster"]["routes"]] == ["***", "r"]


def test_the_place_of_a_block_is_no_key(tmp_path: Path) -> None:
    made = Authority(tmp_path).root
    config = shown(f'tls {{ cert_file: "{made.cert_file}", key_file: "{made.key_file}" }}')
    assert config["tls"]["cert_file"] == str(made.cert_file)
    assert "place" not in config["tls"]


def test_durations_are_nanoseconds_and_defaults_are_there() -> None:
    config = shown('ping_interval: "3s"')
    assert config["ping_interval"] == 3 * 10**9
    assert config["max_payload"] == 1 << 20


def test_without_the_argument_there_is_no_configuration(site: Site) -> None:
    assert "config" not in site.json("/varz")
