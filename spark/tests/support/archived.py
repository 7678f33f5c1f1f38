"""What is in an archive of any format, read by the format's own library."""

from __future__ import annotations

from pathlib import Path

from pyjs_spark.lake.tables import tables
from pyjs_spark.lake.tables.table import Lake


def archived(lake: Lake, stream: str) -> list[int]:
    """Return the sequences in an archive, in their order, doubles too."""
    import pyarrow.parquet as pq

    if lake.format == "parquet":
        paths = [str(path) for path in Path(lake.root).rglob("date=*/seq=*.parquet")]
    elif lake.format == "delta":
        from deltalake import DeltaTable

        paths = [uri.removeprefix("file://") for uri in DeltaTable(f"{lake.root}/{stream}").file_uris()]
    else:
        loaded = tables.table_of(lake, stream).loaded()
        paths = [task.file.file_path.removeprefix("file://") for task in loaded.scan().plan_files()]
    return sorted(seq for path in paths for seq in pq.ParquetFile(path).read(["seq"])["seq"].to_pylist())
