"""The data source, called in the way Spark does, without a JVM: the pitfalls of the Python Data Source API."""

from __future__ import annotations

import inspect
import json
import logging
import os
import pickle
import subprocess
import sys
from collections.abc import Callable

import pytest
from spark.tests.conftest import Filler
from spark.tests.support.places import PYTHONPATH
from tests.conformance.harness.process import ServerProcess

from pyjs_spark.errors import OptionError, SchemaError

pytest.importorskip("pyarrow")
datasource = pytest.importorskip("pyspark.sql.datasource")

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.streaming.datasource import (  # needs pyspark
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import LongType, StringType, StructType

from pyjs_spark.datasource.source import JetStreamSource, source_of

SEQ = StructType().add("seq", LongType())
MakeSource = Callable[..., JetStreamSource]


@pytest.fixture
def source(server: ServerProcess, filler: Filler) -> MakeSource:
    """Make the data source for the test's stream in the way Spark does."""

    def make(**options: str) -> JetStreamSource:
        given = datasource.CaseInsensitiveDict(
            {"stream": filler.name, "servers": f"nats://127.0.0.1:{server.port}", **options}
        )
        return JetStreamSource(options=given)

    return make


def test_a_top_level_package_that_spark_searches_has_the_source() -> None:
    import pyspark_jetstream

    assert pyspark_jetstream.DefaultSource is JetStreamSource
    assert JetStreamSource.name() == "jetstream"


def test_options_are_checked_when_the_source_is_made_even_with_a_schema_of_the_user() -> None:
    with pytest.raises(OptionError, match="option stream is missing"):
        JetStreamSource(options={})


def test_parameters_have_the_names_that_spark_calls_them_by() -> None:
    for method in (JetStreamSource.reader, JetStreamSource.streamReader):
        assert list(inspect.signature(method).parameters) == ["self", "schema"]


def test_a_reader_has_push_filters_only_if_asked_for(source: MakeSource) -> None:
    plain, filtering = source().reader(schema=SEQ), source(pushdown="true").reader(schema=SEQ)

    inherited = datasource.DataSourceReader.pushFilters
    assert plain.pushFilters.__func__ is inherited
    assert filtering.pushFilters.__func__ is not inherited


def test_filters_that_are_used_are_not_handed_back(source: MakeSource, filler: Filler) -> None:
    filler.create()
    filler.fill(10)
    reader = source(pushdown="true").reader(schema=SEQ)
    used, unused = datasource.GreaterThan(("seq",), 4), datasource.StringEndsWith(("subject",), "x")

    assert reader.pushFilters([used, unused]) == [unused]
    assert [(part.value.low, part.value.high) for part in reader.partitions()] == [(5, 11)]


def test_a_filter_on_the_subject_goes_to_the_server(source: MakeSource, filler: Filler) -> None:
    filler.create()
    filler.fill(10)
    reader = source(pushdown="true").reader(schema=SEQ)
    subject = f"{filler.subject.decode()}.1"

    assert reader.pushFilters([datasource.EqualTo(("subject",), subject)]) == []
    assert [part.value.subjects for part in reader.partitions()] == [(subject,)]


def test_nothing_to_read_is_an_empty_list_and_a_partition_of_none(source: MakeSource, filler: Filler) -> None:
    filler.create()
    reader = source().reader(schema=SEQ)

    partitions = reader.partitions()
    rows = reader.read(datasource.InputPartition(None))

    assert partitions == []
    assert next(rows, "nothing") == "nothing"


def test_batches_are_what_spark_derives_from_the_schema(source: MakeSource, filler: Filler) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    filler.create()
    filler.fill(3)
    schema = StructType().add("Subject", StringType()).add("SEQ", LongType(), nullable=False)
    reader = pickle.loads(pickle.dumps(source().reader(schema=schema)))

    (batch,) = reader.read(reader.partitions()[0])

    assert batch.schema.equals(to_arrow_schema(schema, timezone="UTC"))
    assert batch.to_pydict() == {
        "Subject": [f"{filler.subject.decode()}.{n}" for n in (1, 2, 0)],
        "SEQ": [1, 2, 3],
    }


def test_a_schema_that_cannot_be_is_refused_by_the_driver(source: MakeSource) -> None:
    with pytest.raises(SchemaError, match="did you mean seq"):
        source().reader(schema=StructType().add("seqs", LongType()))
    with pytest.raises(SchemaError, match="no column"):
        source().streamReader(schema=StructType())


def test_what_is_lost_between_plan_and_read_is_told_in_the_log_of_the_worker(
    source: MakeSource, filler: Filler, caplog: pytest.LogCaptureFixture
) -> None:
    filler.create()
    filler.fill(10)
    reader = source(failOnDataLoss="false").reader(schema=SEQ)
    (part,) = reader.partitions()
    filler.api(f"STREAM.PURGE.{filler.name}", seq=6)

    with caplog.at_level(logging.WARNING, "pyjs_spark"):
        rows = [seq for batch in reader.read(part) for seq in batch.column("seq").to_pylist()]

    assert rows == [6, 7, 8, 9, 10]
    assert "up to 5 messages of 1 to 10 were lost after the read was planned; going on" in caplog.text


def test_a_query_cuts_its_batches_on_another_machine_as_it_did(source: MakeSource, filler: Filler) -> None:
    filler.create()
    filler.fill(60)
    told = {"startingOffsets": "earliest"}
    before = source(minPartitions="4", **told).streamReader(schema=SEQ)
    start = before.initialOffset()
    end = before.latestOffset(start, ReadAllAvailable())
    planned = [part.value for part in before.partitions(start, end)]

    for options in ({"minPartitions": "7"}, {}, {"maxRecordsPerPartition": "5"}):
        again = source(**told, **options).streamReader(schema=SEQ)
        assert [part.value for part in again.partitions(start, end)] == planned
        filler.fill(20)
        later = again.latestOffset(end, ReadAllAvailable())
        assert later["cut"] == start["cut"]
        assert len(again.partitions(end, later)) == 4
        end, planned = later, [part.value for part in again.partitions(start, later)]


def test_a_source_knows_the_parallelism_of_its_spark(source: MakeSource, filler: Filler) -> None:
    filler.create()
    given = source(startingOffsets="earliest").options

    def partitions(kind: type[JetStreamSource]) -> object:
        # as Spark sends it to the process that plans
        found = pickle.loads(CloudPickleSerializer().dumps(kind))
        return found(options=given).streamReader(schema=SEQ).initialOffset()["cut"]["partitions"]

    assert partitions(JetStreamSource) == 8
    assert partitions(source_of(None)) == 8
    assert partitions(source_of(3)) == 3


def test_latest_offset_takes_a_limit_and_lives_without_one(source: MakeSource, filler: Filler) -> None:
    filler.create()
    reader = source(startingOffsets="earliest").streamReader(schema=SEQ)
    filler.fill(4)

    assert len(inspect.signature(reader.latestOffset).parameters) == 2
    assert reader.latestOffset() == reader.latestOffset(reader.initialOffset(), ReadAllAvailable())


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"minRowsPerTrigger": "2"}, ReadMinRows(2)),
        ({"minRowsPerTrigger": "2", "maxBytesPerTrigger": "1k"}, ReadMaxBytes(1024)),
        ({"maxRowsPerTrigger": "3", "maxBytesPerTrigger": "1k"}, ReadMaxRows(3)),
    ],
)
def test_the_limit_told_to_spark_is_one_it_knows(
    source: MakeSource, options: dict[str, str], limit: object
) -> None:
    assert source(**options).streamReader(schema=SEQ).getDefaultReadLimit() == limit


