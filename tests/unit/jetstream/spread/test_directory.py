"""The streams of other workers: their reservations here, their changes, and conflicting stores."""

from __future__ import annotations

import pytest
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.jetstream.cluster.assignments import stored_config
from pyjs.jetstream.config.stream import StreamConfig
from pyjs.jetstream.spread.directory import Directory
from pyjs.jetstream.spread.notes import Holding, Holdings
from pyjs.jetstream.spread.usage import SharedUsage, Used


def holding(name: str, *subjects: str, max_bytes: int = -1, account: str = "$G") -> Holding:
    return Holding(account, stored_config(StreamConfig(name=name, subjects=subjects, max_bytes=max_bytes)), 5)


@pytest.fixture
def js() -> JetStreamFixture:
    return JetStreamFixture()


@pytest.fixture
def directory(js: JetStreamFixture) -> Directory:
    assert js.node.jetstream is not None
    return Directory(js.node.jetstream.accounts, js.node.log)


def test_streams_of_other_workers_reserve_names_subjects_and_bytes(
    js: JetStreamFixture, directory: Directory
) -> None:
    directory.take(Holdings(2, True, streams=(holding("S", "s.>", max_bytes=100),)))
    found = directory.find("$G", "S")
    assert found is not None
    assert (found.worker, found.config.name, found.created_ns) == (2, "S", 5)
    assert js.error("STREAM.CREATE.N", {"name": "N", "subjects": ["s.x"]})[1] == 10065
    assert js.engine.usage["file"].reserved == 100
    assert list(js.engine.elsewhere) == ["S"]
    directory.take(Holdings(2, False, gone=(("$G", "S"),)))
    assert js.engine.usage["file"].reserved == 0
    assert js.engine.elsewhere == {}
    js.add("N", subjects=["s.x"])
    assert directory.changed == [("$G", "S"), ("$G", "S")]


def test_a_changed_stream_replaces_what_was_known(js: JetStreamFixture, directory: Directory) -> None:
    directory.take(Holdings(2, False, streams=(holding("S", "a"), holding("T", "t"))))
    directory.take(Holdings(2, False, streams=(holding("S", "b"),)))
    js.add("A", subjects=["a"])
    assert js.error("STREAM.CREATE.B", {"name": "B", "subjects": ["b"]})[1] == 10065
    assert directory.counts() == {2: 2}
    assert directory.whole(2) == Holdings(2, True, streams=(holding("T", "t"), holding("S", "b")))


def test_all_streams_of_a_worker_replace_what_it_told_before(directory: Directory) -> None:
    directory.take(Holdings(2, True, streams=(holding("S"), holding("T"))))
    directory.take(Holdings(3, True, streams=(holding("U"),)))
    directory.take(Holdings(2, True, streams=(holding("T"),)))
    assert sorted(directory.streams("$G")) == ["T", "U"]
    assert directory.reported == {2, 3}


def test_a_stream_that_two_workers_have_is_that_of_the_first_one_told(
    js: JetStreamFixture, directory: Directory
) -> None:
    js.add("HERE")
    directory.take(Holdings(2, True, streams=(holding("S", "s"), holding("HERE", "h"))))
    directory.take(Holdings(3, True, streams=(holding("S", "other"),)))
    found = directory.find("$G", "S")
    assert found is not None
    assert found.worker == 2
    assert directory.find("$G", "HERE") is None
    directory.take(Holdings(3, False, gone=(("$G", "S"),)))
    assert directory.find("$G", "S") == found


def test_an_account_that_gets_jetstream_later_knows_the_streams_of_others(
    js: JetStreamFixture, directory: Directory
) -> None:
    assert js.node.jetstream is not None
    engine = js.node.jetstream.accounts.pop("$G")
    directory.take(Holdings(2, True, streams=(holding("S", "s"),)))
    assert engine.elsewhere == {}
    directory.account_opened(engine)
    assert list(engine.elsewhere) == ["S"]
    js.node.jetstream.accounts["$G"] = engine


def test_the_bytes_of_other_workers_count_for_the_limit_of_the_server(js: JetStreamFixture) -> None:
    assert js.node.jetstream is not None
    totals = js.node.jetstream.shared.usage
    totals["memory"].max = totals["file"].max = 128_000
    usage = SharedUsage(totals)
    js.add("S")
    js.publish("S", bytes(500))
    assert usage.news() is None or usage.own().memory < 1000
    usage.take(2, Used(1000, 5000))
    usage.take(3, Used(1, 2))
    usage.take(2, Used(2000, 4000))
    assert totals["file"].used == 4002
    assert totals["memory"].used == usage.own().memory + 2001
    js.publish("S", bytes(5000))
    assert usage.news() == usage.own()
    assert usage.news() is None


def test_the_end_of_an_account_releases_what_it_reserved(js: JetStreamFixture, directory: Directory) -> None:
    directory.take(Holdings(2, True, streams=(holding("S", "s", max_bytes=100),)))
    engine = js.engine
    for _ in range(3):  # one reload disables JetStream, another enables it
        directory.account_closed(engine)
        assert engine.shared.usage["file"].reserved == 0
        directory.account_opened(engine)
        assert engine.shared.usage["file"].reserved == 100
