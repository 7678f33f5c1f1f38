"""Key-value buckets as rows: equal for both servers, with changes of keys before and during reads."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from spark.tests.conftest import Filler, wait_for
from tests.conformance.harness.process import ServerProcess

pytest.importorskip("pyarrow")
datasource = pytest.importorskip("pyspark.sql.datasource")

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema  # needs pyspark
from pyspark.sql.types import StructType

from pyjs_spark.datasource.source import JetStreamSource
from pyjs_spark.datasource.tables import ddl
from pyjs_spark.errors import DataLoss, OptionError, SchemaError, StreamMissing
from pyjs_spark.kv import entries as kv
from pyjs_spark.nats.client import Client
from pyjs_spark.nats.settings import ConnectSettings
from pyjs_spark.read import (
    latest,
    pull,
)
from pyjs_spark.read.ranges import ReadRange, Report
from pyjs_spark.subjects import overlaps

DEL = b"NATS/1.0\r\nKV-Operation: DEL\r\n\r\n"
PURGE = b"NATS/1.0\r\nKV-Operation: PURGE\r\nNats-Rollup: sub\r\n\r\n"
BUCKET = {
    "max_msgs_per_subject": 3,
    "discard": "new",
    "allow_rollup_hdrs": True,
    "deny_delete": True,
    "allow_direct": True,
    "storage": "memory",
}


class Bucket:
    """A bucket created and filled in the way a KV client does it."""

    def __init__(self, filler: Filler, name: str = "") -> None:
        self.raw = filler.raw
        self.name = name or filler.name
        self.stream = f"KV_{self.name}"

    def create(self, **config: object) -> None:
        subjects = {} if "mirror" in config else {"subjects": [f"$KV.{self.name}.>"]}
        self.raw.api(f"STREAM.CREATE.{self.stream}", **({"name": self.stream} | subjects | BUCKET | config))

    def put(self, key: str, value: bytes = b"", headers: bytes = b"") -> None:
        self.put_all([(key, value)], headers)

    def put_all(self, pairs: list[tuple[str, bytes]], headers: bytes = b"") -> None:
        inbox, lines = b"_INBOX.raw.kv", []
        for key, value in pairs:
            subject = f"$KV.{self.name}.{key}".encode()
            verb, sizes = (b"HPUB", b"%d %d" % (len(headers), len(headers) + len(value)))
            if not headers:
                verb, sizes = b"PUB", b"%d" % len(value)
            lines.append(b"%b %b %b %b\r\n%b%b\r\n" % (verb, subject, inbox, sizes, headers, value))
        for at in range(0, len(lines), 500):
            self.raw.send(b"".join(lines[at : at + 500]))
            acks = self.raw.frames()
            for _ in lines[at : at + 500]:
                assert b'"seq"' in next(acks)[3]

    def consumers(self) -> object:
        return self.raw.api(f"CONSUMER.NAMES.{self.stream}")["consumers"]

    def delete(self) -> None:
        self.raw.try_api(f"STREAM.DELETE.{self.stream}")


@pytest.fixture
def bucket(filler: Filler) -> Iterator[Bucket]:
    """A bucket that does not exist yet."""
    made = Bucket(filler)
    yield made
    made.delete()


Read = Callable[..., list[dict[str, Any]]]
MakeSource = Callable[..., JetStreamSource]


def struct(*names: str) -> StructType:
    """Return a schema with some columns of buckets."""
    from pyspark.sql import types

    kinds = {
        "string": types.StringType(),
        "binary": types.BinaryType(),
        "bigint": types.LongType(),
        "timestamp": types.TimestampType(),
        "int": types.IntegerType(),
        "map<string,array<string>>": types.MapType(types.StringType(), types.ArrayType(types.StringType())),
    }
    found = StructType()
    for name in names or [each for each in kv.TYPES if each not in kv.EXTRA]:
        found = found.add(name, kinds[kv.TYPES[name.lower()]])
    return found


@pytest.fixture
def source(server: ServerProcess, bucket: Bucket) -> MakeSource:
    """Make the data source for the test's bucket in the way Spark does."""

    def make(**options: str) -> JetStreamSource:
        servers = f"nats://127.0.0.1:{server.port}"
        given = {"servers": servers} | ({} if "bucket" in options else {"bucket": bucket.name})
        return JetStreamSource(options=datasource.CaseInsensitiveDict({**given, **options}))

    return make


