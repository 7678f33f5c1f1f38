"""Signatures of proxies, and users that must connect through one."""

from __future__ import annotations

from pyjs.core.auth.proxies import TrustedProxies
from pyjs.core.auth.users import Authenticator, User
from pyjs.testing.jwt import Key
from pyjs.wire.nkeys import any_public_key
from pyjs.wire.xkeys import CurveKeyPair

FIRST, SECOND, STRANGER = Key("server"), Key("user"), Key("server")
PROXIES = TrustedProxies((FIRST.public, SECOND.public))
NONCE = "abcdefghijklmno"


def test_the_key_that_signed_the_nonce_is_found() -> None:
    assert PROXIES.signer(NONCE, FIRST.sign_nonce(NONCE)) == FIRST.public
    assert PROXIES.signer(NONCE, SECOND.sign_nonce(NONCE)) == SECOND.public


def test_another_key_another_nonce_and_no_signature_prove_nothing() -> None:
    assert PROXIES.signer(NONCE, STRANGER.sign_nonce(NONCE)) == ""
    assert PROXIES.signer(NONCE, FIRST.sign_nonce("other")) == ""
    assert PROXIES.signer(NONCE, "!!") == ""
    assert PROXIES.signer(NONCE, "") == ""


def test_without_a_nonce_nobody_signed_it() -> None:
    assert PROXIES.signer("", FIRST.sign_nonce("")) == ""


def test_a_removed_key_is_no_member() -> None:
    assert FIRST.public in PROXIES
    assert STRANGER.public not in PROXIES
    assert PROXIES
    assert not TrustedProxies()


def test_keys_of_every_kind_that_signs_may_be_those_of_proxies() -> None:
    kinds = [Key(kind) for kind in ("operator", "account", "user", "server")]
    assert [any_public_key(key.public) is not None for key in kinds] == [True] * 4
    assert any_public_key(CurveKeyPair(b"x" * 32).public) is None
    assert any_public_key("N" * 56) is None


def test_a_user_or_all_clients_may_need_a_proxy() -> None:
    far, near = User("far", "", proxy_required=True), User("near", "")
    some = Authenticator([far, near], no_auth_user="far")
    assert [some.needs_proxy(each) for each in (far, near, None)] == [True, False, False]
    assert some.default_user("STANDARD") is None
    everybody = Authenticator([], token="t", proxy_required=True)
    assert everybody.needs_proxy(None)


def test_clients_get_a_nonce_for_their_proxy_to_sign() -> None:
    assert Authenticator([], proxies=PROXIES).wants_nonce
    assert not Authenticator([]).wants_nonce
