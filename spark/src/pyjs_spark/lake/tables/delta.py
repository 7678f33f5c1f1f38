"""Archive of a stream as a Delta table, written with the Python library deltalake; needs no Spark and no JVM.

The progress is the application transaction `pyjs-archive` in the table's log: the version of this transaction is
the sequence after the last committed sequence. The library accepts the same version of a transaction twice, so the
version is read before each commit. The library must refuse the commit if another commit came after this read, so it
may not retry. The table's configuration contains the identity of the stream.

Source: the protocol of Delta (transaction identifiers). deltalake's behaviour:
spark/tests/lake/test_tables.py.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, CommitProperties, Transaction

from pyjs_spark.decode.schema import arrow_schema
from pyjs_spark.errors import OptionError
from pyjs_spark.lake.archive import TableFile, columns
from pyjs_spark.lake.tables.table import Lake, Table, TableProperties
from pyjs_spark.times import EPOCH

APP = "pyjs-archive"


class DeltaArchive(Table):
    """The Delta table of one stream."""

    conflict = CommitFailedError

    def __init__(self, lake: Lake, stream: str) -> None:
        super().__init__(lake, stream)
        if "%" in self.root:  # the library decodes % in some places, and would use another path
            raise OptionError(f"format=delta: the target {lake.root} has a % in its name; name another")

    def record(self) -> TableProperties | None:
        """Return the properties of the table, or None if there is no table.

        Raises:
            OptionError: no archive began the table.
        """
        if not DeltaTable.is_deltatable(self.folder):
            return None
        table = self.loaded()
        said, at = table.metadata().configuration, self.end_of(table)
        if "pyjs.created" not in said or at is None:
            raise OptionError(f"{self.folder}: no archive began this Delta table; name another target")
        return TableProperties.of(said, at, len(table.file_uris()))

    def create(self, record: TableProperties) -> None:
        """Create the table."""
        DeltaTable.create(
            self.folder,
            _schema(record.headers),
            partition_by=["date"],
            name=self.stream,
            configuration=record.properties(),
            raise_if_key_not_exists=False,
            commit_properties=CommitProperties(app_transactions=[Transaction(APP, record.next)]),
        )

    def loaded(self) -> Any:
        """Return a DeltaTable for the existing table."""
        return DeltaTable(self.folder)

    def end_of(self, table: Any) -> int | None:
        """Return the sequence after the last archived sequence, or None if no archive began the table."""
        at: int | None = table.transaction_version(APP)
        return at

    def commit(self, table: Any, high: int, files: Sequence[TableFile]) -> None:
        """Add the files, and set the end of the table to `high`, in one commit."""
        properties = CommitProperties(app_transactions=[Transaction(APP, high)], max_commit_retries=0)
        actions = [_action(file) for file in files]
        table.create_write_transaction(
            actions, "append", table.schema(), ["date"], commit_properties=properties
        )


def _schema(headers: str) -> Any:
    return arrow_schema(columns(headers), headers).append(pa.field("date", pa.date32()))


def _action(file: TableFile) -> Any:
    times = [f"{EPOCH + timedelta(microseconds=ns // 1000):%Y-%m-%dT%H:%M:%S.%fZ}" for ns in file.times_ns]
    ends = [
        {"seq": seq, "ts": at, "ts_ns": ns}
        for seq, at, ns in zip(file.seqs, times, file.times_ns, strict=True)
    ]
    stats = {
        "numRecords": file.rows,
        "minValues": ends[0],
        "maxValues": ends[1],
        "nullCount": dict.fromkeys(ends[0], 0),
    }
    return AddAction(
        file.path, file.size, {"date": file.date}, int(time.time() * 1000), True, json.dumps(stats)
    )
