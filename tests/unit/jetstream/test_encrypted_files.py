"""Streams encrypted at rest: right keys, wrong keys, and streams from before encryption was enabled."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.disk import Crash, FaultyDisk, crash_is_printed
from tests.support.stored_streams import WriterAtOnce, account_files, change_stream, create_stream
from tests.unit.jetstream.changes import make_consumer

from pyjs.base.disk import OsDisk
from pyjs.base.errors import StoreFailed
from pyjs.base.log import ListLog
from pyjs.jetstream.config.choices import S2
from pyjs.jetstream.config.consumer import ConsumerConfig
from pyjs.jetstream.config.stream import StreamConfig
from pyjs.jetstream.manage.persist import StoredConsumer
from pyjs.store.crypt.keys import AES, ALGORITHMS, CHACHA, KeyRing
from pyjs.store.file.store import FileStore

CONFIG = StreamConfig(
    "S", description="a description", subjects=("subject.*",), metadata={"label": "of mine"}
)
CONSUMER = ConsumerConfig(durable_name="c", description="for whom", ack_policy="explicit")
WORDS = (
    b"a description",
    b"subject.",
    b"label",
    b"payload",
    b"for whom",
    b"the state",
    b"a delta",
    b"message-id",
)
CIPHERS = pytest.mark.parametrize("algorithm", list(ALGORITHMS.values()), ids=list(ALGORITHMS))


class Files:
    """The files of one account; each start can use another key."""

    def __init__(
        self,
        root: Path,
        key: str = "",
        prev_key: str = "",
        algorithm: int = CHACHA,
        disk: OsDisk | None = None,
    ) -> None:
        self.root = root
        self.log = ListLog()
        key_ring = KeyRing(key, algorithm, os.urandom, prev_key) if key else None
        self.disk = disk or OsDisk()
        self.files = account_files(self.disk, str(root), "A", self.log, lambda: 5, key_ring)
        self.writer = WriterAtOnce(root, disk)

    @property
    def stream(self) -> Path:
        return self.root / "A/streams/S"

    def fill(self, config: StreamConfig = CONFIG) -> None:
        store = create_stream(self.files, self.writer, config, 77)
        for number in range(60):
            store.store(b"subject.%d" % (number % 3), b"", b"payload %d " % number * 20, 1000 + number)
        store.close()
        file = make_consumer(self.files, self.disk, self.root, CONSUMER, b"the state")
        file.append(b"a delta")
        file.append(b"a delta more")
        positions = self.files.open_positions("S")
        positions.snapshot(b"the state of sources")
        positions.append(b"a delta of sources")
        self.files.save_window("S", [{"total": 1, "count": 1, "ids": b"message-id"}])

    def recover(self) -> dict[str, object]:
        """Open everything; return its contents."""
        found: dict[str, object] = {}
        for config, created_ns, store in filter(None, self.files.recover_steps()):
            assert created_ns == 77
            messages = [store.get(seq) for seq in range(1, store.last_seq + 1)]
            consumers = [self._plain(each) for each in self.files.recover_consumers(config.name)]
            positions = self.files.open_positions(config.name).load()[:2]
            window = list(self.files.load_window(config.name))
            payloads = [message.payload for message in messages if message is not None]
            store.flush()
            assert isinstance(store, FileStore)
            store.sync_now()
            while (job := store.begin_upkeep()) is not None:
                store.finish_upkeep(job())
            store.close()
            found[config.name] = (config, payloads, consumers, positions, window)
        return found

    def _plain(self, stored: StoredConsumer) -> object:
        return stored.name, stored.config, stored.snapshot, stored.deltas, stored.problems

    def says(self, level: str) -> list[str]:
        return [text for at, text in self.log.lines if at == level]


def contents(root: Path) -> dict[str, tuple[int, str]]:
    """Return everything that a wrong key must not change: each file's bytes and time of modification."""
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in root.rglob("*")
        if path.is_file()
    }


