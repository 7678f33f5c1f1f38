"""Archives of version 1, made by nats-server 2.12.8: restored completely, or refused with nothing left behind."""

from __future__ import annotations

import base64
import io
import json
import random
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import archive_bytes as made
from tests.support.archive_bytes import Restores

from pyjs.archive.frames import FrameReader

GOLDEN = json.loads(
    (Path(__file__).parents[3] / "golden" / "archives" / "nats-server-2.12.8.json").read_bytes()
)
FUZZ_CASES = 300


def golden_tar(name: str) -> bytes:
    return b"".join(FrameReader().add(base64.b64decode(GOLDEN[name]["archive"])))


def tar_of(files: dict[str, bytes], kind: bytes = tarfile.REGTYPE) -> bytes:
    """Return an archive with these files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.type = len(data), kind
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def files_of(name: str) -> dict[str, bytes]:
    """Return the files of a golden archive."""
    with tarfile.open(fileobj=io.BytesIO(golden_tar(name))) as tar:
        found = {each.name: tar.extractfile(each) for each in tar}
    return {name: file.read() for name, file in found.items() if file is not None}


def restore(restores: Restores, name: str, tar: bytes) -> dict[str, Any]:
    """Restore the archive as the stream S or, for another name, under that name."""
    config = json.dumps({"config": GOLDEN[name]["config"]}).encode()
    answer = json.loads(restores.client.request(f"$JS.API.STREAM.RESTORE.{name}".encode(), config).payload)
    if "error" in answer:
        return dict(answer)
    subject, data = answer["deliver_subject"].encode(), made.framed(tar)
    for at in range(0, len(data), 1000):
        reply = restores.client.request(subject, data[at : at + 1000])
        if reply.payload:
            return dict(json.loads(reply.payload))
    return dict(json.loads(restores.client.request(subject, b"").payload))


@pytest.fixture
def restores(tmp_path: Path) -> Iterator[Restores]:
    found = Restores(tmp_path)
    yield found
    found.node.node.stop()


@pytest.mark.parametrize("name", list(GOLDEN))
def test_an_old_archive_gives_the_same_stream(restores: Restores, name: str) -> None:
    # when
    answer = restore(restores, name, golden_tar(name))
    # then
    assert "error" not in answer, answer
    wanted, state = GOLDEN[name]["state"], answer["state"]
    for field in ("messages", "bytes", "first_seq", "last_seq", "first_ts"):
        assert state[field] == wanted[field], field
    assert state.get("num_deleted", 0) == wanted.get("num_deleted", 0)
    for seq, subject, time in GOLDEN[name]["messages"]:
        message = restores.ask(f"STREAM.MSG.GET.{name}", {"seq": seq})["message"]
        assert (message["subject"], message["time"]) == (subject, time)
    for consumer, numbers in GOLDEN[name]["consumers"].items():
        info = restores.ask(f"CONSUMER.INFO.{name}.{consumer}")
        assert info["num_ack_pending"] == numbers["num_ack_pending"]
        assert info["ack_floor"] == numbers["ack_floor"]
        assert info["delivered"] == numbers["delivered"]


def test_without_the_index_tombstones_remove_messages(restores: Restores) -> None:
    # given
    files = {name: data for name, data in files_of("QUEUE").items() if name != "msgs/index.db"}
    # when
    answer = restore(restores, "QUEUE", tar_of(files))
    # then
    assert answer["state"]["messages"] == GOLDEN["QUEUE"]["state"]["messages"]
    assert answer["state"]["last_seq"] == GOLDEN["QUEUE"]["state"]["last_seq"]


def test_a_damaged_block_is_refused_by_name(restores: Restores) -> None:
    # given
    files = files_of("QUEUE")
    damaged = bytearray(files["msgs/1.blk"])
    damaged[100] ^= 1
    # when
    answer = restore(restores, "QUEUE", tar_of(files | {"msgs/1.blk": bytes(damaged)}))
    # then
    assert "message block 1 is damaged" in answer["error"]["description"]
    assert made.names(restores.client) == []
    assert restores.left() == []


@pytest.mark.parametrize("name", ["/etc/passwd", "../meta.inf", "msgs/../../x", "a//b"])
def test_names_outside_the_archive_are_refused(restores: Restores, name: str) -> None:
    # when
    answer = restore(restores, "QUEUE", tar_of(files_of("QUEUE") | {name: b"x"}))
    # then
    assert "unexpected content" in answer["error"]["description"]
    assert restores.left() == []


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_links_and_directories_are_refused(restores: Restores, kind: bytes) -> None:
    # when
    answer = restore(restores, "QUEUE", tar_of({"msgs": b""}, kind))
    # then
    assert "unexpected content" in answer["error"]["description"]


def test_an_archive_without_its_end_is_refused(restores: Restores) -> None:
    # given
    tar = golden_tar("QUEUE").rstrip(b"\0")
    # when
    answer = restore(restores, "QUEUE", tar[: len(tar) // 512 * 512])
    # then
    assert "backup was truncated" in answer["error"]["description"]
    assert restores.left() == []


def test_a_failure_of_the_server_that_made_the_archive_is_told(restores: Restores) -> None:
    # when
    answer = restore(restores, "QUEUE", tar_of(files_of("QUEUE") | {"errors.txt": b"could not read block"}))
    # then
    assert "could not read block" in answer["error"]["description"]


@pytest.mark.timeout(300)
def test_damaged_old_archives_leave_a_whole_stream_or_nothing(restores: Restores) -> None:
    # given
    rng, tar, refused = random.Random(1), golden_tar("QUEUE"), 0
    tar = tar[: len(tar.rstrip(b"\0")) + 1024]
    for case in range(FUZZ_CASES):
        damaged = bytearray(tar)
        if case % 3 == 0:
            del damaged[rng.randrange(len(damaged)) :]
        else:
            damaged[rng.randrange(len(damaged))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        # when
        answer = restore(restores, "QUEUE", bytes(damaged))
        # then
        if "error" in answer:
            refused += 1
            assert made.names(restores.client) == [], f"case {case}"
        else:
            assert restores.ask("STREAM.DELETE.QUEUE")["success"], f"case {case}"
    assert refused > FUZZ_CASES // 3
    assert restores.left() == []