@pytest.fixture
def read(source: MakeSource) -> Read:
    """Read a batch in the way Spark does: some columns, or all."""

    def run(*names: str, **options: str) -> list[dict[str, Any]]:
        schema = struct(*names)
        reader = pickle.loads(pickle.dumps(source(**options).reader(schema=schema)))
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        expected = to_arrow_schema(schema, timezone="UTC")
        assert all(batch.schema.equals(expected) for batch in batches)
        assert all(batch.validate(full=True) is None for batch in batches)
        return [row for batch in batches for row in batch.to_pylist()]

    return run


# -- batches --------------------------------------------------------------------------------------------------------


def test_keys_are_chosen_by_subjects_of_every_bucket() -> None:
    assert kv.filters(()) == ("$KV.*.>",)
    assert kv.filters(("a.*", "b")) == ("$KV.*.a.*", "$KV.*.b")


def test_a_batch_has_the_latest_value_of_each_key(read: Read, bucket: Bucket) -> None:
    bucket.create()
    bucket.put_all([("a", b"1"), ("b.c", b"2"), ("a", b"3"), ("d", b"")])

    rows = read()

    assert [tuple(row.values())[:4] for row in rows] == [
        (bucket.name, "b.c", b"2", 2),
        (bucket.name, "a", b"3", 3),
        (bucket.name, "d", b"", 4),
    ]
    assert [row["operation"] for row in rows] == ["PUT"] * 3
    assert all(row["created"].year >= 2024 for row in rows)
    assert bucket.consumers() == []


def test_deleted_and_purged_keys_are_left_out_unless_asked_for(read: Read, bucket: Bucket) -> None:
    bucket.create()
    bucket.put_all([("kept", b"1"), ("gone", b"1"), ("purged", b"1"), ("back", b"1")])
    bucket.put_all([("gone", b""), ("back", b"")], DEL)
    bucket.put("purged", b"", PURGE)
    bucket.put("back", b"2", b"NATS/1.0\r\nOther: 1\r\n\r\n")

    assert [(row["key"], row["value"]) for row in read()] == [("kept", b"1"), ("back", b"2")]
    assert [(row["key"], row["operation"], row["value"]) for row in read(includeDeletes="true")] == [
        ("kept", "PUT", b"1"),
        ("gone", "DEL", None),
        ("purged", "PURGE", None),
        ("back", "PUT", b"2"),
    ]


def test_a_schema_chooses_columns_and_leaves_values_on_the_server(read: Read, bucket: Bucket) -> None:
    bucket.create()
    bucket.put_all([("a", b"x" * 1000), ("b", b"yy")])
    bucket.put("b", b"", DEL)

    assert read("KEY", "revision") == [{"KEY": "a", "revision": 1}]
    assert read("key", "size", includeHistory="true", includeDeletes="false") == [
        {"key": "a", "size": 1000},
        {"key": "b", "size": 2},
    ]
    (row, *_) = read("headers", "created_ns", "key", includeDeletes="true", keys="b")
    assert row == {
        "headers": [("KV-Operation", ["DEL"])],
        "created_ns": row["created_ns"],
        "key": "b",
    }
    assert row["created_ns"] > 1_700_000_000 * 10**9


def test_keys_are_filtered_by_the_server(read: Read, bucket: Bucket) -> None:
    bucket.create()
    bucket.put_all([("a", b"1"), ("b.c", b"2"), ("b.d.e", b"3"), ("f", b"4")])

    assert [row["key"] for row in read("key", keys="b.>, f")] == ["b.c", "b.d.e", "f"]
    assert [row["key"] for row in read("key", keys="*")] == ["a", "f"]
    assert read("key", keys="none") == []
    assert [row["key"] for row in read("key", keys="b.*", includeHistory="true")] == ["b.c"]


