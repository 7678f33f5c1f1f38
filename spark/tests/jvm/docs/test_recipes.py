"""The examples of the recipes run as printed, in their order; those of storage.md against an S3 server."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from spark.tests.conftest import Filler
from spark.tests.jvm.conftest import IS_MATRIX
from spark.tests.support.documents import NOTEBOOKS, examples
from spark.tests.support.registry import SchemaRegistry
from spark.tests.support.s3 import S3Server
from tests.conformance.harness.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECIPES = NOTEBOOKS / "recipes"
HOUR_S = 3600
BEGAN_S = 1_767_225_600  # 2026-01-01T00:00:00Z
Run = Callable[..., str]

pytestmark = pytest.mark.timeout(400)
long = pytest.mark.skipif(not IS_MATRIX, reason="several queries: make spark-matrix runs it")


class Streams:
    """The streams of one recipe."""

    def __init__(self, port: int) -> None:
        self._filler = Filler(port, "ANY")
        self.raw = self._filler.raw
        self._made: list[str] = []

    def make(self, name: str, *subjects: str, **config: object) -> None:
        self._made.append(name)
        self.raw.api(f"STREAM.CREATE.{name}", name=name, subjects=list(subjects), storage="memory", **config)

    def publish(self, subject: str, *payloads: object) -> None:
        """Publish bytes unchanged, anything else as JSON."""
        for payload in payloads:
            data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
            assert b'"seq"' in self.raw.request(subject.encode(), data)

    def end(self) -> None:
        for name in self._made:
            self.raw.try_api(f"STREAM.DELETE.{name}")
        self.raw.close()


@pytest.fixture
def streams(server: ServerProcess) -> Iterator[Streams]:
    made = Streams(server.port)
    yield made
    made.end()


@pytest.fixture
def run(
    spark: SparkSession, server: ServerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Run]:
    """Run the examples of a recipe; return the lines that they print, without tables."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    places = {"127.0.0.1:4222": f"127.0.0.1:{server.port}", "/data/": f"{tmp_path}/"}
    names: dict[str, object] = {}

    def run(name: str, **more: str) -> str:
        for language, text in examples((RECIPES / f"{name}.md").read_text()):
            for there, instead in {**places, **more}.items():
                text = text.replace(there, instead)
            if language == "python":
                exec(compile(text, name, "exec"), names)
        lines = capsys.readouterr().out.splitlines()
        return "\n".join(line for line in lines if line[:1] not in ("+", "|", ""))

    run.names = names  # type: ignore[attr-defined]
    yield run
    spark.conf.set("spark.sql.shuffle.partitions", str(before))


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    made = SchemaRegistry()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    made = S3Server()
    yield made
    made.stop()


def test_json_and_dead_letters(run: Run, streams: Streams, spark: SparkSession, tmp_path: Path) -> None:
    streams.make("ORDERS", "orders.>")
    streams.make("DEAD", "dead.>")
    streams.publish(
        "orders.new", {"order": 1, "customer": "ann", "amount": 12.5}, b"no JSON", {"customer": "bob"}
    )

    said = run("json")

    assert said == """[('dead.orders.new', 'no JSON'), ('dead.orders.new', '{"customer": "bob"}')]"""
    assert spark.read.parquet(f"{tmp_path}/json/orders").collect() == [(1, 1, "ann", 12.5)]


def test_avro_and_protobuf_with_a_registry(run: Run, streams: Streams, registry: SchemaRegistry) -> None:
    for name in ("READINGS", "EVENTS"):
        streams.make(name, f"{name.lower()}.>")
    avro_id, proto_id = registry.add({"schema": json.dumps(AVRO)}), registry.add(protobuf_schema())
    streams.publish("readings.a", avro(avro_id, "s1", 21.5), b"no Avro", avro(avro_id, "s2", -3.0))
    streams.publish("events.a", *protobuf(proto_id))

    said = run("registry", **{"127.0.0.1:8081": f"127.0.0.1:{registry.port}"})

    assert said == "[(1, 's1', 21.5), (3, 's2', -3.0)]\n[(1, 'login', 7), (2, 'inner', 8)]"
    assert {*registry.asked} == {f"/schemas/ids/{avro_id}", f"/schemas/ids/{proto_id}?format=serialized"}


@long
def test_windows_and_a_join_of_streams(run: Run, streams: Streams) -> None:
    for name in ("CLICKS", "BUYS"):
        streams.make(name, f"{name.lower()}.>")
    for user, minute in (("ann", 0), ("bob", 10), ("ann", 50), ("ann", 70), ("eve", 300)):
        streams.publish("clicks.a", {"user": user, "at": BEGAN_S + minute * 60})
    for user, minute in (("ann", 20), ("bob", 45), ("ann", 75), ("eve", 300)):
        streams.publish("buys.a", {"user": user, "at": BEGAN_S + minute * 60})

    said = run("windows")

    assert said == (
        "[('00:00', 'ann', 2), ('00:00', 'bob', 1), ('01:00', 'ann', 1)]\n"
        "[('ann', '00:00', '00:20'), ('ann', '00:50', '01:15'), ('ann', '01:10', '01:15'), ('eve', '05:00', '05:00')]"
    )


