"""S3 as a target: Spark's own s3a:// for files and checkpoint, and the archives of the command, on a real S3 server.

Each test needs its own JVM, with jars or variables set at its start: `make spark-matrix` runs them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from spark.tests.conftest import Filler
from spark.tests.jars import jars
from spark.tests.jvm.conftest import IS_MATRIX
from spark.tests.support.places import PYTHONPATH
from spark.tests.support.s3 import BUCKET, S3Server
from tests.conformance.harness.process import ServerProcess

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not IS_MATRIX, reason="a JVM of its own: make spark-matrix runs it"),
]
# Two runs of one query, with its files and its checkpoint on S3; the second one finds messages that arrived between
# them.
S3A = """
import json, sys
import pyjs_spark
said = json.loads(sys.argv[1])
spark = pyjs_spark.session("s3a", "local[2]", **said["settings"])
query = (
    spark.readStream.format("jetstream").options(**said["options"]).load().select("seq", "subject", "data")
    .writeStream.format("parquet").option("checkpointLocation", "s3a://lake/checkpoint")
    .trigger(availableNow=True).start("s3a://lake/orders")
)
query.awaitTermination()
found = spark.read.parquet("s3a://lake/orders").selectExpr("count(*)", "count(DISTINCT seq)", "max(seq)").first()
print("found", *found)
"""


@pytest.fixture
def s3() -> Iterator[S3Server]:
    made = S3Server()
    yield made
    made.stop()


def run(s3: S3Server, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **s3.environment, "PYTHONPATH": PYTHONPATH}
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )


def test_a_query_writes_files_and_checkpoint_to_s3a(
    server: ServerProcess, filler: Filler, s3: S3Server, tmp_path: Path
) -> None:
    paths = jars("s3a")
    (tmp_path / "job.py").write_text(S3A)
    filler.create()
    servers = f"nats://127.0.0.1:{server.port}"
    said = {
        "settings": {
            "spark.jars": ",".join(map(str, paths)),
            "spark.driver.memory": "1g",
            "spark.log.level": "ERROR",
            "spark.hadoop.fs.s3a.endpoint": s3.url,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        },
        "options": {"servers": servers, "stream": filler.name, "startingOffsets": "earliest"},
    }

    ends = []
    for _ in range(2):
        filler.fill(7)
        done = run(s3, tmp_path, "job.py", json.dumps(said))
        ends.append(done.stdout.strip().splitlines()[-1:])

        assert done.returncode == 0, done.stderr[-4000:]
    assert ends == [["found 7 7 7"], ["found 14 14 14"]]
    assert any(name.endswith(".parquet") for name in s3.names("orders/"))
    assert {"checkpoint/offsets/1", "checkpoint/commits/1"} <= {*s3.names("checkpoint/")}


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_the_archive_writes_to_s3(
    server: ServerProcess, filler: Filler, s3: S3Server, tmp_path: Path, kind: str
) -> None:
    filler.create()
    file = tmp_path / "pipeline.toml"
    catalog = (
        f'[catalog]\ntype = "sql"\nuri = "sqlite:///{tmp_path}/catalog.db"\n"s3.endpoint" = "{s3.url}"\n'
        '"s3.access-key-id" = "key"\n"s3.secret-access-key" = "secret"\n"s3.region" = "us-east-1"\n'
    )
    file.write_text(
        f'[pipeline]\nkind = "archive"\nstream = "{filler.name}"\ntarget = "s3://{BUCKET}/{kind}"\n'
        f'format = "{kind}"\nmaster = "local[2]"\n[options]\nservers = "nats://127.0.0.1:{server.port}"\n'
        '[spark]\n"spark.driver.memory" = "1g"\n' + (catalog if kind == "iceberg" else "")
    )

    for _ in range(2):
        filler.fill(7)
        done = run(s3, tmp_path, "-m", "pyjs_spark.cli", "run", "-c", str(file))

        assert done.returncode == 0, (done.stdout, done.stderr[-4000:])
    assert rows_of(kind, filler.name, s3, tmp_path) == list(range(1, 15))


def rows_of(kind: str, stream: str, s3: S3Server, folder: Path) -> list[int]:
    """Return the sequences in the archive, read with a library of the format."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    options = s3.environment
    if kind == "delta":
        from deltalake import DeltaTable

        table = DeltaTable(f"s3://{BUCKET}/{kind}/{stream}", storage_options=options).to_pyarrow_table()
    elif kind == "iceberg":
        from pyiceberg.catalog import load_catalog

        keys = {"s3.access-key-id": "key", "s3.secret-access-key": "secret", "s3.region": "us-east-1"}
        uri = f"sqlite:///{folder}/catalog.db"
        catalog = load_catalog("pyjs", type="sql", uri=uri, **{"s3.endpoint": s3.url, **keys})
        table = catalog.load_table(("jetstream", stream)).scan().to_arrow()
    else:
        names = [name for name in s3.names(f"{kind}/") if name.endswith(".parquet")]
        bodies = [s3.client.get_object(Bucket=BUCKET, Key=name)["Body"].read() for name in names]
        table = pa.concat_tables(pq.read_table(pa.BufferReader(body)).select(["seq"]) for body in bodies)
    return sorted(table.column("seq").to_pylist())
