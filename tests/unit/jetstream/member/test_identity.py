"""The number of a store, and the first members, which the store records."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyjs.base.disk import OsDisk
from pyjs.base.errors import CorruptRecord
from pyjs.base.log import ListLog
from pyjs.base.rng import SeededRng
from pyjs.jetstream.cluster.bootstrap import Member, Membership
from pyjs.jetstream.member.identity import NAME, StoreIdentity
from pyjs.store.format.meta import KIND_CLUSTER, encode


def identity(root: Path, seed: int = 1, log: ListLog | None = None) -> StoreIdentity:
    return StoreIdentity(OsDisk(), str(root), log or ListLog(), SeededRng(seed))


def test_a_store_has_one_number_for_ever(tmp_path: Path) -> None:
    first = identity(tmp_path)
    assert identity(tmp_path, seed=2).store == first.store


def test_what_was_adopted_is_known_after_a_new_start(tmp_path: Path) -> None:
    membership = Membership((Member(1, 10), Member(2, 20)))
    identity(tmp_path).adopt(membership)
    found = identity(tmp_path)
    assert (found.adopted, found.founded) == (membership, False)
    found.found()
    found.found()
    assert identity(tmp_path).founded


def test_one_damaged_copy_is_reported_and_the_other_one_used(tmp_path: Path) -> None:
    first, log = identity(tmp_path), ListLog()
    (tmp_path / f"{NAME}.a").write_bytes(b"x")
    assert identity(tmp_path, log=log).store == first.store
    assert "the other copy is used" in log.lines[0][1]


@pytest.mark.parametrize(
    "data", [b"x", encode(KIND_CLUSTER, 1, {}), encode(KIND_CLUSTER, 1, {"store": 1, "members": [1]})]
)
def test_a_store_without_an_intact_copy_does_not_start(tmp_path: Path, data: bytes) -> None:
    for copy in "ab":
        (tmp_path / f"{NAME}.{copy}").write_bytes(data)
    with pytest.raises(CorruptRecord):
        identity(tmp_path)
