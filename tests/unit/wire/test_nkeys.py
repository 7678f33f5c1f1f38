"""Public keys and signatures are accepted if each bit is right, and only then."""

from __future__ import annotations

import pytest
from tests.support.nkeys import ACCOUNT, Nkey

from pyjs.base.rng import SeededRng
from pyjs.wire.nkeys import USER, is_signed, make_nonce, public_key

# A public key that the nk command of nats-io/nkeys made.
KNOWN = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"


def test_a_key_that_others_made_is_read() -> None:
    key = public_key(KNOWN, USER)
    assert key is not None
    assert len(key) == 32


@pytest.mark.parametrize(
    "text",
    [
        "",
        KNOWN[:-1],
        KNOWN + "A",
        KNOWN.lower(),
        KNOWN[:-1] + "5",
        "A" + KNOWN[1:],
        "U" * 56,
        "\u00dc" * 56,
        "1" * 56,
        Nkey("account", ACCOUNT).public,
    ],
)
def test_what_is_no_user_key_is_refused(text: str) -> None:
    assert public_key(text, USER) is None


def test_a_signature_holds_for_its_nonce_and_key_alone() -> None:
    owner, other = Nkey("owner"), Nkey("other")
    keys = [public_key(each.public, USER) or b"" for each in (owner, other)]
    nonce = make_nonce(SeededRng(1))
    # then
    assert is_signed(nonce, owner.sign(nonce), keys[0])
    assert is_signed(nonce, owner.sign(nonce, url_safe=False), keys[0])
    assert not is_signed(nonce, owner.sign(nonce), keys[1])
    assert not is_signed(nonce, owner.sign("another"), keys[0])
    assert not is_signed("", owner.sign(""), keys[0])


@pytest.mark.parametrize("signature", ["", "!!", "A", "A" * 86, "A" * 100_000, "\u00e4" * 86, "=" * 88])
def test_no_text_is_a_signature_by_chance(signature: str) -> None:
    assert not is_signed("nonce", signature, public_key(Nkey("owner").public, USER) or b"")


def test_nonces_are_fifteen_characters_and_differ() -> None:
    rng = SeededRng(7)
    nonces = {make_nonce(rng) for _ in range(100)}
    assert len(nonces) == 100
    assert {len(nonce) for nonce in nonces} == {15}