def test_all_available_goes_before_the_limits_of_the_options(source: MakeSource, filler: Filler) -> None:
    filler.create()
    filler.fill(10)
    reader = source(startingOffsets="earliest", maxRowsPerTrigger="3").streamReader(schema=SEQ)
    start = reader.initialOffset()

    def end(limit: object) -> int:
        return int(reader.latestOffset(start, limit)["streams"][filler.name]["next"])

    assert (end(ReadMaxRows(3)), end(ReadAllAvailable())) == (4, 11)


def test_a_small_batch_waits_only_after_the_first(source: MakeSource, filler: Filler) -> None:
    filler.create()
    filler.fill(3)
    reader = source(startingOffsets="earliest", minRowsPerTrigger="5").streamReader(schema=SEQ)
    limit = reader.getDefaultReadLimit()

    first = reader.latestOffset(reader.initialOffset(), limit)
    filler.fill(3)
    second = reader.latestOffset(first, limit)
    filler.fill(3)
    third = reader.latestOffset(second, limit)

    assert [at["streams"][filler.name]["next"] for at in (first, second, third)] == [4, 4, 10]


def test_a_query_of_what_is_there_ends(source: MakeSource, filler: Filler) -> None:
    filler.create()
    filler.fill(5)
    reader = source(startingOffsets="earliest", maxRowsPerTrigger="3").streamReader(schema=SEQ)
    assert isinstance(reader, SupportsTriggerAvailableNow)
    reader.prepareForTriggerAvailableNow()
    filler.fill(5)
    limit = reader.getDefaultReadLimit()

    ends = [reader.initialOffset()]
    for _ in range(3):
        ends.append(reader.latestOffset(ends[-1], limit))

    assert [at["streams"][filler.name]["next"] for at in ends] == [1, 4, 6, 6]
    assert json.dumps(ends[-1]) == json.dumps(ends[-2])
    assert reader.reportLatestOffset()["streams"][filler.name]["next"] == 11


