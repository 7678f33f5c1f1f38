"""The writers as Spark calls them, without a JVM: traps of the API, what is stored, and what a crash leaves."""

from __future__ import annotations

import base64
import inspect
import json
import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from tests.conformance.harness.process import ServerProcess
from tests.spark.conftest import Filler
from tests.spark.proxy import CuttingProxy

from pyjs_spark.errors import (
    OptionError,
    PublishFailed,
    ReplayDiffers,
    RowRefused,
    SchemaError,
    ServerUnreachable,
    SparkError,
    StreamMissing,
    WriterReplaced,
)

pa = pytest.importorskip("pyarrow")
datasource = pytest.importorskip("pyspark.sql.datasource")

from pyspark.sql.types import (  # noqa: E402  # only where pyspark is
    ArrayType,
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructType,
)

from pyjs_spark import publish, sink  # noqa: E402
from pyjs_spark.client import Client  # noqa: E402
from pyjs_spark.pull import ReadRange, read_range  # noqa: E402
from pyjs_spark.settings import ConnectSettings  # noqa: E402
from pyjs_spark.source import JetStreamSource  # noqa: E402

ROWS = "subject data"
TYPES = {
    "data": BinaryType(),
    "subject": StringType(),
    "headers": MapType(StringType(), ArrayType(StringType())),
    "msg_id": StringType(),
    "seq": LongType(),
}
HEADERS = pa.map_(pa.string(), pa.list_(pa.string()))
Row = dict[str, Any]


class Task:
    """What a task of Spark tells the writer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.part = 0
        self.properties = {sink.QUERY_ID: "q1", sink.BATCH_ID: "0"}
        monkeypatch.setattr(sink.TaskContext, "get", classmethod(lambda cls: self))

    def partitionId(self) -> int:
        return self.part

    def getLocalProperty(self, name: str) -> str | None:
        return self.properties.get(name)


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Task:
    return Task(monkeypatch)


class Out:
    """The target of a test's writes."""

    def __init__(self, filler: Filler, port: int, task: Task) -> None:
        self.filler = filler
        self.task = task
        self.settings = ConnectSettings((f"nats://127.0.0.1:{port}",))
        self.options = {"stream": filler.name, "servers": self.settings.servers[0]}
        self.subject = filler.subject.decode()
        task.properties[sink.QUERY_ID] = filler.name.lower()

    def source(self, **options: str) -> JetStreamSource:
        return JetStreamSource(options=datasource.CaseInsensitiveDict({**self.options, **options}))

    def writer(self, columns: str = ROWS, **options: str) -> Any:
        """Return the writer of a batch as a worker has it."""
        made = self.source(**options).writer(_schema(columns), False)
        return pickle.loads(pickle.dumps(made))

    def stream_writer(self, columns: str = ROWS, **options: str) -> Any:
        made = self.source(**options).streamWriter(_schema(columns), False)
        return pickle.loads(pickle.dumps(made))

    def batch(self, rows: Sequence[Row]) -> pa.RecordBatch:
        types = {
            "subject": pa.string(),
            "data": pa.binary(),
            "headers": HEADERS,
            "msg_id": pa.string(),
        }
        names = list(rows[0])
        return pa.record_batch([pa.array([row[name] for row in rows], types[name]) for name in names], names)

    def rows(self, low: int, high: int) -> list[Row]:
        return [{"subject": f"{self.subject}.{n % 3}", "data": b"%d" % n} for n in range(low, high)]

    def stored(self) -> list[Row]:
        client = Client(self.settings)
        info = client.api(f"STREAM.INFO.{self.filler.name}")
        what = ReadRange(
            self.filler.name,
            max(1, int(info["state"]["first_seq"])),
            int(info["state"]["last_seq"]) + 1,
            columns=("subject", "headers", "data"),
        )
        found = [row for batch in read_range(client, what) for row in batch.to_pylist()]
        client.close()
        return found

    def markers(self, sink_id: str = "", bucket: str = "pyjs-sinks") -> dict[str, dict[str, Any]]:
        """Return the values of a sink's keys by their partitions."""
        prefix = f"$KV.{bucket}.{sink_id or self.filler.name.lower()}."
        info = self.filler.raw.try_api(f"STREAM.INFO.KV_{bucket}", subjects_filter=prefix + "*")
        subjects = (info.get("state", {}).get("subjects") or {}) if "error" not in info else {}
        found = {}
        for subject in subjects:
            message = self.filler.raw.api(f"STREAM.MSG.GET.KV_{bucket}", last_by_subj=subject)["message"]
            found[subject.removeprefix(prefix)] = json.loads(base64.b64decode(message["data"]))
        return found

    def config(self, **changes: object) -> dict[str, object]:
        base = {"name": self.filler.name, "subjects": [f"{self.subject}.>"], "storage": "memory"}
        return {**base, **changes}

    def payloads(self) -> list[bytes]:
        return [row["data"] for row in self.stored()]