def test_keys_that_overlap_come_once(read: Read, bucket: Bucket) -> None:
    bucket.create()
    bucket.put_all([("a.b", b"1"), ("a.c", b"2"), ("c.b", b"3"), ("d.e", b"4"), ("a.b", b"5")])

    rows = read("key", "revision", keys="a.*,*.b,d.e,*.e")

    assert sorted((row["key"], row["revision"]) for row in rows) == [
        ("a.b", 5),
        ("a.c", 2),
        ("c.b", 3),
        ("d.e", 4),
    ]


@pytest.mark.parametrize(
    ("one", "other", "do"),
    [
        ("a.*", "*.b", True),
        ("a.>", "*.b.c", True),
        ("a.>", "a", False),
        ("a.*", "b.*", False),
        ("a.*", "a.b.c", False),
        (">", "a", True),
    ],
)
def test_subjects_overlap_if_one_may_match_both(one: str, other: str, do: bool) -> None:
    assert overlaps(one, other) is do
    assert overlaps(other, one) is do


def test_every_revision_that_is_there_is_read_with_the_history(read: Read, bucket: Bucket) -> None:
    bucket.create()
    bucket.put_all([("a", b"%d" % n) for n in range(5)])
    bucket.put("a", b"", DEL)

    rows = read("key", "revision", "operation", "value", includeHistory="true", minPartitions="3")

    assert [(row["revision"], row["operation"], row["value"]) for row in rows] == [
        (4, "PUT", b"3"),
        (5, "PUT", b"4"),
        (6, "DEL", None),
    ]


def test_buckets_are_read_together_by_a_list_or_a_pattern(read: Read, bucket: Bucket, filler: Filler) -> None:
    other = Bucket(filler, f"{bucket.name}_2")
    empty = Bucket(filler, f"{bucket.name}_3")
    for each in (bucket, other, empty):
        each.create()
    bucket.put("a", b"1")
    other.put("a", b"2")

    found = [(row["bucket"], row["value"]) for row in read(bucket=f"{bucket.name}*")]
    listed = read("value", bucket=f"{bucket.name},{other.name}")
    for each in (other, empty):
        each.delete()

    assert found == [(bucket.name, b"1"), (other.name, b"2")]
    assert listed == [{"value": b"1"}, {"value": b"2"}]


def test_a_mirror_has_the_keys_of_its_origin(read: Read, bucket: Bucket, filler: Filler) -> None:
    bucket.create()
    bucket.put_all([("a", b"1"), ("b", b"2"), ("a", b"3")])
    mirror = Bucket(filler, f"{bucket.name}_M")
    mirror.create(mirror={"name": bucket.stream}, mirror_direct=True)
    assert wait_for(filler.raw, mirror.stream, 3) == 3

    rows = read("bucket", "key", "value", bucket=mirror.name)
    chosen = read("value", bucket=mirror.name, keys="a")
    mirror.delete()

    assert [tuple(row.values()) for row in rows] == [(mirror.name, "b", b"2"), (mirror.name, "a", b"3")]
    assert chosen == [{"value": b"3"}]


def test_a_key_whose_time_is_over_leaves_a_marker(read: Read, bucket: Bucket, filler: Filler) -> None:
    bucket.create(allow_msg_ttl=True, subject_delete_marker_ttl=60 * 10**9, max_msgs_per_subject=1)
    bucket.put("kept", b"1")
    bucket.put("short", b"1", b"NATS/1.0\r\nNats-TTL: 1s\r\n\r\n")
    assert wait_for(filler.raw, bucket.stream, 3) == 3

    assert [row["key"] for row in read("key")] == ["kept"]
    assert read("key", "operation", "value", keys="short", includeDeletes="true") == [
        {"key": "short", "operation": "PURGE", "value": None}
    ]


