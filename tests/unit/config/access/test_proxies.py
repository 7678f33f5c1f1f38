"""The block `proxies` and its errors."""

from __future__ import annotations

import pytest
from tests.unit.config.conftest import Load, Refusal

from pyjs.testing.jwt import Key
from pyjs.wire.xkeys import CurveKeyPair

N_KEY, U_KEY = Key("server").public, Key("user").public


def test_keys_of_any_kind_are_trusted_once(load: Load) -> None:
    options = load(f"proxies {{ trusted: [ {{key: {N_KEY}}}, {{public_key: {U_KEY}}}, {{key: {N_KEY}}} ] }}")
    assert options.proxies.keys == (N_KEY, U_KEY)


def test_without_the_block_nobody_is_trusted(load: Load) -> None:
    assert load("port: 5").proxies.keys == ()
    assert load("proxies {}").proxies.keys == ()


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("proxies { trusted: [ {key: abc} ] }", 'invalid proxy key "abc"'),
        (
            f"proxies {{ trusted: [ {{key: {CurveKeyPair(b'x' * 32).public}}} ] }}",
            "invalid proxy key",
        ),
        ("proxies { trusted: [ {} ] }", 'proxy trusted key "" is invalid'),
        ("proxies { trusted: abc }", "a list of proxies"),
        ("proxies { trusted: [ abc ] }", "trusted"),
        ("proxies { trusts: [] }", 'unknown field "trusts"'),
    ],
)
def test_a_block_that_cannot_be_used_is_refused(refusal: Refusal, text: str, cause: str) -> None:
    assert cause in refusal(text)


@pytest.mark.parametrize(
    "text",
    ["proxy_required: true", "proxy_required: true, users: [{user: a, password: b}]"],
)
def test_a_proxy_that_protects_nobody_is_refused(refusal: Refusal, text: str) -> None:
    assert '"proxy_required" is about a single user or token' in refusal(f"authorization {{ {text} }}")