def _schema(columns: str) -> StructType:
    made = StructType()
    for name in columns.split():
        made.add(name, TYPES[name])
    return made


@pytest.fixture
def out(filler: Filler, server: ServerProcess, task: Task) -> Out:
    filler.create()
    return Out(filler, server.port, task)


# -- what Spark asks for ------------------------------------------------------------------------------------------


def test_parameters_have_the_names_that_spark_calls_them_by() -> None:
    for method in (JetStreamSource.writer, JetStreamSource.streamWriter):
        assert list(inspect.signature(method).parameters) == ["self", "schema", "overwrite"]
    for kind in (sink.JetStreamWriter, sink.JetStreamStreamWriter):
        assert list(inspect.signature(kind.write).parameters) == ["self", "iterator"]
    assert list(inspect.signature(sink.JetStreamStreamWriter.commit).parameters) == [
        "self",
        "messages",
        "batchId",
    ]


def test_a_commit_message_is_one_of_sparks_and_can_be_pickled(out: Out) -> None:
    done = out.writer().write(iter([out.batch(out.rows(0, 3))]))

    assert isinstance(done, datasource.WriterCommitMessage)
    again = pickle.loads(pickle.dumps(done))
    assert (again.part, again.rows, again.sent, again.duplicates) == (0, 3, 3, 0)


# -- what is stored -----------------------------------------------------------------------------------------------


def test_a_batch_is_stored_row_by_row(out: Out) -> None:
    writer = out.writer()
    messages = [writer.write(iter([out.batch(out.rows(0, 5)), out.batch(out.rows(5, 7))]))]
    writer.commit(messages)

    assert [(row["subject"], row["data"]) for row in out.stored()] == [
        (f"{out.subject}.{n % 3}", b"%d" % n) for n in range(7)
    ]


def test_many_rows_are_stored_in_their_order(out: Out) -> None:
    out.writer(maxInFlight="100").write(iter([out.batch(out.rows(0, 2500)), out.batch(out.rows(2500, 3001))]))

    assert out.payloads() == [b"%d" % n for n in range(3001)]


def test_headers_are_stored_as_they_are(out: Out) -> None:
    rows = [
        {"data": b"1", "headers": [("Kind", ["a", "b"]), ("X", ["ü"])]},
        {"data": b"2", "headers": None},
        {"data": b"3", "headers": []},
    ]
    out.writer("data headers", subject=f"{out.subject}.x", delivery="atLeastOnce").write(
        iter([out.batch(rows)])
    )

    found = [row["headers"] for row in out.stored()]
    assert found == [[("Kind", ["a", "b"]), ("X", ["ü"])], None, None]


def test_every_message_has_an_id_of_its_place(out: Out) -> None:
    out.task.part = 3
    out.task.properties[sink.BATCH_ID] = "7"
    out.stream_writer(sinkId="copy").write(iter([out.batch(out.rows(0, 2))]))

    assert [row["headers"] for row in out.stored()] == [
        [("Nats-Msg-Id", ["pyjs:copy:7:3:0"])],
        [("Nats-Msg-Id", ["pyjs:copy:7:3:1"])],
    ]


def test_ids_of_the_rows_are_used(out: Out) -> None:
    rows = [{"data": b"1", "msg_id": "one"}, {"data": b"2", "msg_id": None}, {"data": b"1", "msg_id": "one"}]
    writer = out.writer("data msg_id", subject=f"{out.subject}.x", sinkId="ids", expectedStream="true")
    done = writer.write(iter([out.batch(rows)]))

    expected = ("Nats-Expected-Stream", [out.filler.name])
    assert [row["headers"] for row in out.stored()] == [
        [("Nats-Msg-Id", ["one"]), ("Pyjs-Sink", ["pyjs:ids:0:0:0"]), expected],
        [("Nats-Msg-Id", ["pyjs:ids:0:0:1"]), expected],
    ]
    assert (done.rows, done.duplicates) == (3, 1)


