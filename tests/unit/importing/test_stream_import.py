"""Streams in nats-server's store directory are imported unchanged, or refused without leaving anything behind."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.support.disk import FaultyDisk
from tests.support.nats_stores import (
    GOLDEN,
    NAMES,
    Imports,
    block_record,
    files_of,
    make_source,
    write_stream,
)

from pyjs.archive.highway import highway_hash
from pyjs.base.disk import OsDisk
from pyjs.testing import RawClient, VirtualNode


def ask(client: RawClient, subject: str, body: object = None) -> dict[str, Any]:
    data = b"" if body is None else json.dumps(body).encode()
    return dict(json.loads(client.request(f"$JS.API.{subject}".encode(), data).payload))


def with_meta(files: dict[str, bytes], **changes: object) -> dict[str, bytes]:
    """Return the files, with a changed configuration and its new checksum."""
    values = {**json.loads(files["meta.inf"]), **changes}
    meta = json.dumps(values).encode()
    return files | {"meta.inf": meta, "meta.sum": highway_hash(values["name"].encode(), meta).hex().encode()}


@pytest.fixture
def imports(tmp_path: Path) -> Imports:
    return Imports(tmp_path)


def place(tmp_path: Path, name: str, files: dict[str, bytes]) -> str:
    write_stream(tmp_path / "source" / "jetstream" / "$G" / "streams" / name, files)
    return str(tmp_path / "source")


def test_every_stream_is_the_same_afterwards(imports: Imports, tmp_path: Path) -> None:
    # when
    code = imports.run(str(make_source(tmp_path / "source")))
    # then
    assert (code, imports.err) == (0, "")
    assert imports.out.splitlines()[-1] == "Imported 4 streams with 205 messages"
    with VirtualNode(imports.options) as node:
        client = node.client()
        for name in NAMES:
            wanted, state = GOLDEN[name]["state"], ask(client, f"STREAM.INFO.{name}")["state"]
            for field in ("messages", "bytes", "first_seq", "last_seq", "first_ts"):
                assert state[field] == wanted[field], field
            assert state.get("num_deleted", 0) == wanted.get("num_deleted", 0)
            for seq, subject, time in GOLDEN[name]["messages"]:
                message = ask(client, f"STREAM.MSG.GET.{name}", {"seq": seq})["message"]
                assert (message["subject"], message["time"]) == (subject, time)
            for consumer, numbers in GOLDEN[name]["consumers"].items():
                info = ask(client, f"CONSUMER.INFO.{name}.{consumer}")
                for field in ("num_ack_pending", "num_redelivered", "num_pending", "ack_floor", "delivered"):
                    assert info[field] == numbers[field], field


def test_a_damaged_record_is_left_out_and_reported(imports: Imports, tmp_path: Path) -> None:
    # given
    files = files_of("QUEUE")
    block = bytearray(files["msgs/1.blk"])
    block[len(block) // 2] ^= 1
    # when
    code = imports.run(place(tmp_path, "QUEUE", files | {"msgs/1.blk": bytes(block)}))
    # then
    assert code == 1
    assert "$G > QUEUE: 168 messages" in imports.out
    assert "  DAMAGE: message block 1 is damaged: the record at " in imports.out
    assert "  DAMAGE: the index counts 169 messages, the blocks have 168\n" in imports.out
    assert "  lost: 1 message, sequences " in imports.out
    assert imports.left() == []


def test_a_damaged_record_of_a_removed_message_loses_nothing(imports: Imports, tmp_path: Path) -> None:
    # given
    files = files_of("QUEUE")
    block = bytearray(files["msgs/1.blk"])
    block[100] ^= 1
    # when, then
    assert imports.run(place(tmp_path, "QUEUE", files | {"msgs/1.blk": bytes(block)})) == 1
    assert "$G > QUEUE: 169 messages" in imports.out
    assert "lost: " not in imports.out


def test_the_rest_of_a_block_is_lost_if_no_record_follows(imports: Imports, tmp_path: Path) -> None:
    # given
    files = files_of("QUEUE")
    cut = files["msgs/1.blk"][: len(files["msgs/1.blk"]) // 2]
    # when
    code = imports.run(place(tmp_path, "QUEUE", files | {"msgs/1.blk": cut}))
    # then
    assert code == 1
    assert "message block 1 is damaged: it ends within the record at " in imports.out
    assert "  lost: at most " in imports.out


def test_a_block_that_cannot_be_read_is_reported(imports: Imports, tmp_path: Path) -> None:
    # given
    source = make_source(tmp_path / "source", names=("QUEUE",))

    class Failing(OsDisk):
        def read_at(self, fd: int, size: int, offset: int) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

    imports.disk = Failing()
    # when
    code = imports.run(str(source))
    # then
    assert code == 1
    assert "  DAMAGE: message block 1 cannot be read: Input/output error\n" in imports.out


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"metadata": {"_nats.req.level": "99"}}, "required API level: 99"),
        ({"storage": "memory"}, "it is a stream in memory"),
        ({"surprise": 1}, 'unknown field "surprise"'),
        ({"name": "OTHER"}, "does not fit its checksum"),
        ({"max_age": -5}, "max age"),
    ],
)
def test_a_configuration_that_cannot_be_served_is_refused(
    imports: Imports, tmp_path: Path, changes: dict[str, object], told: str
) -> None:
    # when
    code = imports.run(place(tmp_path, "QUEUE", with_meta(files_of("QUEUE"), **changes)))
    # then
    assert code == 1
    assert "$G > QUEUE: NOT TAKEN: " in imports.out
    assert told in imports.out
    assert imports.left() == []


@pytest.mark.parametrize("meta", [b"", b"[]", b"7", b"{", b'{"name":"QUEUE","metadata":7}', b"[" * 100_000])
def test_metadata_that_is_none_is_refused(imports: Imports, tmp_path: Path, meta: bytes) -> None:
    # given
    files = files_of("QUEUE") | {"meta.inf": meta, "meta.sum": highway_hash(b"QUEUE", meta).hex().encode()}
    # when, then
    assert imports.run(place(tmp_path, "QUEUE", files)) == 1
    assert "$G > QUEUE: NOT TAKEN: " in imports.out


def test_a_stream_without_metadata_is_refused(imports: Imports, tmp_path: Path) -> None:
    # given
    files = {path: data for path, data in files_of("QUEUE").items() if path != "meta.inf"}
    # when, then
    assert imports.run(place(tmp_path, "QUEUE", files)) == 1
    assert "NOT TAKEN: it has no meta.inf" in imports.out


@pytest.mark.parametrize("key", ["meta.key", "msgs/1.key"])
def test_an_encrypted_stream_is_refused(imports: Imports, tmp_path: Path, key: str) -> None:
    # when, then
    assert imports.run(place(tmp_path, "QUEUE", files_of("QUEUE") | {key: bytes(72)})) == 1
    assert "NOT TAKEN: it is encrypted" in imports.out


def test_more_replicas_become_one(imports: Imports, tmp_path: Path) -> None:
    # when, then
    assert imports.run(place(tmp_path, "QUEUE", with_meta(files_of("QUEUE"), num_replicas=3))) == 0
    assert "  note: it had 3 replicas and has one here\n" in imports.out


def test_a_message_that_is_refused_here_costs_only_itself(imports: Imports, tmp_path: Path) -> None:
    # given
    files = {name: data for name, data in files_of("QUEUE").items() if not name.startswith(("msgs/", "obs/"))}
    block = block_record("QUEUE", 1, 1, b"a") + block_record("QUEUE", 1, 2, b"b", b"NATS/1.0\r\nno end")
    files["msgs/1.blk"] = block + block_record("QUEUE", 1, 3, b"c")
    # when, then
    assert imports.run(place(tmp_path, "QUEUE", files)) == 1
    assert "$G > QUEUE: 2 messages" in imports.out
    assert "message sequence 2 has no valid headers" in imports.out


def test_many_damages_of_a_block_are_counted(imports: Imports, tmp_path: Path) -> None:
    # given
    files = {name: data for name, data in files_of("QUEUE").items() if not name.startswith(("msgs/", "obs/"))}
    bad = b"NATS/1.0\r\nno end"
    files["msgs/1.blk"] = b"".join(block_record("QUEUE", 1, seq, b"", bad) for seq in range(1, 1001))
    # when, then
    assert imports.run(place(tmp_path, "QUEUE", files)) == 1
    assert imports.out.count("DAMAGE") == 21
    assert "980 more of its records cannot be used" in imports.out


def test_replicas_of_consumers_become_one_too(imports: Imports, tmp_path: Path) -> None:
    # given
    files = with_meta(files_of("QUEUE"), num_replicas=3)
    meta = json.dumps({**json.loads(files["obs/worker/meta.inf"]), "num_replicas": 3}).encode()
    check = highway_hash(b"QUEUE/worker", meta).hex().encode()
    files |= {"obs/worker/meta.inf": meta, "obs/worker/meta.sum": check}
    # when, then
    assert imports.run(place(tmp_path, "QUEUE", files)) == 0
    with VirtualNode(imports.options) as node:
        assert ask(node.client(), "CONSUMER.INFO.QUEUE.worker")["config"]["num_replicas"] == 1


@pytest.mark.parametrize("name", ["msgs/7.blk", "msgs/odd", "meta.inf", "msgs/index.db", "obs/worker/o.dat"])
@pytest.mark.timeout(30)
def test_a_pipe_is_no_file(imports: Imports, tmp_path: Path, name: str) -> None:
    # given
    source = place(tmp_path, "QUEUE", files_of("QUEUE"))
    path = Path(source) / "jetstream" / "$G" / "streams" / "QUEUE" / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    # when, then
    assert imports.run(source) == (0 if name in ("msgs/odd", "msgs/index.db") else 1)
    assert imports.left() == []


@pytest.mark.timeout(30)
def test_a_file_without_end_is_refused(imports: Imports, tmp_path: Path) -> None:
    # given
    source = place(tmp_path, "QUEUE", files_of("QUEUE"))
    path = Path(source) / "jetstream" / "$G" / "streams" / "QUEUE" / "meta.inf"
    path.unlink()
    path.symlink_to("/dev/zero")
    # when, then
    assert imports.run(source) == 1
    assert "not a regular file" in imports.out


def test_one_unreadable_block_or_consumer_costs_no_other(imports: Imports, tmp_path: Path) -> None:
    # given
    source = place(tmp_path, "QUEUE", files_of("QUEUE"))
    stream = Path(source) / "jetstream" / "$G" / "streams" / "QUEUE"
    (stream / "msgs" / "7.blk").symlink_to(tmp_path / "nothing")
    with (stream / "obs" / "worker" / "o.dat").open("r+b") as file:
        file.truncate(65 << 20)
    # when, then
    assert imports.run(source) == 1
    assert "$G > QUEUE: 169 messages" in imports.out
    assert "message block 7 cannot be read" in imports.out
    assert "consumer 'worker' is not taken: " in imports.out


@pytest.mark.parametrize(
    ("file", "data"), [("o.dat", b"\x16\x07"), ("meta.inf", b"{}"), ("meta.sum", b"0" * 16)]
)
def test_a_damaged_consumer_is_left_out(imports: Imports, tmp_path: Path, file: str, data: bytes) -> None:
    # given
    files = files_of("QUEUE") | {f"obs/worker/{file}": data}
    # when, then
    assert imports.run(place(tmp_path, "QUEUE", files)) == 1
    assert "$G > QUEUE: 169 messages, " in imports.out
    assert "  DAMAGE: consumer 'worker' is not taken: " in imports.out


def test_a_stream_whose_name_is_taken_is_refused(imports: Imports, tmp_path: Path) -> None:
    # given
    source = str(make_source(tmp_path / "source", names=("QUEUE", "PURGED")))
    assert imports.run(source) == 0
    # when, then
    assert imports.run(source) == 1
    assert "$G > QUEUE: NOT TAKEN: a stream 'QUEUE' is in the store already\n" in imports.out
    assert imports.out.endswith("Imported 0 streams with 0 messages; 2 streams not taken\n")


def test_a_stream_whose_subjects_are_taken_is_refused(imports: Imports, tmp_path: Path) -> None:
    # given
    with VirtualNode(imports.options) as node:
        subjects = GOLDEN["QUEUE"]["config"]["subjects"]
        ask(node.client(), "STREAM.CREATE.ELSE", {"name": "ELSE", "subjects": subjects})
    # when, then
    assert imports.run(str(make_source(tmp_path / "source", names=("QUEUE",)))) == 1
    assert "NOT TAKEN: its subject " in imports.out


def test_nothing_is_left_of_a_stream_that_cannot_be_written(imports: Imports, tmp_path: Path) -> None:
    # given
    class Full(OsDisk):
        def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> None:
            if len(data) > 4096:
                raise OSError(errno.ENOSPC, "No space left on device")
            super().write_at(fd, data, offset)

    imports.disk = Full()
    # when, then
    assert imports.run(str(make_source(tmp_path / "source", names=("QUEUE",)))) == 1
    assert "$G > QUEUE: NOT TAKEN: " in imports.out
    assert "No space left on device" in imports.out
    assert imports.left() == []
    assert list((imports.store / "$G" / "streams").iterdir()) == []


def test_a_stream_that_changes_meanwhile_is_refused(imports: Imports, tmp_path: Path) -> None:
    # given
    source = make_source(tmp_path / "source", names=("QUEUE",))
    block = source / "jetstream" / "$G" / "streams" / "QUEUE" / "msgs" / "1.blk"

    class Growing(OsDisk):
        def read_at(self, fd: int, size: int, offset: int) -> bytes:
            data = super().read_at(fd, size, offset)
            block.write_bytes(block.read_bytes() + b"x")
            return data

    imports.disk = Growing()
    # when, then
    assert imports.run(str(source)) == 1
    assert "NOT TAKEN: its files changed meanwhile: stop nats-server first" in imports.out
    assert imports.left() == []


def test_the_report_and_the_store_agree_whatever_call_of_the_disk_fails(tmp_path: Path) -> None:
    source, failed, at = str(make_source(tmp_path / "source", names=("QUEUE",))), 0, 0
    while True:
        # given
        imports = Imports(tmp_path / str(at))
        disk = imports.disk = FaultyDisk(at, errno.EIO)
        # when
        imports.run(source)
        # then
        with VirtualNode(imports.options) as node:
            names = ask(node.client(), "STREAM.NAMES")["streams"] or []
        assert names == (["QUEUE"] if "$G > QUEUE: 169 messages" in imports.out else []), (at, imports.out)
        if disk.calls <= at:
            break
        failed += not names
        at += 1
    assert failed > 20


def test_a_stream_that_cannot_be_taken_back_is_named(imports: Imports, tmp_path: Path) -> None:
    # given
    class Stuck(OsDisk):
        def sync_dir(self, path: str) -> None:
            if path.endswith("/streams") and self.exists(f"{path}/QUEUE"):
                raise OSError(errno.EIO, "Input/output error")
            super().sync_dir(path)

        def rename(self, old: str, new: str) -> None:
            if old.endswith("/QUEUE") and "deleting" in new:
                raise OSError(errno.EIO, "Input/output error")
            super().rename(old, new)

    imports.disk = Stuck()
    # when
    code = imports.run(str(make_source(tmp_path / "source", names=("QUEUE",))))
    # then
    assert code == 1
    assert "$G > QUEUE: NOT TAKEN: " in imports.out
    assert "what was written stays and may be incomplete: remove it" in imports.out
