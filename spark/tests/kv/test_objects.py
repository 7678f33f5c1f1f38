"""Object stores as rows: the metadata of objects, and checks of their contents."""

from __future__ import annotations

import base64
import hashlib
import json
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from spark.tests.conftest import Filler
from tests.conformance.harness.process import ServerProcess

pytest.importorskip("pyarrow")
datasource = pytest.importorskip("pyspark.sql.datasource")

from pyspark.sql import types  # needs pyspark
from pyspark.sql.pandas.types import to_arrow_schema

from pyjs_spark.datasource.source import JetStreamSource
from pyjs_spark.errors import DataLoss, OptionError, ProtocolError, StreamMissing
from pyjs_spark.kv import objects


def digest_of(content: bytes) -> str:
    return "SHA-256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode()


class Store:
    """An object store, filled in the way a client does it."""

    def __init__(self, filler: Filler) -> None:
        self.raw = filler.raw
        self.name = filler.name
        self.puts = 0

    def create(self) -> None:
        subjects = [f"$O.{self.name}.C.>", f"$O.{self.name}.M.>"]
        config = {"discard": "new", "allow_rollup_hdrs": True, "allow_direct": True, "storage": "memory"}
        self.raw.api(f"STREAM.CREATE.OBJ_{self.name}", name=f"OBJ_{self.name}", subjects=subjects, **config)

    def delete(self) -> None:
        self.raw.try_api(f"STREAM.DELETE.OBJ_{self.name}")

    def chunk(self, nuid: str, part: bytes) -> None:
        assert b'"seq"' in self.raw.request(f"$O.{self.name}.C.{nuid}".encode(), part)

    def put(self, name: str, content: bytes = b"", chunk_size: int = 4, **more: object) -> str:
        self.puts += 1
        nuid = f"N{self.puts}"
        parts = [content[at : at + chunk_size] for at in range(0, len(content), chunk_size)]
        for part in parts:
            self.chunk(nuid, part)
        said = {"name": name, "bucket": self.name, "nuid": nuid, "size": len(content), "chunks": len(parts)}
        self.describe(name, {**said, "digest": digest_of(content), "mtime": "0001-01-01T00:00:00Z", **more})
        return nuid

    def describe(self, name: str, said: object) -> None:
        subject = f"$O.{self.name}.M.{objects.encoded(name)}"
        headers, body = b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n", json.dumps(said).encode()
        inbox, sizes = b"_INBOX.raw.obj", b"%d %d" % (len(headers), len(headers) + len(body))
        self.raw.send(b"HPUB %b %b %b\r\n%b%b\r\n" % (subject.encode(), inbox, sizes, headers, body))
        assert b'"seq"' in next(self.raw.frames())[3]

    def purge(self, nuid: str) -> None:
        self.raw.api(f"STREAM.PURGE.OBJ_{self.name}", filter=f"$O.{self.name}.C.{nuid}")

    def remove(self, name: str, nuid: str) -> None:
        gone = {"name": name, "bucket": self.name, "nuid": nuid, "size": 0, "chunks": 0, "deleted": True}
        self.describe(name, gone)
        self.purge(nuid)


@pytest.fixture
def store(filler: Filler) -> Iterator[Store]:
    made = Store(filler)
    yield made
    made.delete()


KINDS = {
    "string": types.StringType(),
    "binary": types.BinaryType(),
    "bigint": types.LongType(),
    "boolean": types.BooleanType(),
    "timestamp": types.TimestampType(),
    "map<string,array<string>>": types.MapType(types.StringType(), types.ArrayType(types.StringType())),
    "map<string,string>": types.MapType(types.StringType(), types.StringType()),
    "struct<bucket:string,name:string>": types.StructType()
    .add("bucket", types.StringType())
    .add("name", types.StringType()),
}
Read = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def read(server: ServerProcess, store: Store) -> Read:
    """Read the store in the way Spark does: some columns, or those of a read without a schema."""

    def run(*names: str, **options: str) -> list[dict[str, Any]]:
        given = {"servers": f"nats://127.0.0.1:{server.port}", "objectStore": store.name, **options}
        source = JetStreamSource(options=datasource.CaseInsensitiveDict(given))
        schema = types.StructType()
        for name in names or [each for each in objects.TYPES if each not in objects.EXTRA]:
            schema = schema.add(name, KINDS[objects.TYPES[name]])
        reader = pickle.loads(pickle.dumps(source.reader(schema=schema)))
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        expected = to_arrow_schema(schema, timezone="UTC")
        assert all(batch.schema.equals(expected) for batch in batches)
        return [row for batch in batches for row in batch.to_pylist()]

    return run