def test_a_merge_into_a_delta_table(
    run: Run, streams: Streams, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("deltalake")
    streams.make("ACCOUNTS", "accounts.*")
    streams.publish("accounts.a", {"balance": 1}, {"balance": 2})
    streams.publish("accounts.b", {"balance": 5})

    first = run("delta-merge")
    streams.publish("accounts.a", {"balance": 3})
    streams.publish("accounts.c", {"balance": 9})
    run.names["run"]()  # type: ignore[attr-defined]
    for path in (tmp_path / "merge/checkpoint/commits").glob("*1*"):
        path.unlink()  # as after a crash between the commit of the table and Spark's commit
    run.names["run"]()  # type: ignore[attr-defined]

    from deltalake import DeltaTable

    assert first == "[('a', 2), ('b', 5)]"
    assert capsys.readouterr().out.split("\n")[:2] == ["[('a', 3), ('b', 5), ('c', 9)]"] * 2
    assert DeltaTable(str(tmp_path / "merge/accounts")).version() == 1


@long
def test_a_bucket_as_a_dimension(run: Run, streams: Streams, capsys: pytest.CaptureFixture[str]) -> None:
    streams.make("SALES", "sales.>")
    streams.make("KV_SHOPS", "$KV.SHOPS.>", max_msgs_per_subject=1, allow_direct=True)
    streams.publish("$KV.SHOPS.s1", b"corner shop")
    streams.publish("sales.x", {"shop": "s1", "amount": 5}, {"shop": "s2", "amount": 6})

    first = run("dimension")
    streams.publish("$KV.SHOPS.s1", b"big shop")
    streams.publish("sales.x", {"shop": "s1", "amount": 7})
    run.names["run"]()  # type: ignore[attr-defined]

    assert first == "[('corner shop', 5), (None, 6)]"
    assert capsys.readouterr().out == "[('corner shop', 5), (None, 6), ('big shop', 7)]\n"


def test_dead_letters_of_consumers(run: Run, streams: Streams) -> None:
    advisories = "$JS.EVENT.ADVISORY.CONSUMER"
    streams.make("ADVISORIES", f"{advisories}.MAX_DELIVERIES.>", f"{advisories}.MSG_TERMINATED.>")
    streams.make("JOBS", "jobs.>")
    streams.publish("jobs.a", b"fine", b"bad")
    config = {"durable_name": "worker", "ack_policy": "explicit"}
    streams.raw.api("CONSUMER.DURABLE.CREATE.JOBS.worker", stream_name="JOBS", config=config)
    streams.raw.send(b'SUB _D d\r\nPUB $JS.API.CONSUMER.MSG.NEXT.JOBS.worker _D 11\r\n{"batch":2}\r\n')
    replies = [reply for _, (_, reply, _, _) in zip(range(2), streams.raw.frames(), strict=False)]
    streams.raw.send(b"PUB %b 15\r\n+TERM no reason\r\n" % replies[1])
    wait_for_messages(streams, "ADVISORIES", 1)

    assert run("dead-letters") == "[('worker', 2, 1, 'bad')]"


def test_delta_and_iceberg_on_s3(run: Run, streams: Streams, s3: S3Server, tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    streams.make("ORDERS", "orders.>")
    streams.publish("orders.new", b"1", b"2", b"3")
    (tmp_path / "storage").mkdir()

    said = run("storage", **{"127.0.0.1:9000": f"127.0.0.1:{s3.port}"})

    assert said == "3 rows in Delta\n3 rows in Iceberg"
    assert any(name.endswith("0.json") for name in s3.names("delta/orders/_delta_log/"))
    assert any(name.endswith(".parquet") for name in s3.names("iceberg/"))


def test_every_recipe_is_in_the_index_and_runs() -> None:
    index = (RECIPES / "README.md").read_text()
    names = {path.stem for path in RECIPES.glob("*.md")} - {"README"}

    assert {name for name in names if f"({name}.md)" in index} == names
    assert {name for name in names if f'run("{name}"' in Path(__file__).read_text()} == names


# -- payloads -------------------------------------------------------------------------------------------------------

AVRO = {
    "type": "record",
    "name": "Reading",
    "fields": [{"name": "sensor", "type": "string"}, {"name": "degrees", "type": "double"}],
}


def avro(schema_id: int, sensor: str, degrees: float) -> bytes:
    import fastavro

    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), {"sensor": sensor, "degrees": degrees})
    return b"\0" + schema_id.to_bytes(4, "big") + out.getvalue()


def protobuf_file() -> Any:
    """Return the descriptor of a file with two message types, the second of which contains a nested type."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto(name="events.proto", package="shop", syntax="proto3")
    event = file.message_type.add(name="Event")
    outer = file.message_type.add(name="Outer")
    for message in (event, outer.nested_type.add(name="Inner")):
        message.field.add(name="kind", number=1, type=9, label=1)
        message.field.add(name="count", number=2, type=3, label=1)
    return file


def protobuf_schema() -> dict[str, str]:
    serialized = protobuf_file().SerializeToString()
    return {"schemaType": "PROTOBUF", "schema": "", "serialized": base64.b64encode(serialized).decode()}


def protobuf(schema_id: int) -> list[bytes]:
    """Return a message of the first type, and one of the type nested in the second type."""
    head = b"\0" + schema_id.to_bytes(4, "big")

    def body(kind: bytes, count: int) -> bytes:
        return b"\x0a%c%b\x10%c" % (len(kind), kind, count)

    return [head + b"\0" + body(b"login", 7), head + b"\x04\x02\x00" + body(b"inner", 8)]


def wait_for_messages(streams: Streams, name: str, count: int) -> None:
    from spark.tests.conftest import wait_for

    assert wait_for(streams.raw, name, count) == count
