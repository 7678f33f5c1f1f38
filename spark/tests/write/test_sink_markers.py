"""The markers that a task of a sink reads: its own and that of the batch, or all if another run began the batch."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from spark.tests.support.sinks import Out

from pyjs_spark.datasource import sink
from pyjs_spark.errors import ReplayDiffers
from pyjs_spark.nats import buckets
from pyjs_spark.nats.client import Client
from pyjs_spark.write import keys, marker


def test_a_task_of_a_new_batch_reads_no_markers_of_others(out: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    everything = marker.Progress.read

    def counted(self: marker.Progress) -> dict[int, marker.Marker]:
        read.append(out.task.part)
        return everything(self)

    monkeypatch.setattr(marker.Progress, "read", counted)
    for batch in range(3):
        out.task.properties[sink.BATCH_ID] = str(batch)
        writer = out.stream_writer()
        for out.task.part in range(4):
            writer.write(iter([out.batch(out.rows(0, 3))]))
    assert read == []

    out.task.part = 4
    out.stream_writer().write(iter([out.batch(out.rows(0, 3))]))  # repeats the last batch

    assert read == [4]
    assert sorted(out.markers()) == ["0", "1", "2", "3", "4"]


def test_of_two_runs_that_begin_a_batch_at_once_one_looks_at_what_the_other_wrote(
    out: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = marker.Progress.begin

    def late(self: marker.Progress, mark: marker.BatchMark) -> marker.BatchMark:
        monkeypatch.setattr(marker.Progress, "begin", begin)
        out.task.part = 1
        out.stream_writer().write(iter([out.batch(out.rows(0, 5))]))
        return begin(self, mark)

    monkeypatch.setattr(marker.Progress, "begin", late)

    with pytest.raises(ReplayDiffers, match="were stored by other partitions"):
        out.stream_writer().write(iter([out.batch(out.rows(0, 5))]))


def test_a_batch_below_the_newest_is_refused_by_a_partition_that_is_new(out: Out) -> None:
    out.task.properties[sink.BATCH_ID] = "5"
    out.stream_writer().write(iter([out.batch(out.rows(0, 5))]))
    out.task.properties[sink.BATCH_ID] = "4"
    out.task.part = 7

    with pytest.raises(ReplayDiffers, match="batch 5 of this sink was written already"):
        out.stream_writer().write(iter([out.batch(out.rows(0, 5))]))


def test_a_bucket_that_another_task_makes_while_this_one_looks_is_read_again(
    out: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = keys.stream_info
    made: list[str] = []

    def late(client: Client, stream: str) -> Any:
        if not made:
            made.append(stream)
            out.filler.raw.api(f"STREAM.CREATE.{stream}", **buckets.kv_config("rivals"))
        return looked(client, stream)

    monkeypatch.setattr(keys, "stream_info", late)

    out.stream_writer(progressBucket="rivals").write(iter([out.batch(out.rows(0, 2))]))

    assert out.markers(bucket="rivals")["0"]["rows"] == 2
    out.filler.raw.api("STREAM.DELETE.KV_rivals")
