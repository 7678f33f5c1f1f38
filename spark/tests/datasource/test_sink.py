"""The writers as Spark calls them, without a JVM: pitfalls of the API, stored messages, and errors."""

from __future__ import annotations

import inspect
import pickle
from typing import TYPE_CHECKING

import pytest
from spark.tests.conftest import Filler
from tests.conformance.harness.process import ServerProcess

from pyjs_spark.errors import (
    OptionError,
    PublishFailed,
    RowRefused,
    SchemaError,
    SparkError,
    StreamMissing,
)

pa = pytest.importorskip("pyarrow")
datasource = pytest.importorskip("pyspark.sql.datasource")

from pyspark.sql.types import LongType, StringType, StructType  # needs pyspark
from spark.tests.support.sinks import ROWS, Out, Row, schema_of

from pyjs_spark.datasource import sink
from pyjs_spark.datasource.source import JetStreamSource

if TYPE_CHECKING:
    from spark.tests.support.sinks import Task


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


def test_the_first_part_of_a_batch_has_the_errors_of_its_own_rows_alone(out: Out) -> None:
    rows = [{**row, "headers": {"A": ["1"]}} for row in out.rows(0, 4)]
    rows[3]["headers"] = {"A": None}
    batch = out.batch(rows)

    with pytest.raises(RowRefused, match="row 3 of partition 0: the header 'A' is null"):
        out.writer("subject data headers").write(iter([batch.slice(0, 2), batch.slice(2)]))

    assert len(out.payloads()) <= 2


def test_ids_in_two_columns_are_refused(out: Out) -> None:
    with pytest.raises(SchemaError, match="the column msg_id is not written: option msgIdColumn=subject"):
        out.writer("data msg_id subject", msgIdColumn="subject", subject=f"{out.subject}.x")


def test_a_column_of_another_type_is_refused(out: Out) -> None:
    schema = StructType().add("subject", StringType()).add("data", LongType())

    with pytest.raises(
        SchemaError, match="the column data is bigint; a sink takes binary or string: cast it"
    ):
        out.source().writer(schema, False)


def test_overwriting_is_refused(out: Out) -> None:
    for make in (out.source().writer, out.source().streamWriter):
        with pytest.raises(OptionError, match="a stream cannot be replaced"):
            make(schema=schema_of(ROWS), overwrite=True)


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
