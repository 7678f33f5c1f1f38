"""Archive of a stream as an Iceberg table, written with the Python library pyiceberg; needs no Spark and no JVM.

Each snapshot that the archive commits has the property `pyjs.next`, the sequence after the last archived sequence.
The progress is this property of the newest snapshot that has it, so a table that was rolled back is filled again. If
all such snapshots have expired, the progress is the table's property of the same name, which each commit also sets.
The table is partitioned by the day of `ts`.

If another process has committed in between, the library repeats a commit on top of the newer snapshot. An
archive must not do that: two concurrent runs would both add their files. So the library tries each commit once,
on the snapshot that was read; Table.append() reads the table again before it repeats a commit.

The default catalog is an SQLite file in the root: pyiceberg's catalog of type sql named `pyjs`.

Source: the specification of Iceberg. What pyiceberg implements of it is checked in spark/tests/lake/test_tables.py.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.transforms import DayTransform

from pyjs_spark.decode.schema import arrow_schema
from pyjs_spark.errors import OptionError
from pyjs_spark.lake.archive import TableFile, columns
from pyjs_spark.lake.files import file_system
from pyjs_spark.lake.tables.table import Table, TableProperties, check_own_catalog

NAME = "pyjs"  # name of the catalog, also in the environment: PYICEBERG_CATALOG__PYJS__...
NAMESPACE = "jetstream"
NEXT = "pyjs.next"
RETRIES = "commit.retry.num-retries"


class IcebergArchive(Table):
    """The Iceberg table of one stream."""

    conflict = CommitFailedException

    def record(self) -> TableProperties | None:
        """Return the properties of the table, or None if there is no table.

        Raises:
            OptionError: no archive began the table, or the catalog does not have it.
        """
        catalog = self._catalog(is_made=False)
        if catalog is None or not catalog.table_exists(self._name):
            self._check_unknown()
            return None
        table = catalog.load_table(self._name)
        said = table.properties
        if NEXT not in said:
            raise OptionError(f"{self.folder}: no archive began this Iceberg table; name another target")
        snapshot = table.current_snapshot()
        files = snapshot.summary["total-data-files"] if snapshot is not None else 0
        return TableProperties.of(said, self.end_of(table), int(files or 0))

    def create(self, record: TableProperties) -> None:
        """Create the table, and the catalog if it is the default file."""
        catalog = self._catalog(is_made=True)
        catalog.create_namespace_if_not_exists(self._name[:-1])
        schema = arrow_schema(columns(record.headers), record.headers)
        properties = {**record.properties(), NEXT: str(record.next)}
        with (
            catalog.create_table_transaction(
                self._name, schema, location=self.folder, properties=properties
            ) as made,
            made.update_spec() as spec,
        ):
            spec.add_field("ts", DayTransform(), "date")

    def end_of(self, table: Any) -> int:
        """Return the sequence after the last archived sequence."""
        snapshot = table.current_snapshot()
        while snapshot is not None:
            said = snapshot.summary.additional_properties.get(NEXT) if snapshot.summary else None
            if said is not None:
                return int(said)
            parent = snapshot.parent_snapshot_id
            snapshot = table.snapshot_by_id(parent) if parent is not None else None
        return int(table.properties[NEXT])

    def commit(self, table: Any, high: int, files: Sequence[TableFile]) -> None:
        """Add the files, and set the end of the table to `high`, in one commit."""
        paths = [f"{self.parts}/{file.path}" for file in files]
        table.metadata.properties[RETRIES] = "0"  # changed only in this object, and not written to the table
        with table.transaction() as change:
            change.set_properties({NEXT: str(high)})
            change.add_files(paths, snapshot_properties={NEXT: str(high)}, check_duplicate_files=False)

    def loaded(self) -> Any:
        """Return the library's object for the existing table."""
        return self._catalog(is_made=False).load_table(self._name)

    def _check_unknown(self) -> None:
        """Raise OptionError if the folder contains a table that the catalog does not have."""
        system, base = file_system(self.folder)
        if system.get_file_info(f"{base}/metadata").type.name != "NotFound":
            raise OptionError(
                f"{self.folder}: there is an Iceberg table that the catalog does not know; put back the catalog, or "
                f"name another target"
            )

    @property
    def _name(self) -> tuple[str, ...]:
        return (self.lake.catalog.get("namespace", NAMESPACE), self.stream)

    def _catalog(self, *, is_made: bool) -> Any:
        """Return the catalog, or None if the catalog's file does not exist and `is_made` is False."""
        said = {name: value for name, value in self.lake.catalog.items() if name not in ("name", "namespace")}
        name = self.lake.catalog.get("name", NAME)
        if said:
            # A REST catalog expects the name of one of its warehouses, and would refuse a path.
            is_rest = said.get("type") == "rest" or said.get("uri", "").startswith("http")
            return load_catalog(name, **({} if is_rest else {"warehouse": self.root}) | said)
        return self._own_catalog(name, is_made)

    def _own_catalog(self, name: str, is_made: bool) -> Any:
        check_own_catalog(self.lake.root)
        path = f"{self.root}/catalog.db"
        if not is_made and not os.path.exists(path):
            return None
        os.makedirs(self.root, exist_ok=True)
        return load_catalog(name, type="sql", uri=f"sqlite:///{path}", warehouse=self.root)