def test_a_duplicate_is_told_when_the_write_is_committed(out: Out, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"data": b"1", "msg_id": "one"}, {"data": b"2", "msg_id": "one"}]
    writer = out.writer("data msg_id", subject=f"{out.subject}.x")
    writer.commit([writer.write(iter([out.batch(rows)])), None])

    assert "1 of 2 messages were not stored again" in caplog.text


def test_at_least_once_stores_messages_without_ids_and_without_progress(out: Out) -> None:
    out.writer(delivery="atLeastOnce").write(iter([out.batch(out.rows(0, 2))]))

    assert [row["headers"] for row in out.stored()] == [None, None]


def test_a_batch_without_rows_leaves_nothing(out: Out) -> None:
    empty = out.batch(out.rows(0, 1)).slice(0, 0)

    assert out.stream_writer().write(iter([])).rows == 0
    assert out.stream_writer().write(iter([empty])).rows == 0
    assert out.markers() == {}


def test_a_slice_of_a_batch_is_written_as_such(out: Out) -> None:
    rows = [
        {
            "subject": f"{out.subject}.{n}",
            "data": b"%d" % n,
            "headers": [("N", [str(n)])] if n % 2 else None,
            "msg_id": f"i{n}",
        }
        for n in range(10)
    ]
    out.writer("subject data headers msg_id", delivery="atLeastOnce").write(
        iter([out.batch(rows).slice(3, 4)])
    )

    assert [(row["subject"], row["data"], dict(row["headers"]).get("N")) for row in out.stored()] == [
        (f"{out.subject}.{n}", b"%d" % n, [str(n)] if n % 2 else None) for n in range(3, 7)
    ]


@pytest.mark.parametrize("kind", ["large", "view", "texts"])
def test_other_forms_of_texts_are_taken(out: Out, kind: str) -> None:
    text = {"large": pa.large_string(), "view": pa.string_view(), "texts": pa.string()}[kind]
    data = {"large": pa.large_binary(), "view": pa.binary_view(), "texts": pa.string()}[kind]
    headers = pa.map_(text, text)
    batch = pa.record_batch(
        [
            pa.array([f"{out.subject}.a", f"{out.subject}.b"], text),
            pa.array(["1", "ü"] if kind == "texts" else [b"1", "ü".encode()], data),
            pa.array([[("K", "v")], []], headers),
        ],
        ["subject", "data", "headers"],
    )
    out.writer("subject data headers", delivery="atLeastOnce").write(iter([batch]))

    assert [(row["data"], row["headers"]) for row in out.stored()] == [
        (b"1", [("K", ["v"])]),
        ("ü".encode(), None),
    ]