def test_objects_have_subjects_of_their_encoded_names() -> None:
    assert objects.filters(()) == ("$O.*.M.>",)
    assert objects.filters(("a b",)) == ("$O.*.M.YSBi",)


def test_each_object_is_a_row(read: Read, store: Store) -> None:
    store.create()
    store.put(
        "notes/a b.txt", b"hello world", description="a note", headers={"A": ["1", "2"]}, metadata={"k": "v"}
    )
    store.put("empty")

    rows = read()

    assert rows[0] == {
        "bucket": store.name,
        "name": "notes/a b.txt",
        "description": "a note",
        "size": 11,
        "chunks": 3,
        "digest": digest_of(b"hello world"),
        "modified": rows[0]["modified"],
        "headers": [("A", ["1", "2"])],
        "metadata": [("k", "v")],
        "link": None,
    }
    assert rows[0]["modified"].year >= 2024
    assert [(row["name"], row["size"], row["description"]) for row in rows[1:]] == [("empty", 0, None)]


def test_deleted_objects_are_left_out_unless_asked_for(read: Read, store: Store) -> None:
    store.create()
    store.put("kept", b"1")
    store.remove("gone", store.put("gone", b"2"))

    assert read("name") == [{"name": "kept"}]
    assert read("name", "deleted", includeDeletes="true") == [
        {"name": "kept", "deleted": False},
        {"name": "gone", "deleted": True},
    ]


def test_objects_are_chosen_by_name_on_the_server(read: Read, store: Store) -> None:
    store.create()
    for name in ("a", "b", "ü"):
        store.put(name, name.encode())

    assert read("name", objects="ü,a") == [{"name": "a"}, {"name": "ü"}]
    assert read("name", objects="none") == []


def test_an_object_that_was_put_again_is_one_row(read: Read, store: Store) -> None:
    store.create()
    store.purge(store.put("a", b"first"))
    nuid = store.put("a", b"second!")

    assert read("name", "nuid", "content", "revision") == [
        {"name": "a", "nuid": nuid, "content": b"second!", "revision": 6}
    ]


def test_links_are_shown_and_have_no_content(read: Read, store: Store) -> None:
    store.create()
    link = {"link": {"bucket": "other", "name": "x"}}
    store.describe("to", {"name": "to", "bucket": store.name, "nuid": "L", "options": link})
    store.describe(
        "all", {"name": "all", "bucket": store.name, "nuid": "M", "options": {"link": {"bucket": "o"}}}
    )

    assert read("name", "link", "content") == [
        {"name": "to", "link": {"bucket": "other", "name": "x"}, "content": None},
        {"name": "all", "link": {"bucket": "o", "name": None}, "content": None},
    ]


# -- contents -------------------------------------------------------------------------------------------------------


def test_contents_are_read_if_a_schema_asks_for_them(read: Read, store: Store) -> None:
    store.create()
    large = bytes(range(256)) * 4000
    store.put("large", large, chunk_size=128 * 1024)
    store.put("empty")

    assert read("content", "name") == [{"content": large, "name": "large"}, {"content": b"", "name": "empty"}]


def test_an_object_above_the_limit_is_told(read: Read, store: Store) -> None:
    store.create()
    store.put("big", b"x" * 2000, chunk_size=1000)
    store.put("small", b"x")

    with pytest.raises(OptionError, match="object big has 2000 bytes, and maxObjectSize is 1024; raise it"):
        read("content", maxObjectSize="1k")
    assert read("content", maxObjectSize="1k", objects="small") == [{"content": b"x"}]
    assert read("size", objects="big", maxObjectSize="1k") == [{"size": 2000}]


