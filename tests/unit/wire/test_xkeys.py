"""Data that one key sealed for another can be opened only with one of these two keys, and only unchanged."""

from __future__ import annotations

import pytest

from pyjs.base.rng import SeededRng
from pyjs.testing.jwt import Key
from pyjs.wire.xkeys import NONCE_SIZE, VERSION, CurveKeyPair, SealBroken

ANN, BEN, EVE = (CurveKeyPair(letter * 32) for letter in (b"a", b"b", b"e"))
SEALED = ANN.seal(b"secret", BEN.public, SeededRng(1))


def test_the_receiver_opens_what_was_sealed_for_it() -> None:
    assert BEN.open(SEALED, ANN.public) == b"secret"
    assert BEN.open(ANN.seal(b"", BEN.public, SeededRng(2)), ANN.public) == b""


def test_a_seal_has_its_version_its_nonce_and_no_plain_text() -> None:
    assert SEALED.startswith(VERSION)
    assert len(SEALED) == len(VERSION) + NONCE_SIZE + 16 + len(b"secret")
    assert b"secret" not in SEALED


def test_two_seals_of_the_same_text_differ() -> None:
    assert ANN.seal(b"secret", BEN.public, SeededRng(2)) != SEALED


def test_a_third_key_opens_nothing() -> None:
    with pytest.raises(SealBroken, match="could not decrypt"):
        EVE.open(SEALED, ANN.public)


def test_another_sender_is_noticed() -> None:
    with pytest.raises(SealBroken, match="could not decrypt"):
        BEN.open(SEALED, EVE.public)


@pytest.mark.parametrize("at", range(len(VERSION), len(SEALED)))
def test_a_changed_byte_is_noticed(at: int) -> None:
    changed = SEALED[:at] + bytes([SEALED[at] ^ 1]) + SEALED[at + 1 :]
    with pytest.raises(SealBroken, match="could not decrypt"):
        BEN.open(changed, ANN.public)


@pytest.mark.parametrize("size", range(len(SEALED)))
def test_a_cut_seal_is_noticed(size: int) -> None:
    with pytest.raises(SealBroken):
        BEN.open(SEALED[:size], ANN.public)


def test_another_version_is_refused() -> None:
    with pytest.raises(SealBroken, match="wrong version"):
        BEN.open(b"xkv2" + SEALED[len(VERSION) :], ANN.public)


@pytest.mark.parametrize(
    "key", ["", "X", Key("user").public, ANN.public[:-1] + "A"], ids=["none", "short", "user", "checksum"]
)
def test_a_text_that_is_no_such_key_is_refused(key: str) -> None:
    with pytest.raises(SealBroken, match="recipient public curve key"):
        ANN.seal(b"secret", key, SeededRng(1))
    with pytest.raises(SealBroken, match="sender public curve key"):
        BEN.open(SEALED, key)
