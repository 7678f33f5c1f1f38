"""The names of files below a store directory."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.disk import Crash, FaultyDisk

from pyjs.base.disk import OsDisk
from pyjs.store.format.layout import (
    NAME_SIZE_MAX,
    StoreLocked,
    file_name,
    finish_removals,
    hide_directory,
    lock_store,
    make_directory,
    set_aside,
)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ORDERS", "ORDERS"),
        ("$G", "$G"),
        ("KV_a-b", "KV_a-b"),
        ("..", "%2E%2E"),
        ("a/b", "a%2Fb"),
        ("50%", "50%25"),
        ("é", "%C3%A9"),
        (" ", "%20"),
    ],
)
def test_names_are_escaped(name: str, expected: str) -> None:
    assert file_name(name) == expected


@given(st.lists(st.text(min_size=1, max_size=300), min_size=2, max_size=5, unique=True))
def test_different_names_have_different_files_that_stay_in_their_place(given_names: list[str]) -> None:
    given_names = [name for name in given_names if name.isprintable()]
    files = [file_name(name) for name in given_names]
    assert len(set(files)) == len(files)
    assert all("/" not in name and not name.startswith(".") for name in files)
    assert all(len(name.encode()) <= NAME_SIZE_MAX for name in files)


def test_long_names_differ_by_their_digest() -> None:
    a, b = file_name("x" * 200 + "a"), file_name("x" * 200 + "b")
    assert a != b
    assert len(a) <= NAME_SIZE_MAX


def test_a_directory_is_made_with_those_above_it_and_its_names_are_synced(tmp_path: Path) -> None:
    synced: list[str] = []

    class Watched(OsDisk):
        def sync_dir(self, path: str) -> None:
            synced.append(path)

    make_directory(Watched(), f"{tmp_path}/a/b/c")
    assert (tmp_path / "a/b/c").is_dir()
    assert synced == [f"{tmp_path}/a/b", f"{tmp_path}/a", f"{tmp_path}"]
    make_directory(Watched(), f"{tmp_path}/a/b/c")
    assert len(synced) == 3


def test_relative_directories_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_directory(OsDisk(), "store/jetstream")
    assert (tmp_path / "store/jetstream").is_dir()


def test_a_second_server_is_told_whose_directory_it_is(tmp_path: Path) -> None:
    disk = OsDisk()
    lock = lock_store(disk, f"{tmp_path}/jetstream")
    with pytest.raises(
        StoreLocked, match=f"{tmp_path}/jetstream is in use by another server; stop it or choose"
    ):
        lock_store(disk, f"{tmp_path}/jetstream")
    lock.release()
    lock_store(disk, f"{tmp_path}/jetstream").release()


def test_a_second_server_is_kept_out_when_the_lock_file_was_removed(tmp_path: Path) -> None:
    disk = OsDisk()
    lock = lock_store(disk, f"{tmp_path}/jetstream")
    (tmp_path / "jetstream/.lock").unlink()
    with pytest.raises(StoreLocked):
        lock_store(disk, f"{tmp_path}/jetstream")
    lock.release()
    lock_store(disk, f"{tmp_path}/jetstream").release()


class WithoutDirectoryLocks(OsDisk):
    """A file system that locks only files, as NFS does."""

    def __init__(self, code: int) -> None:
        self.code = code

    def lock_directory(self, path: str, *, shared: bool = False) -> int:
        raise OSError(self.code, "no such lock", path)


def test_a_file_system_that_locks_no_directories_has_the_lock_file(tmp_path: Path) -> None:
    disk = WithoutDirectoryLocks(errno.EBADF)
    lock = lock_store(disk, f"{tmp_path}/jetstream")
    with pytest.raises(StoreLocked):
        lock_store(disk, f"{tmp_path}/jetstream")
    lock.release()
    with pytest.raises(OSError, match="no such lock"):
        lock_store(WithoutDirectoryLocks(errno.EACCES), f"{tmp_path}/jetstream")


def test_what_was_hidden_is_removed_by_the_next_start(tmp_path: Path) -> None:
    disk = OsDisk()
    for _ in range(2):
        (tmp_path / "S/msgs").mkdir(parents=True)
        hide_directory(disk, f"{tmp_path}/S")
    assert names(tmp_path) == [".deleting-0-S", ".deleting-1-S"]
    assert finish_removals(disk, str(tmp_path)) == []
    assert names(tmp_path) == []
    assert finish_removals(disk, f"{tmp_path}/none") == []


def test_what_cannot_be_removed_is_reported(tmp_path: Path) -> None:
    (tmp_path / ".deleting-0-S").mkdir()
    problems = finish_removals(FaultyDisk(0, 13), str(tmp_path))
    assert len(problems) == 1
    assert problems[0].startswith(f"{tmp_path}/.deleting-0-S cannot be removed: ")


def test_what_is_set_aside_keeps_everything(tmp_path: Path) -> None:
    for text in ("first", "second"):
        (tmp_path / "S").mkdir()
        (tmp_path / "S/f").write_text(text)
        set_aside(OsDisk(), f"{tmp_path}/S")
    assert names(tmp_path) == [".damaged-0-S", ".damaged-1-S"]
    assert (tmp_path / ".damaged-1-S/f").read_text() == "second"
    assert finish_removals(OsDisk(), str(tmp_path)) == []
    assert len(names(tmp_path)) == 2


def test_a_crash_while_hiding_leaves_one_name(tmp_path: Path) -> None:
    for at in range(2):
        (tmp_path / f"S{at}").mkdir()
        with pytest.raises(Crash):
            hide_directory(FaultyDisk(at), f"{tmp_path}/S{at}")
    assert names(tmp_path) == [".deleting-0-S1", "S0"]
