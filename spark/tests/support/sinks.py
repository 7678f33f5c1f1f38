"""The task properties that Spark gives a writer, and the target stream of the writes."""

from __future__ import annotations

import base64
import json
import pickle
import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import datasource
from pyspark.sql.types import ArrayType, BinaryType, LongType, MapType, StringType, StructType
from spark.tests.conftest import Filler

from pyjs_spark.datasource import sink
from pyjs_spark.datasource.source import JetStreamSource
from pyjs_spark.nats.client import Client
from pyjs_spark.nats.settings import ConnectSettings
from pyjs_spark.read.pull import ReadRange, read_range

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

PATIENCE_S = 10.0  # seconds until a message that was sent is stored


class Task:
    """The properties of a Spark task that a writer reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.part = 0
        self.properties = {sink.QUERY_ID: "q1", sink.BATCH_ID: "0"}
        monkeypatch.setattr(sink.TaskContext, "get", classmethod(lambda cls: self))

    def partitionId(self) -> int:
        return self.part

    def getLocalProperty(self, name: str) -> str | None:
        return self.properties.get(name)


class Out:
    """The stream to which a test writes."""

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
        """Return a batch writer, as a worker receives it."""
        made = self.source(**options).writer(schema_of(columns), False)
        return pickle.loads(pickle.dumps(made))

    def stream_writer(self, columns: str = ROWS, **options: str) -> Any:
        made = self.source(**options).streamWriter(schema_of(columns), False)
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
        """Return the values of a sink's keys by partition."""
        prefix = f"$KV.{bucket}.{sink_id or self.filler.name.lower()}."
        info = self.filler.raw.try_api(f"STREAM.INFO.KV_{bucket}", subjects_filter=prefix + "*")
        subjects = (info.get("state", {}).get("subjects") or {}) if "error" not in info else {}
        found = {}
        for subject in (each for each in subjects if each != f"{prefix}batch"):
            message = self.filler.raw.api(f"STREAM.MSG.GET.KV_{bucket}", last_by_subj=subject)["message"]
            found[subject.removeprefix(prefix)] = json.loads(base64.b64decode(message["data"]))
        return found

    def config(self, **changes: object) -> dict[str, object]:
        base = {"name": self.filler.name, "subjects": [f"{self.subject}.>"], "storage": "memory"}
        return {**base, **changes}

    def payloads(self) -> list[bytes]:
        return [row["data"] for row in self.stored()]

    def stored_payloads(self, count: int) -> list[bytes]:
        """Wait until `count` payloads are stored, and return them; the last message may still be in flight."""
        deadline = time.monotonic() + PATIENCE_S
        while len(found := self.payloads()) < count and time.monotonic() < deadline:
            pass
        assert len(found) == count
        return found


def schema_of(columns: str) -> StructType:
    made = StructType()
    for name in columns.split():
        made.add(name, TYPES[name])
    return made
