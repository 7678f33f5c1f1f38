"""The check of a node log: it reports what a start will find, and changes nothing that a start needs."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from tests.support.node_logs import CONF, Write, content, synced

from pyjs.base.clock import VirtualClock
from pyjs.base.disk import OsDisk
from pyjs.base.log import ListLog
from pyjs.consensus.log.node_log import NodeLog
from pyjs.consensus.log.records import CHECK, hash_of
from pyjs.fsck.command import run

PEER = 1 << 32 | 1


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a store with the log of two groups, which was closed cleanly."""
    store = tmp_path / "jetstream"
    store.mkdir()
    (store / ".lock").touch()
    log = start(store, 1)
    log.create(1, "hurt", PEER, CONF, 1, 1)
    log.create(2, "whole", PEER, CONF, 1, 1)
    log.write(Write(1, (1, PEER, 1), 2, ((1, 1, bytes(40)),)), [b"A" * 20])
    log.write(Write(2, None, 2, ((1, 1, bytes(40)),)), [b"B" * 20])
    synced(log)
    log.close()
    return store


def start(store: Path, incarnation: int) -> NodeLog:
    log = NodeLog(OsDisk(), f"{store}/.raft", ListLog(), incarnation, file_size=4096)
    for _ in log.recover_steps():
        pass
    return log


def fsck(store: Path, *flags: str) -> tuple[int, list[str]]:
    out = io.StringIO()
    code = run([*flags, str(store)], OsDisk(), out, io.StringIO(), lambda count: bytes(count), VirtualClock())
    return code, out.getvalue().splitlines()


def change(path: Path, at: int, data: bytes) -> None:
    before = path.read_bytes()
    path.write_bytes(before[:at] + data + before[at + len(data) :])


def test_a_clean_log_is_counted(root: Path) -> None:
    assert fsck(root) == (
        0,
        [
            f"Store directory {root}",
            "Node log: 2 groups, 2 entries, 1 file, 1.0 KiB",
            "0 streams, 0 messages, 0 consumers: clean",
        ],
    )
    code, lines = fsck(root, "--json")
    report = json.loads(lines[0])
    assert (code, report["node_log"]["groups"], report["node_log"]["damaged"]) == (0, 2, 0)


def test_a_store_without_a_log_has_none_in_its_report(root: Path) -> None:
    for path in (root / ".raft").iterdir():
        path.unlink()
    (root / ".raft").rmdir()
    assert json.loads(fsck(root, "--json")[1][0])["node_log"] is None


def test_damage_names_file_place_and_groups_and_is_the_same_after_a_repair(root: Path) -> None:
    path = root / ".raft" / "00000001.log"
    at = path.read_bytes().index(b"A" * 20)
    change(path, at, b"X")
    before = path.read_bytes()
    line = (
        f"  DAMAGE .raft/00000001.log at {at - 152}, 172 bytes: the payload of index 2 is damaged;"
        " groups that must come back as new replicas: 1 'hurt'"
    )
    for flags in ([], ["--repair"]):
        code, lines = fsck(root, *flags)
        assert (code, lines[2]) == (1, line)
    assert path.read_bytes() == before

    log = start(root, 2)
    assert [group.is_damaged for group in log.groups.values()] == [True, False]
    log.close()
    assert "  note .raft: it lost a part of its log earlier;" in "\n".join(fsck(root)[1])


@pytest.mark.parametrize("at", [0, 4096 - 72])
def test_a_damaged_copy_of_a_header_is_repaired(root: Path, at: int) -> None:
    path = root / ".raft" / "00000001.log"
    before = path.read_bytes()
    change(path, at + 30, b"\xaa")
    code, lines = fsck(root)
    assert code == 1
    assert (
        f"  DAMAGE .raft/00000001.log at {at}, 72 bytes: one of two copies of the header is damaged" in lines
    )

    code, lines = fsck(root, "--repair")
    assert code == 1
    assert "  repaired: .raft/00000001.log has both copies of its header again" in lines
    assert path.read_bytes() == before
    assert fsck(root)[0] == 0


def test_remains_and_strangers_are_notes(root: Path) -> None:
    for name in ("fresh.tmp", ".damaged-0-00000007.log", "other", "00000009.spare", ".unsynced"):
        (root / ".raft" / name).write_bytes(b"x")
    (root / ".raft" / "00000002.log").write_bytes(bytes(4096))
    notes = [line for line in fsck(root)[1] if line.startswith("  note")]
    assert [note.split(":")[0] for note in notes] == [
        "  note .raft/.damaged-0-00000007.log",
        "  note .raft/.unsynced",
        "  note .raft/fresh.tmp",
        "  note .raft/other",
        "  note .raft/00000002.log",
    ]
    assert "  repaired: .raft/fresh.tmp is removed" in fsck(root, "--repair")[1]
    assert not (root / ".raft" / "fresh.tmp").exists()


def test_a_log_of_another_version_is_not_checked(root: Path) -> None:
    path = root / ".raft" / "00000001.log"
    data = bytearray(path.read_bytes())
    for at in (0, 4096 - 72):
        data[at + 8] = 2
        data[at + 64 : at + 72] = CHECK.pack(hash_of(bytes(data[at : at + 64])))
    path.write_bytes(data)
    code, lines = fsck(root)
    assert code == 2
    assert (
        "NOT CHECKED .raft: .raft/00000001.log has format 2, this version reads 1: use pyjs-server 0.1"
        in lines[1]
    )


def test_a_check_changes_nothing(root: Path) -> None:
    before = {path.name: path.read_bytes() for path in (root / ".raft").iterdir()}
    fsck(root)
    assert {path.name: path.read_bytes() for path in (root / ".raft").iterdir()} == before
    assert len(content(start(root, 2))) == 2
