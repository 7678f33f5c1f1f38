"""Jobs as functions of DataFrames, in a real Spark and on both servers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from spark.tests.conftest import Filler
from tests.conformance.harness.process import ServerProcess

from pyjs_spark.lake import frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_jobs_are_plans_over_what_is_read(spark: SparkSession, server: ServerProcess, filler: Filler) -> None:
    letters = Filler(server.port, filler.name + "L")
    letters.raw.close()
    letters.raw = filler.raw  # two connections would receive each other's answers

    def read(name: str) -> DataFrame:
        options = {"servers": f"nats://127.0.0.1:{server.port}", "stream": name}
        return spark.read.format("jetstream").options(**options).load().cache()

    filler.create(duplicate_window=100_000_000)
    filler.fill(5)
    filler.fill(1, headers=b"NATS/1.0\r\nNats-Msg-Id: a\r\n\r\n")
    filler.delete(2, 3)
    letters.create()
    for said in (
        {"type": "io.nats.jetstream.advisory.v1.max_deliver", "stream_seq": 1, "deliveries": 5},
        {"type": "io.nats.jetstream.advisory.v1.terminated", "stream_seq": 2, "reason": "bad"},
        {"type": "io.nats.jetstream.advisory.v1.api_audit"},
        ["none"],
    ):
        body = {"stream": filler.name, "consumer": "C", **said} if isinstance(said, dict) else said
        assert b'"seq"' in filler.raw.request(letters.subject + b".x", json.dumps(body).encode())
    messages = read(filler.name)

    newest = {(row.subject.rpartition(".")[2], row.seq) for row in frames.latest(messages).collect()}
    holes = [(row.low, row.high) for row in frames.gaps(messages).collect()]
    found = frames.dead_letters(read(letters.name), messages).orderBy("advisory_seq").collect()

    assert newest == {("1", 6), ("2", 5)}
    assert holes == [(2, 4)]
    assert frames.duplicates(messages).collect() == []
    assert [(row.kind, row.stream_seq, row.deliveries, row.reason) for row in found] == [
        ("max_deliveries", 1, 5, None), ("terminated", 2, None, "bad"),
    ]  # fmt: skip
    assert [row.data and bytes(row.data) for row in found] == [b"1", None]
    twice = messages.unionAll(
        messages.selectExpr("stream", "seq + 10 AS seq", "ts", "subject", "headers", "data", "size")
    )
    assert [tuple(row) for row in frames.duplicates(twice).collect()] == [(filler.name, "a", 2, 6, 16)]
    letters.raw.try_api(f"STREAM.DELETE.{letters.name}")
