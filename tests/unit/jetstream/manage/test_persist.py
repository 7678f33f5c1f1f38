"""File streams and consumers after restarts, crashes and damage of any file except those with messages."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.consumer_lists import damage_entry
from tests.support.disk import Crash, FaultyDisk, damaged
from tests.support.stored_streams import WriterAtOnce, account_files, change_stream, create_stream, finish
from tests.unit.jetstream.changes import commit, make_consumer
from tests.unit.jetstream.consumer.test_consumer_recovery import Restarting
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.base.disk import OsDisk
from pyjs.base.errors import StoreFailed
from pyjs.base.log import ListLog
from pyjs.config.options import JetStreamOptions, Options
from pyjs.jetstream.config.choices import WORKQUEUE
from pyjs.jetstream.config.consumer import ConsumerConfig
from pyjs.jetstream.config.declared import to_meta
from pyjs.jetstream.config.offline import NewerConsumer
from pyjs.jetstream.config.stream import StreamConfig
from pyjs.jetstream.manage.persist import StoredConsumer
from pyjs.jetstream.manage.segments import segment_size
from pyjs.store.format import meta
from pyjs.store.store import StreamStore

CONFIG = StreamConfig(name="S", subjects=("s.>",), max_msgs=1000)
CONSUMER = ConsumerConfig(durable_name="c", ack_policy="explicit")
DELTAS = (b"first", b"second")
STRIDE = 19  # not every byte is damaged here: the tests of the formats do that


class Files:
    """The files of one account below a directory, and its log."""

    def __init__(self, root: Path, disk: OsDisk | None = None) -> None:
        self.root = root
        self.log = ListLog()
        self.disk = disk or OsDisk()
        self.files = account_files(self.disk, str(root), "A", self.log, lambda: 5_000_000)
        self.writer = WriterAtOnce(root, disk)

    def create(self, config: StreamConfig, created_ns: int) -> StreamStore:
        """Return the store of a new stream."""
        return create_stream(self.files, self.writer, config, created_ns)

    def change(self, config: StreamConfig, created_ns: int, store: StreamStore) -> None:
        """Store a changed configuration."""
        change_stream(self.files, self.writer, config, created_ns, store)

    def on(self, disk: OsDisk) -> Files:
        """Continue on another disk."""
        self.disk = self.files._disk = disk
        self.writer = WriterAtOnce(self.root, disk)
        return self

    @property
    def streams(self) -> Path:
        return self.root / "A/streams"

    def fill(self, name: str = "S") -> None:
        """Create a stream with three messages and a consumer with state."""
        store = self.create(replace(CONFIG, name=name), 77)
        for payload in (b"one", b"two", b"three"):
            store.store(b"s.a", b"", payload, 1000)
        store.close()
        file = make_consumer(self.files, self.disk, self.root, CONSUMER, stream=name)
        for delta in DELTAS:
            file.append(delta)

    def recover(self) -> dict[str, tuple[StreamConfig, list[bytes], list[StoredConsumer]]]:
        """Open everything; return the configuration, payloads and consumers of each stream."""
        found = {}
        for config, created_ns, store in filter(None, self.files.recover_steps()):
            assert created_ns == 77
            messages = [store.get(seq) for seq in range(1, store.last_seq + 1)]
            payloads = [message.payload for message in messages if message is not None]
            found[config.name] = (config, payloads, list(self.files.recover_consumers(config.name)))
            store.close()
        return found

    def says(self, level: str) -> list[str]:
        return [text for at, text in self.log.lines if at == level]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("template") / "store"
    Files(root).fill()
    return root


@pytest.fixture
def copied(template: Path, tmp_path: Path) -> Callable[[], Path]:
    """Return a function that replaces the previous copy of the template with a fresh one."""

    def copy() -> Path:
        shutil.rmtree(tmp_path / "store", ignore_errors=True)
        shutil.copytree(template, tmp_path / "store")
        return tmp_path / "store"

    return copy


def tree(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


# -- what is kept comes back ---------------------------------------------------------------------------------


def test_streams_and_consumers_come_back(template: Path) -> None:
    files = Files(template)
    config, payloads, (consumer,) = files.recover()["S"]
    assert config == CONFIG
    assert payloads == [b"one", b"two", b"three"]
    assert (consumer.name, consumer.config, consumer.created_ns) == ("c", CONSUMER, 88)
    assert (consumer.snapshot, consumer.deltas, consumer.problems) == (b"state", DELTAS, ())
    assert files.log.lines == [
        ("INF", "  Starting restore for stream 'A > S'"),
        ("INF", "  Restored 3 messages for stream 'A > S' in 0ms"),
        ("INF", "  Recovering 1 consumers for stream - 'A > S'"),
    ]


def test_names_that_are_no_file_names_come_back(tmp_path: Path) -> None:
    Files(tmp_path).fill("ümläut/..")
    assert tree(tmp_path / "A/streams")[0] == "%C3%BCml%C3%A4ut%2F%2E%2E"
    assert list(Files(tmp_path).recover()) == ["ümläut/.."]


def test_segments_are_smaller_where_limits_free_them_sooner() -> None:
    assert segment_size(CONFIG) == 8 << 20
    assert segment_size(replace(CONFIG, retention=WORKQUEUE)) == 4 << 20
    assert segment_size(replace(CONFIG, max_bytes=1 << 20)) == 256 << 10
    assert segment_size(replace(CONFIG, max_bytes=1000)) == 64 << 10


# -- damage --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["meta.a", "meta.b", "consumers.a", "consumers.b"])
def test_damage_of_one_copy_of_metadata_costs_nothing(copied: Callable[[], Path], name: str) -> None:
    path = copied() / "A/streams/S" / name
    whole = path.read_bytes()
    for what, data in damaged(whole, STRIDE):
        path.write_bytes(data)
        files = Files(path.parents[3])
        config, payloads, (consumer,) = files.recover()["S"]
        assert config == CONFIG, what
        assert len(payloads) == 3, what
        assert (consumer.config, consumer.snapshot, consumer.deltas) == (CONSUMER, b"state", DELTAS), what
        assert len(files.says("WRN")) == 1, what
        mended = Files(files.root)
        mended.recover()
        assert mended.says("WRN") == [], what


@pytest.mark.parametrize("name", ["snap.1", "log.1"])
def test_damage_of_a_state_stays_in_the_consumer(copied: Callable[[], Path], name: str) -> None:
    root = copied()
    path = root / "A/streams/S/consumers/c.2" / name
    whole = path.read_bytes()
    for what, data in damaged(whole, STRIDE):
        path.write_bytes(data)
        _, payloads, (consumer,) = Files(root).recover()["S"]
        assert len(payloads) == 3, what
        assert consumer.snapshot == b"state", what
        assert consumer.deltas == DELTAS[: len(consumer.deltas)], what
        assert consumer.deltas == DELTAS or consumer.problems or data == whole[: len(data)], what


@pytest.mark.parametrize("damage", [b"damaged", None], ids=["damaged", "removed"])
def test_a_stream_without_readable_metadata_takes_it_from_its_segments(
    copied: Callable[[], Path], damage: bytes | None
) -> None:
    root = copied()
    for copy in "ab":
        path = root / f"A/streams/S/meta.{copy}"
        path.unlink() if damage is None else path.write_bytes(damage)
    files = Files(root)
    config, payloads, (consumer,) = files.recover()["S"]
    assert (config, len(payloads), consumer.name) == (CONFIG, 3, "c")
    assert "00000001.seg has the configuration as well" in files.says("WRN")[0]
    again = Files(root)
    assert again.recover()["S"][0] == CONFIG
    assert again.says("WRN") == []


def test_a_changed_configuration_is_in_the_segment_that_is_written_next(copied: Callable[[], Path]) -> None:
    root = copied()
    files = Files(root)
    new = replace(CONFIG, max_msgs=5)
    for _, _, store in filter(None, files.files.recover_steps()):
        files.change(new, 77, store)
        store.flush()
        store.close()
    for copy in "ab":
        (root / f"A/streams/S/meta.{copy}").unlink()
    assert Files(root).recover()["S"][0] == new


def test_a_stream_that_nothing_tells_the_configuration_of_is_set_aside_whole(
    copied: Callable[[], Path],
) -> None:
    root = copied()
    Files(root).fill("OTHER")
    directory = root / "A/streams/S"
    whole = (directory / "meta.a").read_bytes()
    segment = directory / "msgs/00000001.seg"
    segment_whole = segment.read_bytes()
    segment.write_bytes(segment_whole[:100] + b"X" + segment_whole[101:])
    for copy in "ab":
        (directory / f"meta.{copy}").write_bytes(b"damaged")
    before = tree(directory)
    # when
    files = Files(root)
    # then
    assert list(files.recover()) == ["OTHER"]
    aside = root / "A/streams/.damaged-0-S"
    assert tree(aside) == before
    (line,) = files.says("ERR")
    assert line.startswith(
        f"  Stream in {directory} cannot be read and is set aside as {aside}: {directory}/meta.a at 0"
    )
    # and no file is lost
    (aside / "meta.a").write_bytes(whole)
    (aside / "msgs/00000001.seg").write_bytes(segment_whole)
    aside.rename(directory)
    assert Files(root).recover()["S"][1] == [b"one", b"two", b"three"]


def test_a_consumer_whose_entry_is_damaged_in_both_copies_is_missing_and_told(
    copied: Callable[[], Path],
) -> None:
    root = copied()
    files = Files(root)
    files.recover()
    make_consumer(files.files, files.disk, root, replace(CONSUMER, durable_name="d"))
    damage_entry(root / "A/streams/S", 1)
    for what in ("are damaged: consumers may be missing", "belongs to no consumer of the list, and stays"):
        files = Files(root)
        _, payloads, (consumer,) = files.recover()["S"]
        assert (len(payloads), consumer.name) == (3, "d")
        assert what in "".join(files.says("ERR"))
        assert files.files.num_consumers("S") > 1
    assert (root / "A/streams/S/consumers/c.2/snap.1").exists()
    assert (root / "A/streams/S/consumers/.damaged-0-consumers.a").exists()


def test_a_first_state_that_was_not_durable_is_that_of_the_list(copied: Callable[[], Path]) -> None:
    root = copied()
    directory = root / "A/streams/S/consumers/c.2"
    whole = (directory / "log.1").read_bytes()
    for snap, log in ((None, None), (b"", None), (b"", b""), (whole[:50], bytes(60)), (None, whole[:9])):
        for name, data in (("snap.1", snap), ("log.1", log)):
            (directory / name).unlink(missing_ok=True) if data is None else (directory / name).write_bytes(
                data
            )
        files = Files(root)
        (consumer,) = files.recover()["S"][2]
        assert (consumer.snapshot, consumer.deltas, consumer.problems) == (b"state", (), ())
        assert files.says("WRN") == []
    assert consumer.file is not None
    consumer.file.append(b"more")
    assert Files(root).recover()["S"][2][0].deltas == (b"more",)


def test_a_consumer_without_a_readable_state_is_told_apart(copied: Callable[[], Path]) -> None:
    root = copied()
    directory = root / "A/streams/S/consumers/c.2"
    for name in ("snap.1", "log.1"):
        (directory / name).write_bytes(b"damaged")
    _, _, (consumer,) = Files(root).recover()["S"]
    assert consumer.snapshot is None
    assert "snap.1 at 0" in consumer.problems[0]
    assert tree(directory) == [".damaged-log.1", ".damaged-snap.1"]
    assert consumer.file is not None
    consumer.file.snapshot(b"anew")
    assert Files(root).recover()["S"][2][0].snapshot == b"anew"


def test_a_copied_stream_is_not_taken_for_another(copied: Callable[[], Path]) -> None:
    root = copied()
    shutil.copytree(root / "A/streams/S", root / "A/streams/T")
    files = Files(root)
    assert list(files.recover()) == ["S"]
    assert "T is not recovered, its files stay: it is of 'S', which belongs in S" in files.says("ERR")[0]


def test_files_of_others_are_left_alone(copied: Callable[[], Path]) -> None:
    root = copied()
    (root / "A/streams/notes.txt").write_text("mine")
    (root / "A/streams/S/consumers/notes.txt").write_text("mine")
    files = Files(root)
    assert list(files.recover()) == ["S"]
    assert (root / "A/streams/notes.txt").read_text() == "mine"
    assert len(files.says("ERR")) == 2


# -- versions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["meta.a", "consumers.a", "consumers/c.2/snap.1"])
def test_a_newer_version_is_named_and_stays(
    copied: Callable[[], Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = copied()
    path = root / "A/streams/S" / name
    prefix, _, envelope = path.read_bytes().rpartition(b"PYJSMETA")
    with monkeypatch.context() as newer:
        newer.setattr(meta, "VERSION", 2)
        newer.setattr(meta, "NEEDS", (3, 0, 0))
        path.write_bytes(prefix + meta.encode(envelope[2], 1, {}))
    before = tree(root)
    # when
    files = Files(root)
    needs = "its file was written by a newer version: it needs pyjs-server >= 3.0.0"
    with nullcontext() if name == "meta.a" else pytest.raises(NewerConsumer, match=needs):
        assert files.recover() == {}
    # then
    assert tree(root) == before
    assert f"{path} was written by a newer version: it needs pyjs-server >= 3.0.0" in files.says("ERR")[0]
    with pytest.raises(StoreFailed, match="holds what could not be recovered"):
        _ = (
            files.create(CONFIG, 99)
            if name == "meta.a"
            else files.files.new_consumer("S", "c", CONSUMER, 99, b"state")
        )
    assert tree(root) == before


def test_a_configuration_with_unknown_fields_stays(copied: Callable[[], Path]) -> None:
    root = copied()
    values = {"created_ns": 77, "config": {**to_meta(CONFIG), "later": 1}}
    meta.save_meta(OsDisk(), f"{root}/A/streams/S", "meta", meta.encode(meta.KIND_STREAM, 2, values))
    files = Files(root)
    assert files.recover() == {}
    assert files.files.offline["S"].reason == 'decoding error: json: unknown field "later"'


# -- crashes -------------------------------------------------------------------------------------------------


def each_call(work: Callable[[Path, OsDisk], None], tmp_path: Path) -> list[Path]:
    """Run `work` once for each of its disk calls, and end it at that call; return the directories that remain."""
    counting = FaultyDisk()
    work(tmp_path / "all", counting)
    left = []
    for at in range(counting.calls):
        left.append(tmp_path / str(at))
        with pytest.raises(Crash):
            work(left[-1], FaultyDisk(at))
    assert left
    return left


def test_a_crash_while_a_stream_is_made_leaves_all_or_nothing(tmp_path: Path) -> None:
    def work(root: Path, disk: OsDisk) -> None:
        Files(root, disk).create(CONFIG, 77).close()

    for root in each_call(work, tmp_path):
        files = Files(root)
        found = files.recover()
        assert found in ({}, {"S": (CONFIG, [], [])})
        assert files.says("ERR") == []
        if not found:
            assert tree(files.streams) == []
            files.fill()
            assert len(Files(root).recover()["S"][1]) == 3


def test_a_crash_while_a_configuration_is_changed_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    new = replace(CONFIG, max_msgs=5)

    def work(root: Path, disk: OsDisk) -> None:
        Files(root).fill()
        files = Files(root, disk)
        for _, _, store in filter(None, files.files.recover_steps()):
            files.change(new, 77, store)

    seen = set()
    for root in each_call(work, tmp_path):
        config, payloads, _ = Files(root).recover()["S"]
        assert config in (CONFIG, new)
        assert len(payloads) == 3
        seen.add(config.max_msgs)
    assert seen == {1000, 5}


def test_a_crash_while_a_stream_is_removed_leaves_all_or_nothing(tmp_path: Path) -> None:
    def work(root: Path, disk: OsDisk) -> None:
        Files(root).fill()
        files = Files(root, disk)
        for _, _, store in filter(None, files.files.recover_steps()):
            hidden = files.files.hide("S")
            store.destroy()
            finish(files.files.remove_hidden(hidden, files.writer))

    for root in each_call(work, tmp_path):
        files = Files(root)
        found = files.recover()
        if found:
            assert len(found["S"][1]) == 3
        else:
            assert tree(files.streams) == []
        assert files.says("ERR") == []


def test_a_crash_while_a_consumer_is_made_leaves_all_or_nothing(tmp_path: Path) -> None:
    def work(root: Path, disk: OsDisk) -> None:
        Files(root).create(CONFIG, 77).close()
        make_consumer(Files(root, disk).files, disk, root, CONSUMER, b"begun")

    for root in each_call(work, tmp_path):
        files = Files(root)
        consumers = files.recover()["S"][2]
        assert files.says("ERR") == []
        if consumers:
            assert [(each.config, each.snapshot) for each in consumers] == [(CONSUMER, b"begun")]
        else:
            assert tree(files.streams / "S/consumers") == []


def test_a_crash_while_a_consumer_is_removed_leaves_all_or_nothing(tmp_path: Path) -> None:
    def work(root: Path, disk: OsDisk) -> None:
        Files(root).fill()
        files = Files(root)
        files.recover()
        commit(disk, root, files.files.removed_consumer("S", "c"))

    for root in each_call(work, tmp_path):
        files = Files(root)
        consumers = files.recover()["S"][2]
        assert [each.deltas for each in consumers] in ([], [DELTAS])
        assert files.says("ERR") == []
        assert consumers or tree(files.streams / "S/consumers") == []


# -- a disk that fails ---------------------------------------------------------------------------------------


def test_every_failed_call_is_an_error_that_names_the_directory(tmp_path: Path) -> None:
    Files(tmp_path / "counted").fill()
    directory = f"{tmp_path}/store/A/streams/S"
    files = Files(tmp_path / "store")
    files.fill()
    store = files.create(replace(CONFIG, name="T"), 77)
    broken = Files(tmp_path / "store")
    broken.recover()
    broken = broken.on(FaultyDisk(0, errno.EROFS, forever=True))
    with pytest.raises(StoreFailed, match=f"{directory}: EROFS"):
        broken.change(CONFIG, 1, store)
    with pytest.raises(StoreFailed, match=f"{directory}: EROFS"):
        broken.files.hide("S")
    with pytest.raises(StoreFailed, match=f"{directory}/consumers/d: EROFS"):
        make_consumer(broken.files, broken.disk, broken.root, replace(CONSUMER, durable_name="d"))
    with pytest.raises(StoreFailed, match=f"{directory}/consumers/c: EROFS"):
        commit(broken.disk, broken.root, broken.files.changed_consumer("S", "c", CONSUMER, 1))
    with pytest.raises(StoreFailed, match=f"{directory}/consumers/c: EROFS"):
        commit(broken.disk, broken.root, broken.files.removed_consumer("S", "c"))
    with pytest.raises(StoreFailed, match=f"{directory}: EROFS"):
        broken.create(CONFIG, 1)
    broken.files.remove("")
    assert len(Files(tmp_path / "store").recover()["S"][1]) == 3


def test_what_cannot_be_set_aside_or_removed_stays_and_is_named(copied: Callable[[], Path]) -> None:
    root = copied()
    (root / "A/streams/.deleting-0-X").mkdir()
    (root / "A/streams/EMPTY").mkdir()
    for copy in "ab":
        (root / f"A/streams/S/meta.{copy}").write_bytes(b"")
    files = Files(root, FaultyDisk(0, errno.EROFS, forever=True))
    assert files.recover() == {}
    assert [line.partition(" is not recovered")[0] for line in files.says("ERR")] == [
        f"  Directory in {root}/A/streams/EMPTY",
        f"  Stream in {root}/A/streams/S",
    ]
    assert f"{root}/A/streams/.deleting-0-X cannot be removed" in files.says("WRN")[0]


def test_a_directory_that_belongs_to_nothing_is_set_aside(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.fill()
    files.fill()
    assert (tmp_path / "A/streams/.damaged-0-S/msgs").is_dir()
    assert "belonged to nothing and is set aside" in files.says("WRN")[0]
    assert list(Files(tmp_path).recover()) == ["S"]


# -- the whole server ----------------------------------------------------------------------------------------


def damage_state(store: Path) -> None:
    for path in [*store.rglob("snap.*"), *store.rglob("log.*")]:
        path.write_bytes(b"damaged")


def test_a_consumer_that_lost_its_state_skips_nothing(tmp_path: Path) -> None:
    # given
    js = Restarting(tmp_path)
    js.fill(3)
    js.consumer(deliver_policy="new")
    js.fill(2)
    for message in js.pull(batch=5):
        js.ack(message)
    js.node.stop()
    damage_state(tmp_path)
    # when
    js = Restarting(tmp_path, js.clock)
    # then
    assert js.position() == ((0, 0), (0, 0))
    assert [m.seq for m in js.pull(batch=9, no_wait=True)] == [1, 2, 3, 4, 5]
    (line,) = [text for level, text in js.log.lines if level == "ERR"]
    assert line.startswith("JetStream consumer '$G > S > c' lost its state and begins again at sequence 1,")
    # and a further start reports nothing
    js = js.restart()
    assert js.position()[0] == (5, 5)
    assert [text for level, text in js.log.lines if level in ("ERR", "WRN")] == []


def test_a_state_that_was_mended_is_clean_at_the_next_start(tmp_path: Path) -> None:
    js = Restarting(tmp_path)
    js.fill(3)
    js.consumer()
    js.pull(batch=3)
    js.node.stop()
    (snap,) = tmp_path.rglob("snap.*")
    snap.write_bytes(b"damaged")
    js = Restarting(tmp_path, js.clock)
    assert js.position() == ((3, 3), (0, 0))
    assert len([text for level, text in js.log.lines if level == "WRN"]) == 1
    js = js.restart()
    assert js.position() == ((3, 3), (0, 0))
    assert [text for level, text in js.log.lines if level == "WRN"] == []


def test_a_deleted_stream_leaves_nothing(tmp_path: Path) -> None:
    js = Restarting(tmp_path)
    js.consumer()  # the first consumer of a stream creates the directory for all of them
    js.api("CONSUMER.DELETE.S.c")
    before = tree(tmp_path)
    js.add("T", subjects=["t.>"], storage="file")
    js.publish("t.1")
    js.consumer()
    js.api("CONSUMER.DELETE.S.c")
    assert js.api("STREAM.DELETE.T") == {"success": True}
    assert tree(tmp_path) == before


def test_a_disk_that_fails_is_answered_and_changes_nothing(tmp_path: Path) -> None:
    # given
    js = Restarting(tmp_path)
    js.fill(1)
    js.consumer()
    files = js.engine.files
    works, writer = files._disk, js.engine.shared.metadata
    files._disk = writer._disk = FaultyDisk(0, errno.ENOSPC, forever=True)
    # then
    config = {"name": "T", "subjects": ["t"]}
    assert js.error("STREAM.CREATE.T", config)[:2] == (500, 10049)
    assert js.error("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "max_msgs": 9})[:2] == (500, 10069)
    assert js.error("STREAM.DELETE.S")[:2] == (500, 10050)
    body = {"stream_name": "S", "config": {"durable_name": "d", "ack_policy": "explicit"}}
    assert js.error("CONSUMER.CREATE.S.d", body)[:2] == (500, 10012)
    body["config"] = {"durable_name": "c", "ack_policy": "explicit", "max_ack_pending": 3}
    assert js.error("CONSUMER.CREATE.S.c", body)[:2] == (500, 10012)
    assert js.error("CONSUMER.DELETE.S.c")[:2] == (500, 10051)
    # when
    files._disk = writer._disk = works
    # then
    assert js.payloads("S") == [b"m1"]
    assert js.api("STREAM.INFO.S")["config"]["max_msgs"] == -1
    assert js.info()["config"]["max_ack_pending"] == 1000
    js.api("STREAM.CREATE.T", config)
    assert js.restart().payloads("S") == [b"m1"]


def test_a_second_server_is_refused(tmp_path: Path) -> None:
    js = Restarting(tmp_path)
    with pytest.raises(Exception, match="is in use by another server"):
        JetStreamFixture(Options(jetstream=JetStreamOptions(enabled=True, store_dir=str(tmp_path))))
    js.restart()


def test_streams_of_an_account_that_is_gone_are_named(tmp_path: Path) -> None:
    Files(tmp_path).fill()
    (tmp_path / ".raft").mkdir()  # the directory of the node log is ignored
    js = Restarting(tmp_path)
    warnings = [text for level, text in js.log.lines if level == "WRN"]
    assert warnings == [f"  {tmp_path}/A is of no account with JetStream; its streams are not served"]
    assert Files(tmp_path).recover()["S"][0] == CONFIG
