"""The configuration by key in /varz?config=1: values as they count, and no secret."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.monitor.conftest import Site

from pyjs.config.load import load_options
from pyjs.testing.jwt import Key

PROXY, USER = Key("server", b"p" * 32), Key("user", b"u" * 32)
SECRETS = f"""
jetstream {{ store_dir: "/dev/null/none", key: hidden1, prev_key: hidden2 }}
accounts {{ A {{ users: [{{user: a, password: hidden3}}, {{nkey: {USER.public}}}] }} }}
"""


def shown(text: str) -> dict[str, Any]:
    site = Site(load_options("server.conf", lambda path: text, {}, {}))
    config: dict[str, Any] = site.json("/varz?config=1")["config"]
    return config


def test_the_public_keys_of_proxies_are_shown() -> None:
    config = shown(f"proxies {{ trusted: [{{key: {PROXY.public}}}] }}")
    assert config["proxies"] == {"trusted": [{"key": PROXY.public}]}


@pytest.mark.parametrize("secret", ["hidden1", "hidden2", "hidden3"])
def test_secrets_are_shown_as_stars(secret: str) -> None:
    config = str(shown(SECRETS))
    assert secret not in config
    assert config.count("'***'") >= 3


def test_durations_are_nanoseconds_and_defaults_are_there() -> None:
    config = shown('ping_interval: "3s"')
    assert config["ping_interval"] == 3 * 10**9
    assert config["max_payload"] == 1 << 20


def test_without_the_argument_there_is_no_configuration(site: Site) -> None:
    assert "config" not in site.json("/varz")