# -- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"subject": None}, "subject is null"),
        ({"data": None}, "data is null; coalesce"),
        ({"subject": "{s}.a b"}, "'{s}.a b' has a space"),
        ({"subject": "{s}.a\r\nPUB"}, "has a space or a control character"),
        ({"subject": "{s}.*"}, "has the wildcard [*]"),
        ({"subject": "{s}.>"}, "has the wildcard >"),
        ({"subject": "{s}..a"}, "has an empty token"),
        ({"subject": ""}, "has no character"),
        ({"subject": "elsewhere"}, "is none of the stream .*, which takes {s}.>"),
        ({"headers": [("a b", ["x"])]}, "'a b' is no header"),
        ({"headers": [("", ["x"])]}, "'' is no header"),
        ({"headers": [("a:b", ["x"])]}, "'a:b' is no header"),
        ({"headers": [("ä", ["x"])]}, "'ä' is no header"),
        ({"headers": [("a", ["x\r\ny"])]}, "a value of a header has a line end: 'x"),
        ({"headers": [("a", ["ok", "x\ny"])]}, "a value of a header has a line end"),
        ({"headers": [("a", None)]}, "the header 'a' is null"),
        ({"headers": [("a", [])]}, "the header 'a' has no value"),
        ({"headers": [("a", [None])]}, "a value of a header is null"),
        ({"headers": [("a", ["x" * 70_000])]}, "its headers have 7.* bytes; a stream takes 65535"),
        ({"headers": [("Nats-Msg-Id", ["x"])]}, "it has the header Nats-Msg-Id: 'x'. Option msgId=header"),
        ({"msg_id": ""}, "its message id is empty"),
        ({"msg_id": "a\r\nb"}, "its message id has a line end"),
        ({"data": b"x" * (4 << 20)}, "it has 4194304 bytes with its headers; the server takes 4194304"),
    ],
)
def test_a_row_that_cannot_be_a_message_is_named_and_nothing_of_its_batch_is_sent(
    out: Out, row: Row, said: str
) -> None:
    fill = lambda value: value.replace("{s}", out.subject) if isinstance(value, str) else value  # noqa: E731
    good = {"subject": f"{out.subject}.a", "data": b"1", "headers": None, "msg_id": None}
    bad = {**good, **{name: fill(value) for name, value in row.items()}}
    kept = ["subject", "data", *(name for name in ("headers", "msg_id") if name in row)]
    rows = [{name: each[name] for name in kept} for each in (good, good, bad, good)]

    with pytest.raises(RowRefused, match=f"row 2 of partition 0: .*{fill(said)}"):
        out.writer(" ".join(kept)).write(iter([out.batch(rows)]))

    assert out.stored() == []


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("subject", {}, "there is no column data"),
        ("data", {}, "neither a column subject nor an option subject"),
        (
            "subject data seq",
            {},
            "the column seq is not written: a stream gives it itself; leave it out with .drop",
        ),
        ("subject data", {"msgIdColumn": "key"}, "option msgIdColumn=key: there is no such column"),
        ("subject data msg_id", {"msgId": "header"}, "there is a column msg_id too"),
        ("subject data msg_id", {"msgIdColumn": "subject"}, "the column msg_id is not written"),
    ],
)
def test_columns_that_are_not_written_are_refused_by_name(
    out: Out, columns: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(SchemaError, match=said):
        out.writer(columns, **options)


def test_a_column_of_another_type_is_refused(out: Out) -> None:
    schema = StructType().add("subject", StringType()).add("data", LongType())

    with pytest.raises(
        SchemaError, match="the column data is bigint; a sink takes binary or string: cast it"
    ):
        out.source().writer(schema, False)


def test_overwriting_is_refused(out: Out) -> None:
    for make in (out.source().writer, out.source().streamWriter):
        with pytest.raises(OptionError, match="a stream cannot be replaced"):
            make(schema=_schema(ROWS), overwrite=True)


def test_a_stream_that_cannot_be_written_to_is_refused(out: Out) -> None:
    rows = iter([out.batch(out.rows(0, 1))])
    with pytest.raises(StreamMissing, match="there is no such stream; did you mean"):
        out.writer(stream=out.filler.name + "X").write(rows)
    with pytest.raises(OptionError, match=f"option subject=other.x: the stream .* takes {out.subject}.>"):
        out.writer("data", subject="other.x").write(rows)
    out.filler.raw.api(f"STREAM.UPDATE.{out.filler.name}", **out.config(sealed=True))
    with pytest.raises(OptionError, match="the stream is sealed"):
        out.writer().write(rows)


def test_streams_that_acknowledge_nothing_or_copy_are_refused(
    filler: Filler, server: ServerProcess, task: Task
) -> None:
    filler.create(no_ack=True)
    out = Out(filler, server.port, task)
    with pytest.raises(OptionError, match="acknowledges nothing"):
        out.writer().write(iter([out.batch(out.rows(0, 1))]))
    name = filler.name + "M"
    filler.raw.api(f"STREAM.CREATE.{name}", name=name, mirror={"name": filler.name}, storage="memory")
    with pytest.raises(OptionError, match="takes no messages itself"):
        out.writer(stream=name).write(iter([out.batch(out.rows(0, 1))]))
    filler.raw.api(f"STREAM.DELETE.{name}")


def test_a_full_stream_is_told(filler: Filler, server: ServerProcess, task: Task) -> None:
    filler.create(max_msgs=5, discard="new")
    out = Out(filler, server.port, task)

    with pytest.raises(
        PublishFailed, match=r"does not take row 5: maximum messages exceeded .*a limit of the stream"
    ):
        out.writer().write(iter([out.batch(out.rows(0, 9))]))
    assert out.payloads() == [b"0", b"1", b"2", b"3", b"4"]


def test_without_the_properties_of_spark_exactly_once_is_refused(out: Out) -> None:
    out.task.properties.clear()
    with pytest.raises(SparkError, match="this Spark does not tell its tasks"):
        out.stream_writer().write(iter([out.batch(out.rows(0, 1))]))

    assert out.stream_writer(delivery="atLeastOnce").write(iter([out.batch(out.rows(0, 1))])).sent == 1


# -- headers of earlier publishes ---------------------------------------------------------------------------------


def test_headers_that_asked_something_of_an_earlier_publish_are_left_out(out: Out) -> None:
    headers = [
        ("Nats-Expected-Stream", ["OTHER"]),
        ("nats-expected-last-sequence", ["7"]),
        ("Nats-Batch-Id", ["x"]),
        ("Nats-Msg-Id", ["pyjs:other:0:0:0"]),
        ("Pyjs-Sink", ["pyjs:other:0:0:0"]),
        ("Kind", ["a"]),
    ]
    rows = [{"data": b"1", "headers": headers}, {"data": b"2", "headers": None}]
    out.writer("data headers", subject=f"{out.subject}.x", sinkId="s").write(iter([out.batch(rows)]))

    assert [row["headers"] for row in out.stored()] == [
        [("Nats-Msg-Id", ["pyjs:s:0:0:0"]), ("Kind", ["a"])],
        [("Nats-Msg-Id", ["pyjs:s:0:0:1"])],
    ]


def test_ids_among_the_headers_are_kept_if_asked_for(out: Out) -> None:
    rows = [
        {"data": b"1", "headers": [("Nats-Msg-Id", ["x"]), ("Kind", ["a"])]},
        {"data": b"2", "headers": None},
    ]
    writer = out.writer("data headers", subject=f"{out.subject}.x", sinkId="h", msgId="header")
    writer.write(iter([out.batch(rows)]))

    assert [row["headers"] for row in out.stored()] == [
        [("Pyjs-Sink", ["pyjs:h:0:0:0"]), ("Nats-Msg-Id", ["x"]), ("Kind", ["a"])],
        [("Nats-Msg-Id", ["pyjs:h:0:0:1"])],
    ]


# -- batches that come again --------------------------------------------------------------------------------------


@pytest.fixture
def forgetful(out: Out) -> Out:
    """The target of a stream that knows an id for no more than a tenth of a second."""
    out.filler.raw.api(f"STREAM.UPDATE.{out.filler.name}", **out.config(duplicate_window=100_000_000))
    return out


class Crash(Exception):
    """The task ends here."""


def until_crash(*batches: Any) -> Iterator[Any]:
    yield from batches
    raise Crash


def interrupted(writer: Any, *batches: Any) -> None:
    with pytest.raises(Crash):
        writer.write(until_crash(*batches))


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
    before = out.payloads()

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
    monkeypatch.setattr(publish, "FIRST_PAUSE_S", 0.001)
    out = forgetful
    for count in (1, 2):
        proxy = CuttingProxy(server.port, [cut] * 3)
        servers = f"nats://127.0.0.1:{proxy.port}"
        out.task.properties[sink.BATCH_ID] = str(count)
        out.stream_writer(servers=servers, maxInFlight="50").write(iter([out.batch(out.rows(0, 150))]))
        assert sorted(map(int, out.payloads())) == sorted([*range(150)] * count)
        assert proxy.connections > 1
        proxy.close()


def test_a_server_that_is_not_there_is_told_after_all_retries(
    out: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "FIRST_PAUSE_S", 0.001)

    with pytest.raises(ServerUnreachable):
        out.stream_writer(servers="nats://127.0.0.1:1").write(iter([]))


def test_messages_that_left_the_stream_while_the_connection_was_lost_are_told(forgetful: Out) -> None:
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
    clients: list[Client] = []
    made = Client.__init__

    def remember(self: Client, settings: ConnectSettings) -> None:
        made(self, settings)
        clients.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Client, "__init__", remember)
        with pytest.raises(ReplayDiffers, match="the connection was lost, and 1 messages left the stream"):
            writer.write(lossy())


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


def test_a_target_that_was_made_anew_is_told(out: Out) -> None:
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