@pytest.mark.parametrize(
    ("headers", "operation"),
    [
        ([("Nats-Marker-Reason", ["MaxAge"])], "PURGE"),
        ([("Nats-Marker-Reason", ["Purge"])], "PURGE"),
        ([("Nats-Marker-Reason", ["Remove"])], "DEL"),
        ([("Nats-Marker-Reason", ["Else"])], "PUT"),
        ([("KV-Operation", ["PUT"]), ("Nats-Marker-Reason", ["MaxAge"])], "PUT"),
        ([("KV-Operation", [" DEL "])], "DEL"),
        ([("kv-operation", ["DEL"])], "PUT"),  # names of headers are case-sensitive here
        ([], "PUT"),
        (None, "PUT"),
    ],
)
def test_operations_are_told_by_headers(headers: object, operation: str) -> None:
    kind = pa.map_(pa.string(), pa.list_(pa.string()))
    batch = pa.record_batch({"headers": pa.array([headers, [("A", ["1"])]], kind)})

    assert kv.operations(batch).to_pylist() == [operation, "PUT"]


# -- what happens while a bucket is read ----------------------------------------------------------------------------


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    made = Client(ConnectSettings((f"nats://127.0.0.1:{server.port}",)))
    yield made
    made.close()


def latest_of(bucket: Bucket, **more: Any) -> ReadRange:
    told: dict[str, Any] = {"batch_rows": 100, "fetch_batch": 50, **more}
    return ReadRange(bucket.stream, 1, 1, kv.filters(()), columns=("seq", "subject", "data"), **told)


def keys_of(batches: list[pa.RecordBatch]) -> list[str]:
    return [s.split(".", 2)[2] for batch in batches for s in batch.column("subject").to_pylist()]


@pytest.mark.parametrize("history", [1, 5])
def test_each_key_comes_once_though_all_are_replaced_while_they_are_read(
    bucket: Bucket, client: Client, history: int
) -> None:
    bucket.create(max_msgs_per_subject=history)
    keys = [f"k{n}" for n in range(1000)]
    bucket.put_all([(key, b"old") for key in keys])
    read = latest.read_latest(client, latest_of(bucket))

    batches = [next(read)]
    for turn in range(7):
        bucket.put_all([(key, b"%d" % turn) for key in reversed(keys)])
    bucket.put("new", b"1")
    batches += read

    found = keys_of(batches)
    assert len(found) == len(set(found))
    assert set(keys) <= set(found) <= {*keys, "new"}


def test_a_key_that_was_deleted_and_one_that_was_replaced_meanwhile_come_once(
    bucket: Bucket, client: Client
) -> None:
    bucket.create(max_msgs_per_subject=1)
    bucket.put_all([(f"k{n}", b"old") for n in range(300)])
    read = latest.read_latest(client, latest_of(bucket))

    batches = [next(read)]
    bucket.put_all([("k0", b""), ("k299", b"")], DEL)
    bucket.put_all([("k1", b"new"), ("k298", b"new")])
    batches += read

    rows = [row for batch in batches for row in batch.to_pylist()]
    found = {row["subject"].rpartition(".")[2]: row["data"] for row in rows}
    assert len(rows) == len(found) == 300
    assert (found["k0"], found["k1"], found["k298"], found["k299"]) == (b"old", b"old", b"new", b"")


def test_a_consumer_that_goes_away_is_made_again_and_no_key_comes_twice(
    bucket: Bucket, client: Client
) -> None:
    bucket.create(max_msgs_per_subject=2)
    keys = [f"k{n}" for n in range(500)]
    bucket.put_all([(key, b"%d" % n) for n in range(2) for key in keys])
    report = Report()
    read = latest.read_latest(client, latest_of(bucket), report)

    batches = [next(read), next(read)]
    for name in bucket.consumers():  # type: ignore[attr-defined]
        bucket.raw.api(f"CONSUMER.DELETE.{bucket.stream}.{name}")
    batches += read

    assert sorted(keys_of(batches)) == sorted(keys)
    assert {row["data"] for batch in batches for row in batch.to_pylist()} == {b"1"}
    assert (report.rows, report.failures) == (500, 1)
    assert bucket.consumers() == []