def test_offsets_are_plain_values_that_survive_json(source: MakeSource, filler: Filler) -> None:
    filler.create()
    filler.fill(5)
    reader = source(startingOffsets="earliest").streamReader(schema=SEQ)
    start = reader.initialOffset()
    end = json.loads(json.dumps(reader.latestOffset(start, ReadAllAvailable())))

    partitions = reader.partitions(start, end)

    assert isinstance(partitions, list)
    assert [(part.value.low, part.value.high) for part in partitions] == [(1, 6)]
    assert reader.partitions(end, end) == []


def test_a_worker_reads_with_a_pickled_copy_of_the_stream_reader(source: MakeSource, filler: Filler) -> None:
    filler.create()
    filler.fill(5)
    reader = source(startingOffsets="earliest").streamReader(schema=SEQ)
    start = reader.initialOffset()
    partitions = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))

    copy, (partition,) = pickle.loads(pickle.dumps((reader, partitions)))

    assert [batch.to_pydict() for batch in copy.read(partition)] == [{"seq": [1, 2, 3, 4, 5]}]


def test_commit_and_stop_touch_nothing_on_the_server(source: MakeSource, filler: Filler) -> None:
    filler.create()
    filler.fill(5)
    before = filler.api(f"STREAM.INFO.{filler.name}")["state"]
    reader = source(startingOffsets="earliest").streamReader(schema=SEQ)

    reader.commit(reader.latestOffset(reader.initialOffset(), ReadAllAvailable()))
    reader.stop()

    assert filler.api(f"STREAM.INFO.{filler.name}")["state"] == before


def test_secrets_that_are_looked_up_do_not_travel(
    source: MakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORDERS_PASSWORD", "s3cret")

    reader = source(user="ann", password="env:ORDERS_PASSWORD").reader(schema=SEQ)

    assert b"s3cret" not in pickle.dumps(reader)


def test_a_process_that_plans_a_read_imports_neither_the_sink_nor_the_store() -> None:
    """Spark starts several such processes for a query."""
    found = "import sys, pyjs_spark.datasource.source; print(*sys.modules)"
    env = {**os.environ, "PYTHONPATH": PYTHONPATH}

    done = subprocess.run([sys.executable, "-c", found], env=env, capture_output=True, text=True, check=True)

    rooms = {name.split(".")[1] for name in done.stdout.split() if name.startswith("pyjs_spark.")}
    assert rooms.isdisjoint({"write", "kv", "lake"})
    assert {"pyjs_spark.read.pull", "pyjs_spark.store.scan"}.isdisjoint(done.stdout.split())