def words_in(root: Path) -> set[bytes]:
    files = [path.read_bytes() for path in root.rglob("*") if path.is_file()]
    return {word for word in WORDS for data in files if word in data}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> object:
    root = tmp_path_factory.mktemp("plain")
    Files(root).fill()
    assert words_in(root) == set(WORDS)  # otherwise the search for them proves nothing
    return Files(root).recover()


@CIPHERS
def test_an_encrypted_stream_comes_back_and_nothing_plain_is_in_its_files(
    tmp_path: Path, expected: object, algorithm: int
) -> None:
    Files(tmp_path, "one", algorithm=algorithm).fill()
    assert words_in(tmp_path) == set()
    again = Files(tmp_path, "one")  # the cipher is for new streams: existing streams record theirs
    assert again.recover() == expected
    assert words_in(tmp_path) == set()
    assert again.says("WRN") + again.says("ERR") == []


@CIPHERS
@pytest.mark.parametrize(
    ("key", "prev_key", "reason"),
    [
        ("two", "", "is encrypted with another key: set `key` of jetstream to that one, or `prev_key`"),
        ("two", "three", "is encrypted with another key: set `key` of jetstream to that one, or `prev_key`"),
        ("", "", "is encrypted: set `key` of jetstream to the key that it was written with"),
    ],
)
def test_a_wrong_key_changes_nothing_and_is_told(
    tmp_path: Path, algorithm: int, key: str, prev_key: str, reason: str
) -> None:
    Files(tmp_path, "one", algorithm=algorithm).fill()
    before = contents(tmp_path)
    wrong = Files(tmp_path, key, prev_key)
    assert wrong.recover() == {}
    with pytest.raises(StoreFailed, match="holds what could not be recovered"):
        create_stream(wrong.files, wrong.writer, CONFIG, 99)
    assert contents(tmp_path) == before
    [told] = wrong.says("ERR")
    assert f"{wrong.stream}/meta.a {reason}" in told
    assert Files(tmp_path, "one").recover() != {}


@CIPHERS
@pytest.mark.parametrize("config", [CONFIG, replace(CONFIG, compression=S2)], ids=["", "s2"])
def test_a_key_that_is_added_encrypts_what_is_there(
    tmp_path: Path, expected: dict[str, tuple[object, ...]], algorithm: int, config: StreamConfig
) -> None:
    Files(tmp_path).fill(config)
    keyed = Files(tmp_path, "one", algorithm=algorithm)
    assert keyed.recover()["S"][1:] == expected["S"][1:]  # type: ignore[index]
    assert "is not encrypted: it will be now" in "".join(keyed.says("INF"))
    again = Files(tmp_path, "one")
    assert again.recover()["S"][1:] == expected["S"][1:]  # type: ignore[index]
    assert words_in(tmp_path) == set()
    assert Files(tmp_path, "two").recover() == {}


@CIPHERS
def test_a_new_key_opens_alone_after_one_start_with_the_key_before(
    tmp_path: Path, expected: object, algorithm: int
) -> None:
    Files(tmp_path, "one", algorithm=algorithm).fill()
    segment = (tmp_path / "A/streams/S/msgs/00000001.seg").read_bytes()
    rotating = Files(tmp_path, "two", prev_key="one")
    assert rotating.recover() == expected
    assert "was opened with prev_key, and needs only key from now on" in "".join(rotating.says("INF"))
    assert (tmp_path / "A/streams/S/msgs/00000001.seg").read_bytes() == segment  # only metadata is rewritten
    assert Files(tmp_path, "two").recover() == expected
    before = contents(tmp_path)
    assert Files(tmp_path, "one").recover() == {}
    assert contents(tmp_path) == before


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("rotated", [False, True])
def test_a_stream_comes_back_when_both_copies_of_its_metadata_are_damaged(
    tmp_path: Path, expected: object, rotated: bool
) -> None:
    Files(tmp_path, "one").fill()
    key = "two" if rotated else "one"
    if rotated:
        Files(tmp_path, "two", prev_key="one").recover()
    damage(tmp_path / "A/streams/S/meta.a")
    damage(tmp_path / "A/streams/S/meta.b")
    before = contents(tmp_path)
    assert Files(tmp_path, "three").recover() == {}
    assert Files(tmp_path).recover() == {}
    assert contents(tmp_path) == before
    assert Files(tmp_path, key).recover() == expected
    assert words_in(tmp_path) == set()


