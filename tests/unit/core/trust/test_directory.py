"""The directory of tokens: files are written whole, damaged ones are reported, and their number is limited."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from pyjs.base.clock import NS_PER_S, VirtualClock
from pyjs.base.disk import OsDisk
from pyjs.base.log import ListLog
from pyjs.config.options import ResolverOptions
from pyjs.core.trust.directory import DirectoryFault, TokenDirectory
from pyjs.testing.jwt import Key, account_token

OPERATOR = Key("operator", b"o" * 32)
A, B = Key("account", b"a" * 32), Key("account", b"b" * 32)
TOKEN_A, TOKEN_B = account_token(OPERATOR, A, issued_at=5), account_token(OPERATOR, B, issued_at=5)


class Fixture:
    def __init__(self, path: Path, kind: str = "full", **options: object) -> None:
        self.path, self.clock, self.log = path, VirtualClock(), ListLog()
        given = ResolverOptions(kind, dir=str(path), **options)  # type: ignore[arg-type]
        self.directory = TokenDirectory(OsDisk(), given, self.clock, self.log)
        self.directory.open()

    def files(self) -> list[str]:
        return sorted(path.name for path in self.path.iterdir())


def test_a_token_is_found_after_a_restart(tmp_path: Path) -> None:
    assert Fixture(tmp_path).directory.save(A.public, TOKEN_A)
    again = Fixture(tmp_path)
    assert again.directory.names == [A.public]
    assert again.directory.load(A.public) == TOKEN_A
    assert again.directory.load(B.public) is None
    assert again.directory.load("../secret") is None
    assert again.files() == [f"{A.public}.jwt"]


def test_the_same_token_is_not_written_again(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path)
    assert fixture.directory.save(A.public, TOKEN_A)
    assert not fixture.directory.save(A.public, TOKEN_A)


def test_an_older_token_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path)
    newer = account_token(OPERATOR, A, issued_at=9)
    for text in (TOKEN_A, newer, TOKEN_A):
        fixture.directory.save_newer(A.public, text)
    assert fixture.directory.load(A.public) == newer


@pytest.mark.parametrize("content", [TOKEN_A[:-9], "", "é", TOKEN_B])
def test_a_damaged_file_is_named_and_not_used(content: str, tmp_path: Path) -> None:
    (tmp_path / f"{A.public}.jwt").write_text(content)
    fixture = Fixture(tmp_path)
    assert fixture.directory.load(A.public) is None
    assert f"{A.public}.jwt" in str(fixture.log.lines)


def test_a_full_directory_takes_no_more(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path, limit=1)
    fixture.directory.save(A.public, TOKEN_A)
    with pytest.raises(DirectoryFault, match="jwt store is full"):
        fixture.directory.save(B.public, TOKEN_B)


def test_a_cache_drops_the_file_that_was_not_used_for_the_longest_time(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path, "cache", limit=1, ttl_ns=5 * NS_PER_S)
    fixture.directory.save(A.public, TOKEN_A)
    fixture.directory.save(B.public, TOKEN_B)
    assert fixture.files() == [f"{B.public}.jwt"]
    fixture.clock.advance(6 * NS_PER_S)
    assert fixture.directory.load(B.public) is None
    assert fixture.files() == []


def test_an_unused_file_that_cannot_be_removed_does_not_keep_another_account_from_its_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given
    def refuse(disk: OsDisk, path: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    fixture = Fixture(tmp_path, "cache", ttl_ns=5 * NS_PER_S)
    fixture.directory.save(A.public, TOKEN_A)
    fixture.clock.advance(3 * NS_PER_S)
    fixture.directory.save(B.public, TOKEN_B)
    monkeypatch.setattr(OsDisk, "unlink", refuse)
    # when
    fixture.clock.advance(3 * NS_PER_S)
    found = [fixture.directory.load(B.public) for _ in range(2)]
    # then
    assert found == [TOKEN_B, TOKEN_B]
    assert fixture.directory.names == [B.public]
    reason = f"remove {tmp_path}/{A.public}.jwt: permission denied"
    assert fixture.log.lines == [("ERR", f"Account [{A.public}] is unused and cannot be removed: {reason}")]


def test_a_file_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path, "cache", ttl_ns=5 * NS_PER_S)
    fixture.directory.save(A.public, TOKEN_A)
    (tmp_path / f"{A.public}.jwt").unlink()
    assert fixture.directory.load(A.public) is None
    assert fixture.directory._used_ns == {}


@pytest.mark.parametrize(("hard", "left"), [(True, []), (False, [f"{A.public}.jwt.deleted"])])
def test_removal(hard: bool, left: list[str], tmp_path: Path) -> None:
    fixture = Fixture(tmp_path, allow_delete=True, hard_delete=hard)
    fixture.directory.save(A.public, TOKEN_A)
    assert fixture.directory.delete(A.public)
    assert not fixture.directory.delete(A.public)
    assert fixture.files() == left


def test_removal_needs_permission(tmp_path: Path) -> None:
    with pytest.raises(DirectoryFault, match="not set up"):
        Fixture(tmp_path).directory.delete(A.public)


def test_files_changed_by_others_are_found(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path)
    fixture.directory.save(A.public, TOKEN_A)
    assert fixture.directory.changed() == []
    (tmp_path / f"{A.public}.jwt").write_text(account_token(OPERATOR, A, issued_at=9))
    assert fixture.directory.changed() == [A.public]


def test_the_digest_does_not_depend_on_the_order(tmp_path: Path) -> None:
    one, other = Fixture(tmp_path / "a"), Fixture(tmp_path / "b")
    for fixture, order in ((one, (A, B)), (other, (B, A))):
        for key in order:
            fixture.directory.save(key.public, TOKEN_A if key is A else TOKEN_B)
    assert one.directory.digest() == other.directory.digest() != bytes(32)