def test_a_cut_connection_is_made_again(bucket: Bucket, server: ServerProcess) -> None:
    from spark.tests.support.proxy import CuttingProxy

    bucket.create(max_msgs_per_subject=1)
    keys = [f"k{n}" for n in range(2000)]
    bucket.put_all([(key, b"x" * 50) for key in keys])
    proxy = CuttingProxy(server.port, [60_000, 90_000])
    client = Client(ConnectSettings((f"127.0.0.1:{proxy.port}",)))

    batches = list(latest.read_latest(client, latest_of(bucket)))
    client.close()
    proxy.close()

    assert sorted(keys_of(batches)) == sorted(keys)


def test_a_bucket_that_goes_away_is_told(bucket: Bucket, client: Client) -> None:
    bucket.create()
    bucket.put_all([(f"k{n}", b"") for n in range(300)])
    read = latest.read_latest(client, latest_of(bucket))
    next(read)
    bucket.delete()

    with pytest.raises(StreamMissing, match="there is no such stream"):
        list(read)


def test_subjects_that_came_are_remembered_by_hashes() -> None:
    seen = latest.Seen()

    def batch(*subjects: str) -> pa.RecordBatch:
        return pa.record_batch({"subject": list(subjects)})

    def kept(found: pa.RecordBatch) -> list[str]:
        return found.column("subject").to_pylist()

    assert kept(seen.unseen(batch("a", "b"), is_new=True)) == ["a", "b"]
    assert kept(seen.unseen(batch("c"), is_new=True)) == ["c"]
    assert kept(seen.unseen(batch("b", "d", "d", "a", "e"), is_new=False)) == ["d", "e"]
    assert kept(seen.unseen(batch("e", "f"), is_new=False)) == ["f"]


# -- streaming ------------------------------------------------------------------------------------------------------


def changes(reader: Any, start: object, end: object) -> list[tuple[object, ...]]:
    return [
        tuple(row.values())
        for part in reader.partitions(start, end)
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]


def test_a_stream_has_every_change_in_order(source: MakeSource, bucket: Bucket) -> None:
    bucket.create()
    bucket.put("before", b"1")
    reader = source().streamReader(schema=struct("key", "operation", "value", "revision"))
    start = reader.initialOffset()
    bucket.put_all([("a", b"1"), ("b", b"2"), ("a", b"3")])
    bucket.put("b", b"", DEL)
    bucket.put("a", b"", PURGE)

    end = reader.latestOffset(start)

    assert changes(reader, start, end) == [
        ("b", "PUT", b"2", 3),
        ("b", "DEL", None, 5),
        ("a", "PURGE", None, 6),
    ]
    assert reader.latestOffset(end) == end


def test_a_stream_may_begin_with_what_is_there_and_leave_deletes_out(
    source: MakeSource, bucket: Bucket
) -> None:
    bucket.create()
    bucket.put_all([("a", b"1"), ("x.y", b"2")])
    bucket.put("a", b"", DEL)
    reader = source(startingOffsets="earliest", includeDeletes="false", keys="a").streamReader(
        schema=struct("key", "value")
    )

    start = reader.initialOffset()

    assert changes(reader, start, reader.latestOffset(start)) == [("a", b"1")]


def test_offsets_name_buckets(source: MakeSource, bucket: Bucket) -> None:
    bucket.create()
    bucket.put_all([("a", b"1"), ("b", b"2"), ("c", b"3")])
    reader = source(startingOffsets=f'{{"{bucket.name}": 2}}').streamReader(schema=struct("key"))
    start = reader.initialOffset()

    assert start["streams"][bucket.stream]["next"] == 2
    assert changes(reader, start, reader.latestOffset(start)) == [("b",), ("c",)]


