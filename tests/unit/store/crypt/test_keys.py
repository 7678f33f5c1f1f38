"""Keys: which key opens which file, and that a key stream does not depend on where it is begun."""

from __future__ import annotations

import os

import pytest
from tests.unit.store.encodings import Chance, a_key

from pyjs.store.crypt.keys import AES, CHACHA, KeyRing, StreamKey, WrongKey

BOTH = pytest.mark.parametrize("algorithm", [CHACHA, AES])


@BOTH
def test_a_data_key_opens_with_the_key_that_wrapped_it(algorithm: int) -> None:
    made = KeyRing("one", algorithm, os.urandom).new_key()
    opened, rotated = KeyRing("one", CHACHA, os.urandom).open_key(made.algorithm, made.wrapped)
    assert not rotated
    assert opened.wrapped == made.wrapped
    assert opened.meta.open(made.meta.seal(b"text", b"about"), b"about") == b"text"


@BOTH
def test_another_key_opens_nothing(algorithm: int) -> None:
    made = KeyRing("one", algorithm, os.urandom).new_key()
    with pytest.raises(WrongKey, match="another key"):
        KeyRing("two", algorithm, os.urandom).open_key(algorithm, made.wrapped)
    with pytest.raises(WrongKey, match="another key"):
        KeyRing("two", algorithm, os.urandom, prev_key="three").open_key(algorithm, made.wrapped)
    with pytest.raises(WrongKey, match="algorithm 9 is not known"):
        KeyRing("one", algorithm, os.urandom).open_key(9, made.wrapped)
    with pytest.raises(WrongKey, match="7 bytes are not sealed"):
        KeyRing("one", algorithm, os.urandom).open_key(algorithm, b"too few")


@BOTH
def test_the_key_before_opens_and_what_it_wrapped_is_wrapped_in_the_one_of_now(algorithm: int) -> None:
    made = KeyRing("one", algorithm, os.urandom).new_key()
    opened, rotated = KeyRing("two", algorithm, os.urandom, prev_key="one").open_key(algorithm, made.wrapped)
    assert rotated
    again, rotated = KeyRing("two", algorithm, os.urandom).open_key(algorithm, opened.wrapped)
    assert not rotated
    assert again.meta.open(made.meta.seal(b"text", b""), b"") == b"text"


@BOTH
def test_what_is_sealed_is_told_apart_by_what_it_is_about_and_by_its_purpose(algorithm: int) -> None:
    key = a_key(algorithm)
    with pytest.raises(WrongKey):
        key.meta.open(key.meta.seal(b"text", b"one"), b"two")
    with pytest.raises(WrongKey):
        key.sealer(b"log 1").open(key.sealer(b"log 2").seal(b"text", b""), b"")
    sealed = bytearray(key.meta.seal(b"text", b""))
    sealed[-1] ^= 1
    with pytest.raises(WrongKey):
        key.meta.open(bytes(sealed), b"")


@BOTH
def test_a_key_stream_is_the_same_from_everywhere(algorithm: int) -> None:
    key = a_key(algorithm)
    nonce = key.new_nonce()
    plain = Chance(b"plain")(200_000)
    whole = key.stream(algorithm, nonce).apply(plain, 0)
    assert whole != plain
    walker = key.stream(algorithm, nonce)
    for at in (0, 1, 15, 16, 17, 63, 64, 65, 4095, 65_536, 131_071, 70_000):
        assert key.stream(algorithm, nonce).apply(whole[at : at + 300], at) == plain[at : at + 300]
        assert walker.apply(whole[at : at + 300], at) == plain[at : at + 300]
    assert walker.apply(whole[70_300:71_000], 70_300) == plain[70_300:71_000]


@BOTH
def test_no_two_files_have_the_same_key_stream(algorithm: int) -> None:
    key = a_key(algorithm)
    first, second = key.new_nonce(), key.new_nonce()
    assert first != second
    zeros = bytes(64)
    assert key.stream(algorithm, first).apply(zeros, 0) != key.stream(algorithm, second).apply(zeros, 0)


def test_a_nonce_tells_whose_file_it_is() -> None:
    mine, other = a_key(CHACHA), a_key(CHACHA, "another secret")
    assert mine.fits(mine.new_nonce())
    assert not other.fits(mine.new_nonce())


def test_the_published_vectors_of_chacha20_and_aes_ctr() -> None:
    # The example of RFC 8439, 2.4.2 has a nonce, ours is zero; so this is test vector 1 of appendix A.1.
    from pyjs.store.crypt.keys import KeyStream

    expected = bytes.fromhex("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7")
    assert KeyStream(CHACHA, bytes(32)).apply(bytes(32), 0) == expected
    # AES-256 of a zero block under a zero key, FIPS 197.
    assert KeyStream(AES, bytes(32)).apply(bytes(16), 0) == bytes.fromhex("dc95c078a2408989ad48a21492842087")


def test_keys_show_nothing_of_themselves() -> None:
    key = a_key(CHACHA, "the secret")
    key_ring = KeyRing("the secret", CHACHA, os.urandom)
    assert "secret" not in repr(key_ring) + repr(key) + str(vars(key_ring))
    assert isinstance(key, StreamKey)
