"""If descriptors or memory run out, nothing is treated as damaged, and everything works when there are some again."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.support.consumer_lists import begin_state
from tests.unit.jetstream.manage.test_scrub import Scrubbing

from pyjs.base.disk import OsDisk
from pyjs.config.options import JetStreamOptions, Options
from pyjs.jetstream.manage.scrub import RETRY_NS
from pyjs.jetstream.manage.streams import RETRY_NS as REOPEN_NS
from pyjs.jetstream.server import SCRUB_AFTER_NS

MS = 1_000_000


class ShortDisk(OsDisk):
    """Opens no file of the stream S whose path contains `short`."""

    def __init__(self, short: str = "") -> None:
        self.short = short
        self.error = errno.EMFILE

    def _check(self, path: str) -> None:
        if self.short and "/streams/S" in path and self.short in path:
            raise OSError(self.error, errno.errorcode[self.error], path)

    def open_file(self, path: str, *, create: bool = False) -> int:
        self._check(path)
        return super().open_file(path, create=create)

    def open_read_only(self, path: str) -> int:
        self._check(path)
        return super().open_read_only(path)

    def read_file(self, path: str) -> bytes:
        self._check(path)
        return super().read_file(path)

    def list_dir(self, path: str) -> list[str]:
        self._check(path)
        return super().list_dir(path)


def server(directory: Path, disk: ShortDisk) -> Scrubbing:
    options = Options(jetstream=JetStreamOptions(enabled=True, store_dir=str(directory), scrub_rate=100_000))
    return Scrubbing(options, disk=disk)


def stored(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with two streams; stream S has several segments and a consumer."""
    js = server(tmp_path, ShortDisk())
    js.add("S", subjects=["s"], storage="file", max_bytes=1 << 18)
    js.add("T", subjects=["t"], storage="file")
    config = {"durable_name": "c", "ack_policy": "explicit"}
    assert "error" not in js.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    begin_state(js.stream("S").consumers["c"])
    for _ in range(3):
        js.publish("s", b"x" * 40_000)
    js.publish("t", b"y")
    js.node.stop()
    return tmp_path


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize(
    "short",
    [
        "meta.a",
        "meta.b",
        "00000001.seg",
        "00000003.seg",
        ".idx",
        "/consumers",
        "/consumers.b",
        "/log.",
        "msgs",
    ],
)
def test_a_stream_that_cannot_be_opened_at_the_start_is_opened_later(
    store: Path, short: str, error: int
) -> None:
    # given
    before = stored(store)
    disk = ShortDisk(short)
    disk.error = error
    # when
    js = server(store, disk)
    # then
    assert js.state("T")["messages"] == 1
    assert "error" in js.api("STREAM.INFO.S")
    assert stored(store) == before
    # when
    js.advance(milliseconds=REOPEN_NS // MS)
    assert "error" in js.api("STREAM.INFO.S")
    disk.short = ""
    js.advance(milliseconds=REOPEN_NS // MS)
    # then
    info = js.api("STREAM.INFO.S")
    assert (info["state"]["messages"], info["state"]["consumer_count"]) == (3, 1)
    assert js.publish("s", b"z")["seq"] == 4
    assert not [path for path in stored(store) if ".damaged" in path]
    js.node.stop()


@pytest.mark.parametrize("short", ["meta.a", "00000001.seg", "/consumers", "/log.", "msgs"])
def test_nobody_else_gets_the_subjects_of_a_stream_that_is_opened_later(store: Path, short: str) -> None:
    # given
    disk = ShortDisk(short)
    js = server(store, disk)
    other = {"name": "O", "subjects": ["*"], "storage": "file"}
    unknown = (503, 10023, "insufficient resources")
    overlap = (400, 10065, "subjects overlap with an existing stream")
    # when
    for _ in range(2):
        expected = unknown if short == "meta.a" else overlap
        assert js.error("STREAM.CREATE.O", other | {"subjects": ["s"]}) == expected
        assert js.error("STREAM.CREATE.S", {"name": "S", "subjects": ["x"]})[1] in (10049, 10023)
        t = js.api("STREAM.INFO.T")["config"]
        assert "error" in js.api("STREAM.UPDATE.T", t | {"subjects": ["t", "s"]})
        js.advance(milliseconds=REOPEN_NS // MS)
    disk.short = ""
    js.advance(milliseconds=REOPEN_NS // MS)
    # then
    assert js.state("S")["messages"] == 3
    assert js.error("STREAM.CREATE.O", other) == overlap
    js.add("P", subjects=["p"], storage="file")
    js.api("STREAM.DELETE.S")
    js.add("Q", subjects=["s"], storage="file")
    js.node.stop()


def test_the_room_of_a_stream_that_is_opened_later_stays_its_own(store: Path) -> None:
    disk = ShortDisk("00000001.seg")
    js = server(store, disk)
    usage = js.engine.usage["file"]
    assert usage.reserved == 1 << 18
    disk.short = ""
    js.advance(milliseconds=REOPEN_NS // MS)
    assert usage.reserved == 1 << 18
    js.api("STREAM.DELETE.S")
    assert usage.reserved == 0
    js.node.stop()


def test_a_publish_is_refused_for_want_of_descriptors_and_taken_later(store: Path) -> None:
    # given
    disk = ShortDisk()
    js = server(store, disk)
    disk.short = "00000004.seg"
    # when
    assert "error" in js.publish("s", b"x" * 40_000)
    disk.short = ""
    js.advance(seconds=2)
    # then
    assert "error" not in js.publish("s", b"x" * 40_000)
    assert js.stream("S").store.lost is None
    js.node.stop()


@pytest.mark.parametrize("short", ["meta.", ".seg"])
def test_the_check_of_stored_files_waits_for_descriptors(store: Path, short: str) -> None:
    # given
    disk = ShortDisk()
    js = server(store, disk)
    before = {path: data for path, data in stored(store).items() if "meta." in path}
    disk.short = short
    # when
    js.advance(milliseconds=SCRUB_AFTER_NS // MS + 5 * RETRY_NS // MS)
    # then
    assert (js.report()["damaged"], js.report()["running"]) == (0, True)
    assert {path: data for path, data in stored(store).items() if "meta." in path} == before
    # when
    disk.short = ""
    for _ in range(200):
        js.advance(milliseconds=500)
    # then
    assert (js.report()["damaged"], js.report()["passes"]) == (0, 1)
    js.node.stop()