def test_what_the_history_took_is_no_loss_but_another_bucket_is(source: MakeSource, bucket: Bucket) -> None:
    bucket.create(max_msgs_per_subject=1)
    bucket.put_all([("a", b"1"), ("b", b"2")])
    reader = source(startingOffsets="earliest").streamReader(schema=struct("key", "value"))
    start = reader.initialOffset()
    bucket.put_all([("a", b"%d" % n) for n in range(20)])
    middle = reader.latestOffset(start)
    bucket.put_all([(key, b"new") for key in ("b", "a", "c")])  # every message of the plan has been replaced

    end = reader.latestOffset(middle)

    assert changes(reader, start, middle) == []
    assert changes(reader, middle, end) == [("b", b"new"), ("a", b"new"), ("c", b"new")]
    bucket.delete()
    bucket.create()
    with pytest.raises(DataLoss, match="deleted and re-created"):
        reader.latestOffset(end)


def test_a_limited_query_takes_so_many_rows(source: MakeSource, bucket: Bucket) -> None:
    bucket.create(max_msgs_per_subject=1)
    bucket.put_all([("a", b"%d" % n) for n in range(50)] + [("b", b""), ("c", b"")])
    reader = source(startingOffsets="earliest", maxRowsPerTrigger="2").streamReader(schema=struct("key"))
    start = reader.initialOffset()

    end = reader.latestOffset(start, reader.getDefaultReadLimit())

    assert changes(reader, start, end) == [("a",), ("b",)]


# -- what is refused ------------------------------------------------------------------------------------------------


def test_a_bucket_that_is_not_there_names_the_closest(source: MakeSource, bucket: Bucket) -> None:
    bucket.create()

    for asked in (f"{bucket.name}X", f"KV_{bucket.name}"):
        with pytest.raises(
            StreamMissing, match=f"bucket={asked}: there is no such bucket .* {bucket.name}\\?"
        ):
            source(bucket=asked).reader(schema=struct()).partitions()
    with pytest.raises(StreamMissing, match="there is no such bucket"):
        source(bucket="NOTHING_*").reader(schema=struct()).partitions()


def test_an_empty_bucket_has_no_rows(read: Read, bucket: Bucket) -> None:
    bucket.create()

    assert read() == []
    assert read(includeHistory="true") == []


def test_columns_of_messages_are_refused_in_a_bucket(source: MakeSource) -> None:
    from pyspark.sql.types import LongType

    with pytest.raises(SchemaError, match=r"there are bucket, key, value|did you mean"):
        source().reader(schema=StructType().add("seq", LongType()))


def test_the_schema_is_that_of_entries(source: MakeSource) -> None:
    assert source().schema() == (
        "bucket string, key string, value binary, revision bigint, created timestamp, operation string"
    )
    assert source().schema() == ddl(source()._reading())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("startingOffsets", '{"B": 5}'),
        ("endingOffsets", '{"B": 5}'),
        ("startingTimestamp", "5"),
        ("endingTimestamp", "5"),
        ("minPartitions", "2"),
        ("readMode", "direct"),
        ("readMode", "bulk"),
        ("maxRecordsPerPartition", "5"),
    ],
)
def test_what_has_no_effect_on_the_latest_values_is_refused(
    source: MakeSource, name: str, value: str
) -> None:
    with pytest.raises(OptionError, match=f"option {name} does not go with a batch of a bucket"):
        source(**{name: value}).reader(schema=struct())


def test_the_history_is_refused_in_a_streaming_query(source: MakeSource) -> None:
    with pytest.raises(OptionError, match="includeHistory is not allowed in a streaming read"):
        source(includeHistory="true").streamReader(schema=struct())


def test_columns_left_out_are_read_from_the_server_without_bodies(
    source: MakeSource, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.create()
    bucket.put("a", b"1")
    whats: list[ReadRange] = []
    plain = pull.PullRead.__init__

    def noted(self: pull.PullRead, client: Client, what: ReadRange, report: Report) -> None:
        whats.append(what)
        plain(self, client, what, report)

    monkeypatch.setattr(pull.PullRead, "__init__", noted)
    for names in (("key",), ("value",)):
        reader = source().reader(schema=struct(*names))
        list(reader.read(reader.partitions()[0]))

    assert [what.has_bodies for what in whats] == [False, True]
