"""Checks of stored files while the server runs: their findings, their pace, and their effect on other work."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.consumer_lists import damage_entry, listed
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.base.disk import OsDisk
from pyjs.config.options import JetStreamOptions, Options
from pyjs.jetstream.manage.scrub import PASS_EVERY_NS, STREAMS_AT_ONCE, MetadataStep, Scrubber, SegmentStep
from pyjs.jetstream.server import SCRUB_AFTER_NS
from pyjs.jetstream.stream.stream import Stream
from pyjs.store.file.store import FileStore

RATE = 100_000
MESSAGES = 130
DAY_S = PASS_EVERY_NS // 1_000_000_000


class Scrubbing(JetStreamFixture):
    """A server whose upkeep runs between two turns, as if its thread always finished in time."""

    def turn(self) -> None:
        super().turn()
        while kept := self.node.turn_state.take("upkeep"):
            for store in kept:
                while (job := store.begin_upkeep()) is not None:
                    store.finish_upkeep(job())
            super().turn()

    @property
    def scrubber(self) -> Scrubber:
        assert self.node.jetstream is not None
        assert self.node.jetstream.scrubber is not None
        return self.node.jetstream.scrubber

    def report(self) -> dict[str, Any]:
        return self.scrubber.report()

    def begin(self) -> None:
        """Let the first pass begin."""
        self.advance(milliseconds=SCRUB_AFTER_NS // 1_000_000)

    def files(self, name: str = "S") -> Path:
        return Path(self.options.jetstream.store_dir) / f"$G/streams/{name}"


@pytest.fixture
def js() -> Iterator[Scrubbing]:
    """A stream of several segments with a consumer, and a memory stream."""
    options = Options()
    options.jetstream = JetStreamOptions(enabled=True, scrub_rate=RATE)
    fixture = Scrubbing(options)
    fixture.add("M", subjects=["m.>"])
    fixture.add("S", subjects=["s.>"], storage="file", max_bytes=250_000)
    fixture.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": {"durable_name": "c"}})
    for number in range(MESSAGES):
        fixture.publish("s.a", b"%03d" % number + b"x" * 1500)
    fixture.stream("S").store.sync_now()
    yield fixture
    fixture.node.stop()


@pytest.fixture(params=["s2", "chacha", "aes", "s2 and chacha"])
def formed(request: pytest.FixtureRequest) -> Iterator[Scrubbing]:
    """A stream with sealed segments that are compressed, encrypted, or both."""
    options = Options()
    options.jetstream = JetStreamOptions(enabled=True, scrub_rate=RATE)
    if request.param != "s2":
        options.jetstream.key = "a key"
        options.jetstream.cipher = "aes" if request.param == "aes" else "chacha"
    fixture = Scrubbing(options)
    compression = "s2" if "s2" in request.param else "none"
    fixture.add("S", subjects=["s.>"], storage="file", max_bytes=250_000, compression=compression)
    fixture.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": {"durable_name": "c"}})
    for number in range(MESSAGES):
        fixture.publish("s.a", b"%03d" % number + b"x" * 1500)
    store = fixture.stream("S").store
    assert isinstance(store, FileStore)
    store.sync_now()
    while (job := store.begin_upkeep()) is not None:
        store.finish_upkeep(job())
    yield fixture
    fixture.node.stop()


def test_a_pass_reads_segments_of_every_form_and_finds_nothing(formed: Scrubbing) -> None:
    before = formed.payloads("S")
    formed.begin()
    formed.advance(seconds=30)
    assert (formed.report()["passes"], formed.report()["damaged"]) == (1, 0)
    assert not [text for level, text in formed.log.lines if level in ("WRN", "ERR")]
    assert formed.payloads("S") == before


def test_damage_in_a_segment_of_every_form_is_found(formed: Scrubbing) -> None:
    path = formed.files() / "msgs/00000001.seg"
    flip(path, path.stat().st_size - 300)
    before = formed.state("S")["messages"]
    formed.begin()
    formed.advance(seconds=30)
    state = formed.state("S")
    assert formed.report()["damaged"] >= 1
    assert state["messages"] + len(state["lost"]["msgs"]) == before
    again = formed.restart()
    assert again.state("S")["lost"]["msgs"] == state["lost"]["msgs"]
    again.node.stop()


def test_a_damaged_copy_of_sealed_metadata_is_rewritten(formed: Scrubbing) -> None:
    path = formed.files() / "meta.a"
    flip(path, 60)
    formed.begin()
    formed.advance(seconds=30)
    copies = [(path.parent / name).read_bytes() for name in ("meta.a", "meta.b")]
    assert copies[0] == copies[1]
    assert formed.report()["damaged"] == 1


def test_a_page_that_cannot_be_read_is_damage_and_the_pass_goes_on(
    formed: Scrubbing, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_at = OsDisk.read_at
    at = (formed.files() / "msgs/00000001.seg").stat().st_size - 300

    def bad(self: OsDisk, fd: int, size: int, offset: int) -> bytes:
        first = os.readlink(f"/proc/self/fd/{fd}").endswith("01.seg")
        if first and offset + size > at and offset <= at:
            raise OSError(errno.EIO, "EIO")
        return read_at(self, fd, size, offset)

    monkeypatch.setattr(OsDisk, "read_at", bad)
    formed.begin()
    formed.advance(seconds=30)
    assert formed.report()["passes"] == 1
    assert formed.report()["damaged"] >= 1
    assert not any("leaves out" in text for _, text in formed.log.lines)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    with path.open("r+b") as file:  # in place: the server has the file open and mapped
        file.write(data)


def test_a_pass_reads_every_sealed_segment_and_finds_nothing(js: Scrubbing) -> None:
    js.begin()
    assert js.report()["running"]

    js.advance(seconds=30)

    sealed = sorted((js.files() / "msgs").glob("*.seg"))[:-1]
    size = sum(path.stat().st_size for path in sealed)
    report = js.report()
    assert len(sealed) >= 2
    assert (report["passes"], report["running"], report["damaged"]) == (1, False, 0)
    lists = sum((js.files() / name).stat().st_size for name in ("consumers.a", "consumers.b"))
    assert report["checked_bytes"] == size + 2 * 1024 + lists
    assert report["last_finished"].startswith("2023-11-14T22:13:")


def test_it_reads_no_more_than_the_rate_says(js: Scrubbing) -> None:
    js.begin()
    first = js.report()["checked_bytes"]

    js.advance(milliseconds=1000)

    size = (js.files() / "msgs/00000001.seg").stat().st_size
    assert 0 <= js.report()["checked_bytes"] - first <= RATE + size
    assert js.report()["running"]


def test_the_next_pass_begins_a_day_later(js: Scrubbing) -> None:
    js.begin()
    js.advance(seconds=30)

    js.advance(seconds=DAY_S - 60)
    early = js.report()["passes"]
    js.advance(seconds=120)

    assert (early, js.report()["passes"]) == (1, 2)


def test_a_damaged_record_is_lost_reported_and_found_again_by_the_next_start(js: Scrubbing) -> None:
    path = js.files() / "msgs/00000001.seg"
    flip(path, 20_000)
    before = js.state("S")["messages"]
    js.begin()

    js.advance(seconds=30)

    state = js.state("S")
    seq = state["lost"]["msgs"][0]
    assert (len(state["lost"]["msgs"]), state["messages"], js.report()["damaged"]) == (1, before - 1, 1)
    assert any(f"{path} at " in text for level, text in js.log.lines if level == "WRN")
    assert any(
        "1 messages were damaged and are lost" in text for level, text in js.log.lines if level == "ERR"
    )
    again = js.restart()
    assert again.state("S")["lost"]["msgs"] == [seq]
    again.node.stop()


def test_damage_is_counted_once(js: Scrubbing) -> None:
    flip(js.files() / "msgs/00000001.seg", 20_000)
    js.begin()

    js.advance(seconds=DAY_S + 90)

    assert (js.report()["passes"], js.report()["damaged"]) == (2, 1)
    lost = js.stream("S").store.lost
    assert lost is not None
    assert len(lost[1]) == 1


@pytest.mark.parametrize("place", ["meta.a", "meta.b", "consumers.a", "consumers.b"])
def test_a_damaged_copy_of_metadata_is_rewritten(place: str, js: Scrubbing) -> None:
    path = js.files() / place
    flip(path, 45)
    js.begin()

    js.advance(seconds=30)

    copies = [path.with_suffix(suffix).read_bytes() for suffix in (".a", ".b")]
    assert copies[0] == copies[1]
    assert js.report()["damaged"] == 1
    assert any(f"{path} at " in text and "both copies are rewritten" in text for _, text in js.log.lines)


def test_both_copies_come_from_what_the_server_knows(js: Scrubbing) -> None:
    for name in ("meta.a", "meta.b"):
        (js.files() / name).write_bytes(b"garbage")
    js.begin()
    js.advance(seconds=30)

    again = js.restart()

    assert again.state("S")["messages"] > 0
    assert again.stream("S").config.max_bytes == 250_000
    again.node.stop()


def consumers_of(js: JetStreamFixture) -> list[dict[str, Any]]:
    """Return what /jsz and the API report about the consumers of S, limited to stored fields."""
    infos = [js.api(f"CONSUMER.INFO.S.{name}") for name in sorted(js.stream("S").consumers)]
    for info in infos:
        info["delivered"].pop("last_active", None)
    keys = ("name", "created", "config", "delivered", "ack_floor", "num_ack_pending", "num_pending")
    return [{key: info[key] for key in keys} for info in infos]


@pytest.mark.parametrize("number", range(7))
def test_a_list_of_consumers_damaged_in_both_copies_is_rewritten_from_memory(
    number: int, js: Scrubbing
) -> None:
    # given: consumers that were made, changed, removed, made again, and one with a state in files
    js.api("CONSUMER.CREATE.S.d", {"stream_name": "S", "config": {"durable_name": "d"}})
    js.api("CONSUMER.DELETE.S.d")
    js.api("CONSUMER.CREATE.S.d", {"stream_name": "S", "config": {"durable_name": "d", "ack_policy": "all"}})
    changed = {"durable_name": "d", "ack_policy": "all", "description": "changed"}
    js.api("CONSUMER.CREATE.S.d", {"stream_name": "S", "config": changed})
    js.api("CONSUMER.CREATE.S.e", {"stream_name": "S", "config": {"durable_name": "e", "ack_policy": "all"}})
    js.user.send(b"SUB _INBOX.d d\r\nPUB $JS.API.CONSUMER.MSG.NEXT.S.e _INBOX.d 2\r\n12\r\n")
    js.turn()
    expected = consumers_of(js)
    damage_entry(js.files(), number)
    js.begin()

    js.advance(seconds=30)

    assert js.report()["damaged"] == 2
    copies = [(js.files() / f"consumers.{each}").read_bytes() for each in "ab"]
    assert copies[0] == copies[1]
    assert listed(js.files()) == ["c", "d", "e"]
    assert not list((js.files() / "consumers").glob(".damaged*"))
    js.advance(seconds=DAY_S + 30)
    assert (js.report()["passes"], js.report()["damaged"]) == (2, 2)
    again = js.restart()
    assert consumers_of(again) == expected
    again.node.stop()


def test_a_list_of_consumers_that_is_gone_is_rewritten_from_memory(js: Scrubbing) -> None:
    expected = consumers_of(js)
    for each in "ab":
        (js.files() / f"consumers.{each}").unlink()
    js.begin()
    js.advance(seconds=30)
    again = js.restart()
    assert consumers_of(again) == expected
    again.node.stop()


def test_a_stream_that_is_deleted_on_the_way_is_left_out(js: Scrubbing) -> None:
    js.begin()
    js.api("STREAM.DELETE.S")
    js.advance(seconds=30)
    assert (js.report()["passes"], js.report()["damaged"]) == (1, 0)


def test_streams_that_are_deleted_on_the_way_leave_nothing(js: Scrubbing) -> None:
    names = [f"T{number}" for number in range(3)]
    for name in names:
        js.add(name, subjects=[name], storage="file")
    js.begin()
    assert js.report()["running"]
    for name in ("M", "S", *names):
        js.api(f"STREAM.DELETE.{name}")
    js.node.turn_state.take("unsynced")  # nothing syncs in this test
    kept = [each for each in gc.get_objects() if isinstance(each, Stream) and each.name in names]
    assert kept == []
    js.advance(seconds=30)
    assert js.report()["passes"] == 1
    assert js.engine.files._lists == {}


def test_a_pass_comes_to_every_stream(js: Scrubbing) -> None:
    names = {f"T{number}" for number in range(2 * STREAMS_AT_ONCE)}
    for name in names:
        js.add(name, subjects=[name], storage="file")
    js.begin()
    checked = [step._stream.name for step in js.scrubber._all_steps() if isinstance(step, MetadataStep)]
    assert sorted(checked) == sorted({"S", *names})


def test_what_looked_damaged_only_while_it_was_read_is_no_damage(js: Scrubbing) -> None:
    path, store = js.files() / "msgs/00000001.seg", js.stream("S").store
    assert isinstance(store, FileStore)
    step = SegmentStep(OsDisk(), store, 1)
    flip(path, 20_000)
    assert step() is None
    flip(path, 20_000)

    assert step.apply() == 0
    assert store.lost is None


def test_a_segment_that_cannot_be_read_is_left_out_and_told(js: Scrubbing) -> None:
    path = js.files() / "msgs/00000002.seg"
    js.stream("S").store.maps.drop_maps()
    path.rename(path.with_name("elsewhere"))
    path.mkdir()
    js.begin()
    js.advance(seconds=30)
    path.rmdir()
    path.with_name("elsewhere").rename(path)
    assert any("leaves out what it cannot read" in text for _, text in js.log.lines)
    assert js.report()["passes"] == 1


def test_with_a_rate_of_0_nothing_is_checked() -> None:
    options = Options()
    options.jetstream = JetStreamOptions(enabled=True, scrub_rate=0)
    js = Scrubbing(options)
    js.advance(seconds=60)
    assert js.node.jetstream is not None
    assert js.node.jetstream.scrubber is None
    js.node.stop()


def test_a_stop_ends_it(js: Scrubbing) -> None:
    js.begin()
    scrubber = js.scrubber
    scrubber.stop()
    js.advance(seconds=60)
    assert scrubber.begin_upkeep() is None
    assert scrubber.report()["passes"] == 0
