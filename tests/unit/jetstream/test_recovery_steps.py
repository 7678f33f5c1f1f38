"""A start in steps: it can be interrupted between any two, and a fault of one stream affects no other stream."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.base.disk import OsDisk
from pyjs.config.options import JetStreamOptions, Options
from pyjs.jetstream.server import JetStreamServer
from pyjs.store.file.store import FileStore
from pyjs.store.format.layout import lock_store

MESSAGES = 40


def options_of(root: Path) -> Options:
    options = Options()
    options.jetstream = JetStreamOptions(enabled=True, store_dir=str(root))
    return options


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The store of a stopped server: two streams of several segments, one of them with consumers."""
    js = JetStreamFixture(options_of(tmp_path))
    for name in ("A", "B"):
        js.add(name, subjects=[f"{name}.>"], storage="file", max_bytes=8 << 20, max_msgs=1000)
        for _ in range(MESSAGES):
            js.publish(f"{name}.x", b"x" * 200_000)
    for name in ("c1", "c2"):
        config = {"durable_name": name, "ack_policy": "explicit"}
        js.api(f"CONSUMER.CREATE.A.{name}", {"stream_name": "A", "config": config})
    js.node.stop()
    return tmp_path


def begun(root: Path) -> tuple[JetStreamServer, Iterator[None]]:
    """Return JetStream of a new node that has not read anything yet, and the steps of its recovery."""
    options = options_of(root)
    options.jetstream.enabled = False
    js = JetStreamFixture.__new__(JetStreamFixture)
    super(JetStreamFixture, js).__init__(options)
    options.jetstream.enabled = True
    server = JetStreamServer(js.node)
    return server, server.start_steps()


def open_descriptors() -> int:
    """Return the number of open files of this process, after closing those of unreachable objects."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_a_start_gives_way_for_every_segment_and_every_consumer(root: Path) -> None:
    segments = len(list(root.rglob("*.seg")))
    server, steps = begun(root)
    assert sum(1 for _ in steps) >= segments + 2
    engine = server.accounts["$G"]
    assert [stream.store.msgs for stream in engine.streams.values()] == [MESSAGES] * 2
    assert sorted(engine.streams["A"].consumers) == ["c1", "c2"]
    server.stop()


def test_a_start_that_is_given_up_after_any_step_leaves_the_store_as_it_was(root: Path) -> None:
    # given
    descriptors = open_descriptors()
    server, steps = begun(root)
    count = sum(1 for _ in steps)
    server.stop()
    for taken in range(0, count, 2):
        # when
        server, steps = begun(root)
        for _ in range(taken + 1):
            next(steps)
        assert hasattr(steps, "close")
        steps.close()
        server.stop()
        del server, steps  # maps of index files stay open as long as their store
        # then
        assert open_descriptors() == descriptors
        lock_store(OsDisk(), str(root)).release()
    js = JetStreamFixture(options_of(root))
    assert [js.state(name)["messages"] for name in ("A", "B")] == [MESSAGES] * 2
    js.node.stop()


@pytest.mark.parametrize("part", ["consumers", "msgs"])
def test_a_stream_copied_without_its_empty_directories_takes_messages(tmp_path: Path, part: str) -> None:
    # given: archives and object storage leave out directories without files
    js = JetStreamFixture(options_of(tmp_path))
    js.add("S", subjects=["s"], storage="file")
    if part == "consumers":
        js.publish("s", b"one")
        js.api("CONSUMER.CREATE.S.d", {"stream_name": "S", "config": {"durable_name": "d"}})
        js.api("CONSUMER.DELETE.S.d")
    js.node.stop()
    directory = tmp_path / "$G/streams/S" / part
    shutil.rmtree(directory)
    # when
    js = JetStreamFixture(options_of(tmp_path))
    js.publish("s", b"two")
    store = js.stream("S").store
    assert isinstance(store, FileStore)
    store.sync_now()
    # then
    assert js.publish("s", b"three")["stream"] == "S"
    assert js.payloads("S")[-2:] == [b"two", b"three"]
    config = {"durable_name": "c", "ack_policy": "explicit"}
    assert js.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})["name"] == "c"
    assert directory.is_dir()
    js.node.stop()


@pytest.mark.parametrize(
    "error", [MemoryError(), RecursionError("deep"), OSError(5, "i/o"), RuntimeError("?")]
)
@pytest.mark.parametrize("place", ["relearn_steps", "consumers.recover_steps", "sourcing.opened"])
def test_trouble_with_one_stream_costs_the_others_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch, place: str, error: Exception
) -> None:
    # given
    from pyjs.jetstream.manage import streams
    from pyjs.jetstream.mirror import sourcing

    module, _, name = place.rpartition(".")
    of = {"": streams, "consumers": streams.consumers, "sourcing": sourcing}[module]
    real = getattr(of, name)
    monkeypatch.setattr(streams, "_check_kept", lambda js, config: None)

    def troubled(*given: object) -> object:
        if any(getattr(each, "name", "") == "A" for each in given):
            raise error
        return real(*given)

    monkeypatch.setattr(of, name, troubled)
    if module == "sourcing":
        monkeypatch.setattr(streams, "_join", lambda js, stream: sourcing.opened(js, stream))
    # when
    js = JetStreamFixture(options_of(root))
    # then
    assert list(js.engine.streams) == ["B"]
    assert js.state("B")["messages"] == MESSAGES
    assert js.publish("B.x")["seq"] == MESSAGES + 1
    assert js.error("STREAM.INFO.A")[1] == 10059
    assert js.engine.unrecovered() == ["A"]
    told = [text for level, text in js.log.lines if level == "ERR"]
    assert any("streams/A is not recovered, its files stay" in text for text in told)
    js.node.stop()
