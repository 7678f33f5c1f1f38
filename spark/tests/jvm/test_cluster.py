"""A standalone cluster of a master and two workers: what `submit-args` prints runs there.

Six small JVMs: master, two workers, driver, two executors. Where memory is short it is skipped with that reason.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from spark.tests.conftest import Filler
from spark.tests.jvm.conftest import QUICK_JAVA
from spark.tests.places import PYTHONPATH
from tests.conformance.harness.process import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
MEMORY_MIN_MB = 3000
SMALL = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.executor.memory": "480m",
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    "spark.ui.enabled": "false",
}
# A read in the workers, which have nothing of this package but the zip.
READ = """
import sys
import pyjs_spark
spark = pyjs_spark.session("read", "local[1]")
pyjs_spark.register(spark)
messages = spark.read.format("jetstream").options(servers=sys.argv[1], stream=sys.argv[2], minPartitions=4).load()
where = messages.rdd.mapPartitions(lambda rows: [__import__("pyjs_spark").__file__]).distinct().collect()
assert where and all("pyjs_spark.zip" in path for path in where), where
assert spark.sparkContext.master.startswith("spark://"), spark.sparkContext.master
sums = messages.selectExpr("count(*)", "count(DISTINCT seq)", "sum(CAST(CAST(data AS string) AS long))")
print("rows", *sums.first())
spark.stop()
"""


class Cluster:
    """The processes, and the address of the master."""

    def __init__(self, folder: Path) -> None:
        import pyspark

        self._home = Path(pyspark.__file__).parent
        self._folder = folder
        self._running: list[subprocess.Popen[str]] = []
        self.address = ""

    def start(self) -> None:
        """Start the master and two workers, and wait until they have found each other."""
        self.address = self._start("master.Master", r"Starting Spark master at (spark://\S+)", "--port", "0")
        for number in "12":
            size = ("--cores", "1", "--memory", "512m", "--work-dir", str(self._folder / f"work{number}"))
            self._start("worker.Worker", r"Successfully registered with master", *size, self.address)

    def _start(self, name: str, ready: str, *argv: str) -> str:
        common = ("--host", "127.0.0.1", "--webui-port", "0")
        command = [str(self._home / "bin/spark-class"), f"org.apache.spark.deploy.{name}", *common, *argv]
        env = self.env() | {"SPARK_DAEMON_MEMORY": "128m", "SPARK_DAEMON_JAVA_OPTS": f"{QUICK_JAVA} -Xss512k"}
        running = subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._running.append(running)
        assert running.stdout is not None
        said = []
        for line in running.stdout:
            said.append(line)
            if found := re.search(ready, line):
                return found[found.re.groups]
        raise AssertionError(f"{name} ended: {''.join(said)}")

    def env(self) -> dict[str, str]:
        """Return an environment that knows neither this tree nor its packages."""
        kept = {
            name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME", "LANG") if name in os.environ
        }
        return kept | {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_HOME": str(self._home),
            "PYSPARK_PYTHON": sys.executable,
        }

    def stop(self) -> None:
        """End all of it."""
        for running in reversed(self._running):
            running.kill()
            running.wait()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers with a core each."""
    free_mb = int(re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())[1]) // 1024  # type: ignore[index]
    if free_mb < MEMORY_MIN_MB:
        pytest.skip(f"a cluster needs {MEMORY_MIN_MB} MB, {free_mb} MB are available")
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


def submitted(
    cluster: Cluster, folder: Path, *argv: str, more: str = "", cores: int = 2
) -> subprocess.CompletedProcess[str]:
    """Run what submit-args prints, as it stands there, from a folder that has nothing of this tree."""
    command = [
        sys.executable,
        "-m",
        "pyjs_spark.cli",
        "submit-args",
        "--master",
        cluster.address,
        "--to",
        str(folder),
    ]
    env = {**os.environ, "PYTHONPATH": PYTHONPATH}
    said = subprocess.run([*command, *argv], env=env, capture_output=True, text=True, check=True)
    conf = {**SMALL, "spark.cores.max": cores}  # each core is an executor, and a JVM
    settings = " ".join(f"--conf {shlex.quote(f'{name}={value}')}" for name, value in conf.items())
    (line,) = said.stdout.splitlines()
    line = line.replace(" --py-files ", f" {settings} --py-files ") + more
    return subprocess.run(
        line,
        shell=True,
        cwd=folder,
        env=cluster.env(),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def test_a_read_is_done_by_workers_that_have_the_zip_alone(
    cluster: Cluster, server: ServerProcess, filler: Filler, tmp_path: Path
) -> None:
    filler.create()
    filler.fill(40)
    app = tmp_path / "job.py"
    app.write_text(READ)
    address = f"nats://127.0.0.1:{server.port}"

    done = submitted(cluster, tmp_path, "--app", str(app), more=f" {shlex.join([address, filler.name])}")

    assert (done.returncode, done.stdout.strip()) == (0, "rows 40 40 820"), done.stderr


def test_an_archive_is_written_by_the_workers(
    cluster: Cluster, server: ServerProcess, filler: Filler, tmp_path: Path
) -> None:
    deltalake = pytest.importorskip("deltalake")
    filler.create()
    filler.fill(12)
    lake = tmp_path / "lake"
    file = tmp_path / "pipeline.toml"
    file.write_text(
        f'[pipeline]\nkind = "archive"\nstream = "{filler.name}"\ntarget = "{lake}"\nrows_per_file = 5\n'
        f'format = "delta"\n[options]\nservers = "nats://127.0.0.1:{server.port}"\n'
    )

    done = submitted(cluster, tmp_path, "-c", str(file), cores=1)
    filler.fill(6)
    filler.api(f"STREAM.PURGE.{filler.name}", seq=15)
    lost = submitted(cluster, tmp_path, "-c", str(file), cores=1)

    assert (done.returncode, done.stdout) == (0, f"{filler.name}: 3 files, 12 rows, next sequence 13\n"), (
        done.stderr
    )
    assert lost.returncode == 3
    # spark-submit shows what its application says on stderr as its own stdout.
    assert "messages 13 to 14 were removed before they were archived" in lost.stdout
    table = deltalake.DeltaTable(f"{lake}/{filler.name}").to_pyarrow_table()
    assert sorted(table.column("seq").to_pylist()) == list(range(1, 13))