def test_one_damaged_copy_is_written_again_encrypted(tmp_path: Path, expected: object) -> None:
    Files(tmp_path, "one").fill()
    damage(tmp_path / "A/streams/S/meta.b")
    damage(tmp_path / "A/streams/S/consumers.a")
    assert Files(tmp_path, "one").recover() == expected
    damage(tmp_path / "A/streams/S/meta.a")
    assert Files(tmp_path, "one").recover() == expected
    assert words_in(tmp_path) == set()


@crash_is_printed
@pytest.mark.parametrize("old", ["", "one"], ids=["adding a key", "rotating"])
def test_a_crash_at_any_call_leaves_a_stream_that_opens(
    tmp_path: Path, expected: dict[str, Any], old: str
) -> None:
    template = tmp_path / "template"
    Files(template, old).fill()
    disk, call = FaultyDisk(), -1
    while disk.calls > disk.at:
        call += 1
        root = tmp_path / str(call)
        shutil.copytree(template, root)
        disk = FaultyDisk(call)
        _until_crash(Files(root, "two", old, disk=disk).recover)
        found = Files(root, "two", old).recover()
        assert without_problems(found) == without_problems(expected), call
        assert without_problems(Files(root, "two").recover()) == without_problems(expected), call
        shutil.rmtree(root)
    assert call > 20


def without_problems(found: dict[str, Any]) -> object:
    """Remove reports that one copy of a consumer's state is missing: the other one is complete."""
    config, payloads, consumers, *rest = found["S"]
    return config, payloads, [consumer[:4] for consumer in consumers], rest


def _until_crash(work: Callable[[], object]) -> None:
    try:
        work()
    except (Crash, StoreFailed):
        pass


def test_a_disk_that_refuses_leaves_a_plain_stream_plain(tmp_path: Path, expected: object) -> None:
    Files(tmp_path).fill()
    disk = FaultyDisk(0, error=28, forever=True)
    refused = Files(tmp_path, "one", disk=disk)
    assert refused.recover() == {}
    assert "is not recovered, its files stay" in "".join(refused.says("ERR"))
    assert Files(tmp_path).recover() == expected


def test_a_stream_that_cannot_be_removed_keeps_its_key(tmp_path: Path) -> None:
    disk = FaultyDisk(error=13)
    files = Files(tmp_path, "one", disk=disk)
    files.fill()
    disk.at = disk.calls
    with pytest.raises(StoreFailed):
        files.files.hide("S")
    [(config, created_ns, store)] = filter(None, Files(tmp_path, "one").files.recover_steps())
    change_stream(
        files.files, files.writer, replace(config, description="a description of now"), created_ns, store
    )
    store.close()
    assert words_in(tmp_path) == set()
    assert Files(tmp_path, "one").recover() != {}


def test_the_codec_is_in_the_metadata_and_absent_without_compression(tmp_path: Path) -> None:
    import msgpack

    Files(tmp_path / "s2").fill(replace(CONFIG, compression=S2))
    Files(tmp_path / "none").fill()
    meta = (tmp_path / "s2/A/streams/S/meta.a").read_bytes()
    assert msgpack.unpackb(meta[32:-8])["codec"] == "zstd"
    meta = (tmp_path / "none/A/streams/S/meta.a").read_bytes()
    values = msgpack.unpackb(meta[32:-8])
    assert "codec" not in values
    assert values["config"]["compression"] == "none"


def test_keys_are_not_logged(tmp_path: Path) -> None:
    first = Files(tmp_path, "one-secret", algorithm=AES)
    first.fill()
    for files in (first, Files(tmp_path, "two-secret"), Files(tmp_path, "two-secret", "one-secret")):
        files.recover()
        assert not any("-secret" in text for _, text in files.log.lines)