def test_a_content_that_is_not_its_digest_is_told(read: Read, store: Store) -> None:
    store.create()
    store.put("bad", b"abc", digest=digest_of(b"abd"))
    store.put("worse", b"abc", digest="SHA-256=!")
    store.put("none", b"abc", digest="")

    with pytest.raises(DataLoss, match="object bad cannot be read: its digest is not that of its content"):
        read("content")
    assert read("name", "content", failOnDataLoss="false") == [
        {"name": "bad", "content": None},
        {"name": "worse", "content": None},
        {"name": "none", "content": b"abc"},
    ]


@pytest.mark.parametrize("change", ["fewer", "more"])
def test_chunks_that_are_missing_or_too_many_are_told(read: Read, store: Store, change: str) -> None:
    store.create()
    if change == "more":
        store.chunk("N1", b"stray")
    nuid = store.put("a", b"12345678")
    if change == "fewer":
        store.raw.api(f"STREAM.PURGE.OBJ_{store.name}", filter=f"$O.{store.name}.C.{nuid}", seq=2)

    with pytest.raises(DataLoss, match=r"object a cannot be read: .* it should have 2 chunks of 8 bytes"):
        read("content")


def test_small_contents_come_in_batches_of_rows(server: ServerProcess, store: Store) -> None:
    store.create()
    for name in "abcde":
        store.put(name, b"tiny")
    given = {"servers": f"nats://127.0.0.1:{server.port}", "objectStore": store.name, "arrowBatchRows": "2"}
    source = JetStreamSource(options=datasource.CaseInsensitiveDict(given))

    reader = source.reader(schema=types.StructType().add("content", types.BinaryType()))
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]

    assert [batch.num_rows for batch in batches] == [2, 2, 1]


def test_values_of_other_types_become_text(read: Read, store: Store) -> None:
    store.create()
    store.describe("a", {"name": "a", "metadata": {"n": 1}, "options": {"link": {"bucket": 5}}, "digest": 7})

    (row,) = read("metadata", "link", "digest")

    assert row == {"metadata": [("n", "1")], "link": {"bucket": "5", "name": None}, "digest": "7"}


def test_an_object_put_again_while_it_is_read_is_read_again(
    read: Read, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create()
    old = store.put("a", b"old")
    gone = store.put("b", b"old")
    check = objects.ObjectContents._check_size

    def late(self: objects.ObjectContents, row: dict[str, Any]) -> None:
        if row["nuid"] == old:
            store.put("a", b"newer")
            store.purge(old)
        if row["nuid"] == gone:
            store.remove("b", gone)
        check(self, row)

    monkeypatch.setattr(objects.ObjectContents, "_check_size", late)

    assert read("name", "content", "size")[:1] == [{"name": "a", "content": b"newer", "size": 5}]
    assert "b" not in [row["name"] for row in read("name", "content")]


# -- what is wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        "no json",
        [],
        {"size": 1},
        {"name": "a", "size": "many"},
        {"name": "a", "size": 1 << 63},
        {"name": "a", "chunks": float("inf")},
        {"name": "a", "headers": {"A": 1}},
        {"name": "a", "metadata": [1]},
    ],
)
def test_a_message_that_describes_no_object_is_told(read: Read, store: Store, said: object) -> None:
    store.create()
    store.describe("a", said)

    with pytest.raises(ProtocolError, match=r"message 1 on .* describes no object"):
        read()


def test_a_store_that_is_not_there_names_the_closest(read: Read, store: Store) -> None:
    store.create()

    with pytest.raises(StreamMissing, match=f"objectStore={store.name}X: .* did you mean {store.name}"):
        read(objectStore=f"{store.name}X")
    assert read() == []


def test_the_schema_is_that_of_objects(server: ServerProcess) -> None:
    assert JetStreamSource(options=datasource.CaseInsensitiveDict({"objectStore": "O"})).schema() == (
        "bucket string, name string, description string, size bigint, chunks bigint, digest string, "
        "modified timestamp, headers map<string,array<string>>, metadata map<string,string>, "
        "link struct<bucket:string,name:string>"
    )
