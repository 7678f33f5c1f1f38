"""Repeated batches, tasks that are repeated or replaced, lost connections: each row is stored once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spark.tests.conftest import Filler, arrow_or_skip, our_command_from_anywhere, peer_or_skip
from spark.tests.support.proxy import CuttingProxy
from tests.conformance.harness.process import ServerProcess
from tests.support.raw import RawClient

from pyjs_spark.errors import (
    PublishFailed,
    ReplayDiffers,
    RowRefused,
    ServerUnreachable,
    WriterReplaced,
)

arrow_or_skip()
pytest.importorskip("pyspark")

from spark.tests.support.sinks import Out, Task

from pyjs_spark.datasource import sink  # needs pyspark
from pyjs_spark.nats import buckets, retry
from pyjs_spark.nats.client import Client
from pyjs_spark.nats.settings import ConnectSettings
from pyjs_spark.write import (
    delivery,  # needs pyspark
    keys,  # needs pyspark
    publish,  # needs pyspark
    recovery,  # needs pyspark
)


class Crash(Exception):
    """The task ends here."""


def until_crash(*batches: Any) -> Iterator[Any]:
    yield from batches
    raise Crash


def interrupted(writer: Any, *batches: Any) -> None:
    with pytest.raises(Crash):
        writer.write(until_crash(*batches))


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list[Client]:
    """The connections that are made from now on."""
    found: list[Client] = []
    made = Client.__init__

    def remember(self: Client, settings: ConnectSettings) -> None:
        made(self, settings)
        found.append(self)

    monkeypatch.setattr(Client, "__init__", remember)
    return found


def test_a_done_batch_that_comes_again_adds_nothing(forgetful: Out) -> None:
    out = forgetful
    first = out.stream_writer().write(iter([out.batch(out.rows(0, 10))]))
    out.task.properties[sink.BATCH_ID] = "1"
    out.stream_writer().write(iter([out.batch(out.rows(10, 20))]))

    second = out.stream_writer().write(iter([out.batch(out.rows(10, 20))]))

    assert (first.sent, second.sent, second.rows) == (10, 0, 10)
    assert out.payloads() == [b"%d" % n for n in range(20)]


def test_of_a_batch_that_was_begun_only_the_rest_is_sent(forgetful: Out) -> None:
    out = forgetful
    out.filler.fill(5)
    before = out.payloads()
    interrupted(out.stream_writer(maxInFlight="4"), out.batch(out.rows(0, 50)))
    stored = len(out.payloads()) - len(before)

    done = out.stream_writer().write(iter([out.batch(out.rows(0, 50)), out.batch(out.rows(50, 60))]))

    assert (done.rows, done.sent) == (60, 60 - stored)
    assert 40 < stored <= 50
    assert out.payloads() == before + [b"%d" % n for n in range(60)]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("held", [0, 5])
def test_a_batch_that_was_begun_without_a_row_is_written(
    forgetful: Out, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    out = forgetful
    out.filler.fill(held)

    def crash(self: publish.Publisher, frames: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(publish.Publisher, "publish", crash)
        with pytest.raises(Crash):
            out.stream_writer().write(iter([out.batch(out.rows(0, 10))]))

    out.stream_writer().write(iter([out.batch(out.rows(0, 10))]))

    assert out.payloads()[held:] == [b"%d" % n for n in range(10)]


@pytest.mark.timeout(60)
def test_partitions_that_are_being_written_are_not_waited_for(
    forgetful: Out, server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = forgetful
    monkeypatch.setattr(recovery, "OTHERS_WAIT_S", 0.5)
    interrupted(out.stream_writer(maxInFlight="1"), out.batch(out.rows(0, 10)))
    is_over = threading.Event()

    def write_another() -> None:
        raw = RawClient(server.port)
        number = 0
        while not is_over.wait(0.02):
            head = f"NATS/1.0\r\nNats-Msg-Id: pyjs:{out.subject}:0:1:{number}\r\n\r\n"
            raw.send(f"HPUB {out.subject}.x {len(head)} {len(head) + 1}\r\n{head}-\r\n".encode())
            number += 1
        raw.close()

    other = threading.Thread(target=write_another)
    other.start()
    try:
        out.stream_writer().write(iter([out.batch(out.rows(0, 12))]))
    finally:
        is_over.set()
        other.join()

    assert [data for data in out.payloads() if data != b"-"] == [b"%d" % n for n in range(12)]


def test_rows_with_ids_of_their_own_may_come_again_in_another_order_and_partition(forgetful: Out) -> None:
    out = forgetful
    rows = [{"subject": f"{out.subject}.a", "data": b"%d" % n, "msg_id": f"id{n}"} for n in range(20)]
    columns = "subject data msg_id"
    interrupted(out.stream_writer(columns, maxInFlight="1"), out.batch(rows[:10]))

    out.task.part = 1
    out.stream_writer(columns).write(iter([out.batch(rows[::-1])]))

    assert sorted(map(int, out.payloads())) == list(range(20))


def test_a_replay_with_other_content_is_told_before_anything_is_sent(forgetful: Out) -> None:
    out = forgetful
    interrupted(out.stream_writer(maxInFlight="1"), out.batch(out.rows(0, 10)))
    before = out.payloads()

    with pytest.raises(
        ReplayDiffers, match=r"row 0 was stored with other content.*Start the query as it was"
    ):
        out.stream_writer().write(iter([out.batch(out.rows(1, 20))]))

    assert out.payloads() == before


def test_a_replay_in_other_partitions_is_told_before_anything_is_sent(forgetful: Out) -> None:
    out = forgetful
    interrupted(out.stream_writer(maxInFlight="1"), out.batch(out.rows(0, 100)))
    before = out.payloads()

    out.task.part = 1
    with pytest.raises(ReplayDiffers, match="were stored by other partitions"):
        out.stream_writer().write(iter([out.batch(out.rows(50, 100))]))

    assert out.payloads() == before


def test_a_replay_in_fewer_partitions_is_told_before_anything_is_sent(forgetful: Out) -> None:
    out = forgetful
    first = out.stream_writer()
    first.write(iter([out.batch(out.rows(0, 50))]))
    out.task.part = 1
    interrupted(out.stream_writer(maxInFlight="1"), out.batch(out.rows(50, 100)))
    before = out.stored_payloads(100)

    out.task.part = 0
    with pytest.raises(ReplayDiffers, match="50 rows were written, and now it has 100 rows"):
        out.stream_writer().write(iter([out.batch(out.rows(0, 100))]))
    out.task.part = 1
    with pytest.raises(ReplayDiffers, match="was begun, and now has no rows"):
        out.stream_writer().write(iter([]))

    assert out.payloads() == before


def test_other_rows_under_the_same_id_are_told(out: Out) -> None:
    out.task.properties.clear()
    sink_id = f"d{out.subject}"
    out.writer(sinkId=sink_id).write(iter([out.batch(out.rows(10, 20))]))

    with pytest.raises(
        ReplayDiffers, match=r"10 rows were written, and now it has others.*use another sinkId"
    ):
        out.writer(sinkId=sink_id).write(iter([out.batch(out.rows(20, 30))]))
    other_subjects = [{**row, "subject": f"{out.subject}.z"} for row in out.rows(10, 20)]
    with pytest.raises(ReplayDiffers, match="now it has others"):
        out.writer(sinkId=sink_id).write(iter([out.batch(other_subjects)]))


def test_done_rows_with_ids_of_their_own_may_come_again_in_another_order(out: Out) -> None:
    out.task.properties.clear()
    rows = [{"subject": f"{out.subject}.a", "data": b"%d" % n, "msg_id": f"id{n}"} for n in range(10)]
    write = out.writer("subject data msg_id", sinkId=f"o{out.subject}").write
    write(iter([out.batch(rows)]))

    assert write(iter([out.batch(rows[::-1])])).sent == 0
    with pytest.raises(ReplayDiffers, match="now it has others"):
        write(iter([out.batch([*rows[:9], {**rows[9], "msg_id": "new"}])]))


def test_the_batches_of_rows_that_spark_makes_do_not_matter(out: Out) -> None:
    out.stream_writer().write(iter([out.batch(out.rows(0, 10)), out.batch(out.rows(10, 20))]))

    assert out.stream_writer().write(iter([out.batch(out.rows(0, 3)), out.batch(out.rows(3, 20))])).sent == 0


@pytest.mark.parametrize("cut", [2500, 3500, 4500, 5500, 6500, 8000, 12000])
def test_rows_are_stored_once_over_connections_that_are_lost(
    forgetful: Out, server: ServerProcess, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.001)
    out = forgetful
    for count in (1, 2):
        proxy = CuttingProxy(server.port, [cut] * 3)
        servers = f"nats://127.0.0.1:{proxy.port}"
        out.task.properties[sink.BATCH_ID] = str(count)
        out.stream_writer(servers=servers, maxInFlight="50").write(iter([out.batch(out.rows(0, 150))]))
        assert sorted(map(int, out.payloads())) == sorted([*range(150)] * count)
        assert proxy.connections > 1
        proxy.close()


@pytest.mark.parametrize("kind", ["ours", "peer"])
def test_rows_are_stored_once_over_a_server_that_is_killed(tmp_path: Path, task: Task, kind: str) -> None:
    command = our_command_from_anywhere() if kind == "ours" else peer_or_skip()
    process = ServerProcess(command, 'jetstream: {store_dir: "<<store>>"}', tmp_path, with_http=False)
    process.start()
    proxy = CuttingProxy(process.port, [])
    filler = Filler(process.port, "OUT")
    filler.create(storage="file", duplicate_window=100_000_000)
    out = Out(filler, proxy.port, task)

    def with_kills() -> Iterator[Any]:
        for low in range(0, 500, 100):
            yield out.batch(out.rows(low, low + 100))
            process.kill()
            process.start()
            proxy.target = process.port

    try:
        done = out.stream_writer(maxInFlight="60").write(with_kills())
        assert sorted(map(int, out.payloads())) == list(range(500))
        assert done.rows == 500
    finally:
        process.kill()
        proxy.close()


@pytest.mark.parametrize("kind", ["ours", "peer"])
def test_what_was_stored_before_a_server_gave_a_silent_connection_up_is_not_sent_again(
    tmp_path: Path, task: Task, kind: str, clients: list[Client]
) -> None:
    command = our_command_from_anywhere() if kind == "ours" else peer_or_skip()
    config = 'jetstream: {store_dir: "<<store>>"}\nping_interval: "900ms"\nping_max: 1'
    process = ServerProcess(command, config, tmp_path, with_http=False)
    process.start()
    filler = Filler(process.port, "OUT")
    filler.create()
    out = Out(filler, process.port, task)

    def slow() -> Iterator[Any]:
        yield out.batch(out.rows(0, 10))
        time.sleep(3.0)  # the query before the sink is slow, and PINGs are not answered meanwhile
        yield out.batch(out.rows(10, 15))
        time.sleep(0.1)  # until its first bytes meet a closed connection
        yield out.batch(out.rows(15, 20))

    try:
        out.writer(delivery="atLeastOnce").write(slow())
        assert clients[0].connections >= 2  # otherwise this proves nothing
        filler.raw = RawClient(process.port)  # the first client has answered no PING
        assert out.payloads() == [b"%d" % n for n in range(20)]
    finally:
        process.kill()


def test_a_server_that_is_not_there_is_told_after_all_retries(
    out: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.001)

    with pytest.raises(ServerUnreachable):
        out.stream_writer(servers="nats://127.0.0.1:1").write(iter([]))


def test_messages_that_left_the_stream_while_the_connection_was_lost_are_told(
    forgetful: Out, clients: list[Client]
) -> None:
    out = forgetful

    def lossy() -> Iterator[Any]:
        yield out.batch(out.rows(0, 10))
        yield out.batch(out.rows(10, 20))
        while len(out.payloads()) < 20:
            pass
        out.filler.delete(2)
        clients[0]._stream.close()
        yield out.batch(out.rows(20, 30))

    writer = out.stream_writer(maxInFlight="100")
    with pytest.raises(ReplayDiffers, match="the connection was lost, and 1 messages left the stream"):
        writer.write(lossy())


def test_rows_with_ids_are_told_by_their_ids_after_a_lost_connection(
    forgetful: Out, monkeypatch: pytest.MonkeyPatch, clients: list[Client]
) -> None:
    out = forgetful
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.001)
    rows = [{"subject": f"{out.subject}.a", "data": b"%d" % n, "msg_id": f"id{n}"} for n in range(20)]
    columns = "subject data msg_id"
    interrupted(out.stream_writer(columns, maxInFlight="1"), out.batch(rows[:10]))

    def in_another_order() -> Iterator[Any]:
        yield out.batch(rows[:3])
        clients[0]._stream.close()
        yield out.batch(rows[10:])  # instead of rows 3 to 9, which are stored
        yield out.batch(rows[3:10])

    clients.clear()
    out.stream_writer(columns).write(in_another_order())

    assert sorted(map(int, out.payloads())) == list(range(20))


def test_other_partitions_of_a_batch_that_was_begun_are_written(forgetful: Out) -> None:
    out = forgetful
    interrupted(out.stream_writer(maxInFlight="1"), out.batch(out.rows(0, 10)))

    for part in (1, 0):
        out.task.part = part
        out.stream_writer().write(iter([out.batch(out.rows(100 * part, 100 * part + 20))]))

    assert sorted(map(int, out.payloads())) == [*range(20), *range(100, 120)]


def test_a_checkpoint_that_was_set_back_is_told(out: Out) -> None:
    out.task.properties[sink.BATCH_ID] = "5"
    out.stream_writer().write(iter([out.batch(out.rows(0, 3))]))
    out.task.properties[sink.BATCH_ID] = "3"
    out.task.part = 1

    with pytest.raises(
        ReplayDiffers, match=r"batch 5 of this sink was written already.*nats kv del pyjs-sinks"
    ):
        out.stream_writer().write(iter([out.batch(out.rows(0, 3))]))


def test_a_sink_id_belongs_to_one_stream(out: Out) -> None:
    out.stream_writer().write(iter([out.batch(out.rows(0, 3))]))
    other = out.filler.name + "O"
    out.filler.raw.api(f"STREAM.CREATE.{other}", **out.config(name=other, subjects=[f"{out.subject}o.>"]))

    with pytest.raises(ReplayDiffers, match=f"belongs to a sink of stream {out.filler.name}, not of {other}"):
        out.stream_writer(stream=other).write(iter([out.batch(out.rows(0, 3))]))
    out.filler.raw.api(f"STREAM.DELETE.{other}")


def test_evidence_that_left_the_stream_is_told(forgetful: Out) -> None:
    out = forgetful
    interrupted(out.stream_writer(maxInFlight="1"), out.batch(out.rows(0, 10)))
    out.filler.delete(4)

    with pytest.raises(ReplayDiffers, match=r"1 messages left the stream since.*delivery=atLeastOnce"):
        out.stream_writer().write(iter([out.batch(out.rows(0, 10))]))


def test_evidence_that_left_the_stream_is_not_needed_within_the_duplicate_window(out: Out) -> None:
    interrupted(out.stream_writer(maxInFlight="1"), out.batch(out.rows(0, 10)))
    out.filler.delete(4)

    out.stream_writer().write(iter([out.batch(out.rows(0, 10))]))

    assert sorted(map(int, out.payloads())) == [0, 1, 2, *range(4, 10)]


def test_evidence_is_needed_again_when_the_duplicate_window_ends_meanwhile(
    out: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    out.filler.raw.api(f"STREAM.UPDATE.{out.filler.name}", **out.config(duplicate_window=1_000_000_000))
    monkeypatch.setattr(delivery, "WINDOW_MARGIN_NS", 0)
    interrupted(out.stream_writer(maxInFlight="1"), out.batch(out.rows(0, 20)))
    out.filler.delete(16)

    def slow() -> Iterator[Any]:
        yield out.batch(out.rows(0, 10))
        time.sleep(1.2)  # the query before the sink is slow
        yield out.batch(out.rows(10, 20))

    with pytest.raises(ReplayDiffers, match="1 messages left the stream since"):
        out.stream_writer().write(slow())
    assert b"15" not in out.payloads()


def test_a_stream_that_renames_subjects_can_be_written_to_again(out: Out) -> None:
    renamed = {"src": f"{out.subject}.>", "dest": f"{out.subject}.as.>"}
    config = out.config(duplicate_window=100_000_000, subject_transform=renamed)
    out.filler.raw.api(f"STREAM.UPDATE.{out.filler.name}", **config)
    interrupted(out.stream_writer(maxInFlight="1"), out.batch(out.rows(0, 10)))

    out.stream_writer().write(iter([out.batch(out.rows(0, 12))]))

    assert out.payloads() == [b"%d" % n for n in range(12)]
    assert out.stored()[0]["subject"] == f"{out.subject}.as.0"


def test_what_filled_the_stream_can_come_again(out: Out) -> None:
    full = out.config(duplicate_window=100_000_000, max_msgs=10, discard="new")
    out.filler.raw.api(f"STREAM.UPDATE.{out.filler.name}", **full)
    interrupted(out.stream_writer(maxInFlight="1"), out.batch(out.rows(0, 10)))
    while len(out.payloads()) < 10:
        pass

    assert out.stream_writer().write(iter([out.batch(out.rows(0, 10))])).sent == 0


def test_a_target_that_was_recreated_is_told(out: Out) -> None:
    interrupted(out.stream_writer(maxInFlight="1"), out.batch(out.rows(0, 10)))
    out.filler.raw.api(f"STREAM.DELETE.{out.filler.name}")
    out.filler.create()

    with pytest.raises(ReplayDiffers, match=r"it was begun for the stream .* made at"):
        out.stream_writer().write(iter([out.batch(out.rows(0, 10))]))


def test_an_attempt_that_was_replaced_ends_with_an_error(forgetful: Out) -> None:
    out = forgetful

    def slow() -> Iterator[Any]:
        yield out.batch(out.rows(0, 10))
        out.stream_writer().write(iter([out.batch(out.rows(0, 20))]))

    with pytest.raises(WriterReplaced, match="another attempt writes these rows"):
        out.stream_writer(maxInFlight="1").write(slow())

    assert out.payloads() == [b"%d" % n for n in range(20)]


def test_a_batch_write_with_an_id_can_be_repeated(forgetful: Out) -> None:
    out = forgetful
    out.task.properties.clear()
    for _ in range(2):
        writer = out.writer(sinkId=f"day{out.subject}")
        writer.commit([writer.write(iter([out.batch(out.rows(0, 5))]))])

    assert out.payloads() == [b"%d" % n for n in range(5)]


def test_an_id_that_looks_like_one_of_a_write_without_one_is_kept(forgetful: Out) -> None:
    out = forgetful
    out.task.properties.clear()
    for _ in range(2):
        writer = out.writer(sinkId=f"once-{out.subject}")
        writer.commit([writer.write(iter([out.batch(out.rows(0, 5))]))])

    assert out.payloads() == [b"%d" % n for n in range(5)]
    assert out.markers(f"once-{out.subject}").keys() == {"0"}


def test_a_batch_write_without_an_id_is_a_new_one_each_time_and_leaves_no_progress(out: Out) -> None:
    out.task.properties.clear()
    for end in ("commit", "abort"):
        writer = out.writer()
        getattr(writer, end)([writer.write(iter([out.batch(out.rows(0, 2))]))])
        assert out.markers(writer._writing.options.sink_id) == {}

    assert out.payloads() == [b"0", b"1", b"0", b"1"]


def test_a_task_that_is_repeated_in_the_same_write_sends_only_the_rest(forgetful: Out) -> None:
    out = forgetful
    out.task.properties.clear()
    writer = out.writer(maxInFlight="1")
    interrupted(writer, out.batch(out.rows(0, 10)))

    done = writer.write(iter([out.batch(out.rows(0, 12))]))

    assert out.payloads() == [b"%d" % n for n in range(12)]
    assert done.sent in (2, 3)


def test_progress_is_a_bucket_that_anybody_can_read_and_forget(out: Out) -> None:
    out.task.properties[sink.BATCH_ID] = "4"
    out.stream_writer(sinkId="mine", progressBucket="here").write(iter([out.batch(out.rows(0, 10))]))

    value = out.markers("mine", "here")["0"]
    assert (value["batch"], value["state"], value["rows"]) == (4, "done", 10)
    out.filler.raw.send(b"HPUB $KV.here.mine.0 31 31\r\nNATS/1.0\r\nKV-Operation: DEL\r\n\r\n\r\n")
    out.filler.raw.fence()
    out.stream_writer(sinkId="mine", progressBucket="here").write(iter([out.batch(out.rows(10, 12))]))
    assert out.markers("mine", "here")["0"]["rows"] == 2
    out.filler.raw.api("STREAM.DELETE.KV_here")


def test_a_sink_may_have_more_partitions_than_a_server_tells_at_once(out: Out) -> None:
    out.stream_writer().write(iter([out.batch(out.rows(0, 3))]))
    marker = json.dumps(out.markers()["0"]).encode()
    raw, prefix = out.filler.raw, f"$KV.pyjs-sinks.{out.filler.name.lower()}."
    for part in range(1, 1100):
        raw.request(prefix.encode() + b"%d" % part, marker)

    out.task.part = 1099
    assert out.stream_writer().write(iter([out.batch(out.rows(0, 3))])).sent == 0
    raw.api("STREAM.PURGE.KV_pyjs-sinks", filter=prefix + ">")


def test_a_bucket_without_direct_gets_is_read_too(out: Out) -> None:
    config = {"name": "KV_slow", "subjects": ["$KV.slow.>"], "max_msgs_per_subject": 1, "storage": "memory"}
    out.filler.raw.api("STREAM.CREATE.KV_slow", **config)
    for expected in (3, 0):
        writer = out.stream_writer(progressBucket="slow")
        assert writer.write(iter([out.batch(out.rows(0, 3))])).sent == expected
    out.filler.raw.api("STREAM.DELETE.KV_slow")


def test_a_bucket_that_cannot_be_made_is_told(out: Out) -> None:
    config = {"name": f"X{out.filler.name}", "subjects": ["$KV.taken.a.>"], "storage": "memory"}
    out.filler.raw.api(f"STREAM.CREATE.X{out.filler.name}", **config)

    with pytest.raises(PublishFailed, match=r"cannot be made.*nats kv add taken.*delivery=atLeastOnce"):
        out.stream_writer(progressBucket="taken").write(iter([out.batch(out.rows(0, 3))]))
    out.filler.raw.api(f"STREAM.DELETE.X{out.filler.name}")


def test_a_bucket_that_another_makes_at_the_same_time_is_used(
    out: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = keys.stream_info
    states: list[Any] = [None]  # the result of the first read

    def late(client: Client, stream: str) -> Any:
        if states:
            out.filler.raw.api(
                f"STREAM.CREATE.{stream}", **buckets.kv_config("rival", description="made by somebody else")
            )
            return states.pop()
        return looked(client, stream)

    monkeypatch.setattr(keys, "stream_info", late)
    out.stream_writer(progressBucket="rival").write(iter([out.batch(out.rows(0, 2))]))

    assert out.markers(bucket="rival")["0"]["rows"] == 2
    out.filler.raw.api("STREAM.DELETE.KV_rival")


def test_progress_of_another_version_is_told(out: Out) -> None:
    out.stream_writer().write(iter([out.batch(out.rows(0, 3))]))
    key = f"$KV.pyjs-sinks.{out.filler.name.lower()}.0".encode()
    out.filler.raw.send(b'PUB %b 7\r\n{"v":9}\r\n' % key)
    out.filler.raw.fence()

    with pytest.raises(ReplayDiffers, match="was written by another version"):
        out.stream_writer().write(iter([out.batch(out.rows(0, 3))]))


def test_a_payload_as_large_as_the_server_takes_is_written(out: Out) -> None:
    rows = [{"data": b"x" * (4 << 20)}]
    out.writer("data", subject=f"{out.subject}.x", delivery="atLeastOnce").write(iter([out.batch(rows)]))

    assert [len(payload) for payload in out.payloads()] == [4 << 20]


@pytest.mark.parametrize("size", range(4_194_304 - 140, 4_194_304 - 60, 4))
def test_the_largest_payload_of_a_row_with_an_id_is_either_written_or_refused(out: Out, size: int) -> None:
    out.task.properties.clear()
    try:
        out.writer("data", subject=f"{out.subject}.x", sinkId="p").write(
            iter([out.batch([{"data": b"x" * size}])])
        )
    except RowRefused:
        assert size > 4_194_304 - 100
    out.filler.raw.api("STREAM.PURGE.KV_pyjs-sinks", filter="$KV.pyjs-sinks.p.>")
