"""A standalone cluster of a master and two workers runs the line that `submit-args` prints.

It needs six small JVMs: a master, two workers, a driver, two executors; or four if only the archive runs, which uses
one executor and one worker. Without enough memory the tests are skipped. In `make spark-matrix` an executor and a
worker are killed while a query runs.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from spark.tests.conftest import Filler
from spark.tests.jvm.conftest import IS_MATRIX
from spark.tests.package.test_deploy import DEPLOY, job
from spark.tests.support.java import QUICK_JAVA
from spark.tests.support.places import PYTHONPATH
from tests.conformance.harness.process import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
MEMORY_MIN_MB = 3000
SMALL = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.executor.memory": "480m",
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    "spark.python.authenticate.socketTimeout": "120s",  # for a first connection: machines are busy
    "spark.ui.enabled": "false",
}
# A read in the workers, which have only the zip of this package.
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

# A copy in many small batches, so that the tests have time to kill a process.
COPY = """
import sys
import pyjs_spark
spark = pyjs_spark.session("copy", "local[1]")
servers, source, target, checkpoint = sys.argv[1:]
messages = spark.readStream.format("jetstream").options(
    servers=servers, stream=source, startingOffsets="earliest", maxRowsPerTrigger=40, minPartitions=4
).load()
query = (
    messages.selectExpr(f"'{target.lower()}.x' AS subject", "data").writeStream.format("jetstream")
    .options(servers=servers, stream=target, checkpointLocation=checkpoint).trigger(availableNow=True).start()
)
query.awaitTermination()
spark.stop()
"""
COPIED = 800
WAIT_S = 400.0


class Cluster:
    """The processes, and the address of the master."""

    def __init__(self, folder: Path) -> None:
        import pyspark

        self._home = Path(pyspark.__file__).parent
        self._folder = folder
        self._running: list[subprocess.Popen[str]] = []
        self.address = ""

    def start(self) -> None:
        """Start the master and two workers, or one if only one is used; wait until they are connected."""
        self.address = self._start("master.Master", r"Starting Spark master at (spark://\S+)", "--port", "0")
        for number in "12" if IS_MATRIX else "1":
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
        """Return an environment without the paths of this tree and its packages."""
        kept = {
            name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME", "LANG") if name in os.environ
        }
        return kept | {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_HOME": str(self._home),
            "PYSPARK_PYTHON": sys.executable,
            "JAVA_TOOL_OPTIONS": QUICK_JAVA,  # also for programs that start other programs
        }

    def executors(self, worker: int) -> list[int]:
        """Return the process ids of the executors of a worker."""
        work = self._folder / f"work{worker}"
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                command, cwd = (path / "cmdline").read_bytes(), (path / "cwd").readlink()
            except OSError:
                continue  # it has ended meanwhile, or is not ours
            if b"CoarseGrainedExecutorBackend" in command and cwd.is_relative_to(work):
                found.append(int(path.name))
        return found

    def kill_worker(self, worker: int) -> None:
        """Kill a worker; its executors end once they detect this."""
        self._running[worker].kill()

    def stop(self) -> None:
        """Stop all processes of the cluster."""
        for running in reversed(self._running):
            running.kill()
            running.wait()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers with one core each."""
    free_mb = int(re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())[1]) // 1024  # type: ignore[index]
    if free_mb < MEMORY_MIN_MB:
        pytest.skip(f"a cluster needs {MEMORY_MIN_MB} MB, {free_mb} MB are available")
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


def line_of(cluster: Cluster, folder: Path, *argv: str, more: str = "", cores: int = 2) -> str:
    """Return the line that submit-args prints, with settings for small machines."""
    command = [
        sys.executable, "-m", "pyjs_spark.cli", "submit-args", "--master", cluster.address, "--to", str(folder),
    ]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": PYTHONPATH}
    said = subprocess.run([*command, *argv], env=env, capture_output=True, text=True, check=True)
    (line,) = said.stdout.splitlines()
    return line.replace(" --py-files ", f" {settings(cores)} --py-files ") + more


def settings(cores: int) -> str:
    """Return settings for small machines; each core gets an executor, which is a separate JVM."""
    conf = {**SMALL, "spark.cores.max": cores}
    return " ".join(f"--conf {shlex.quote(f'{name}={value}')}" for name, value in conf.items())


def submitted(
    cluster: Cluster, folder: Path, *argv: str, more: str = "", cores: int = 2
) -> subprocess.CompletedProcess[str]:
    """Run the line that submit-args prints, unchanged, from a folder outside this tree."""
    return run(cluster, folder, line_of(cluster, folder, *argv, more=more, cores=cores))


def run(cluster: Cluster, folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    """Run a line in a shell, as a user of the cluster would."""
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


@pytest.mark.skipif(not IS_MATRIX, reason="the archive below shows the same: make spark-matrix runs it")
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

    assert (done.returncode, done.stdout) == (0, f"{filler.name}: 3 files, 12 rows, next sequence 13\n"), (
        done.stderr
    )
    table = deltalake.DeltaTable(f"{lake}/{filler.name}").to_pyarrow_table()
    assert sorted(table.column("seq").to_pylist()) == list(range(1, 13))
    if IS_MATRIX:  # this starts another Spark driver
        filler.fill(6)
        filler.api(f"STREAM.PURGE.{filler.name}", seq=15)
        lost = submitted(cluster, tmp_path, "-c", str(file), cores=1)
        assert lost.returncode == 3
        # spark-submit prints its application's stderr to its own stdout.
        assert "messages 13 to 14 were removed before they were archived" in lost.stdout


@pytest.mark.skipif(not IS_MATRIX, reason="JVMs of its own: make spark-matrix runs it")
def test_the_wheel_is_a_package_for_py_files(
    cluster: Cluster, server: ServerProcess, filler: Filler, tmp_path: Path
) -> None:
    filler.create()
    filler.fill(12)
    source = tmp_path / "source"
    shutil.copytree(
        DEPLOY.parent, source, ignore=shutil.ignore_patterns("tests", "fast", "docs", "*.pyc", "*.egg-info")
    )
    pip = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(tmp_path),
        str(source),
    ]
    subprocess.run(pip, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    wheel.rename(tmp_path / "pyjs_spark.zip")
    shutil.copy2(DEPLOY / "pipeline.py", tmp_path)
    program = shlex.quote(str(Path(cluster.env()["SPARK_HOME"]) / "bin/spark-submit"))
    archive = shlex.join(
        ["archive", filler.name, str(tmp_path / "lake"), "-s", f"nats://127.0.0.1:{server.port}"]
    )

    done = run(
        cluster,
        tmp_path,
        f"{program} --master {cluster.address} {settings(1)} --py-files pyjs_spark.zip "
        f"--conf spark.pyspark.python={shlex.quote(sys.executable)} pipeline.py {archive}",
    )

    assert (done.returncode, "12 rows" in done.stdout) == (0, True), done.stderr


@pytest.mark.skipif(not IS_MATRIX, reason="JVMs of its own: make spark-matrix runs it")
def test_the_command_of_the_kubernetes_job_runs_without_kubernetes(
    cluster: Cluster, server: ServerProcess, filler: Filler, tmp_path: Path
) -> None:
    filler.create()
    filler.fill(12)
    (container,) = job()["containers"]
    args = [each for each in container["args"] if "kubernetes" not in each and "driver.host" not in each]
    words = [word for at, word in enumerate(args) if word != "--conf" or "=" in args[at + 1]]
    file = tmp_path / "pipeline.toml"
    file.write_text(
        f'[pipeline]\nkind = "archive"\nstream = "{filler.name}"\ntarget = "{tmp_path}/lake"\n'
        f'[options]\nservers = "nats://127.0.0.1:{server.port}"\n'
    )
    places = {"/opt/pyjs/pipeline.py": str(DEPLOY / "pipeline.py"), "/etc/pyjs/pipeline.toml": str(file)}
    words = [places.get(word, word) for word in words if word != "--master"]
    line = shlex.join(["--master", "local[2]", *words])
    program = shlex.quote(str(Path(cluster.env()["SPARK_HOME"]) / "bin/spark-submit"))

    done = run(cluster, tmp_path, f"PYTHONPATH={PYTHONPATH} {program} {settings(1)} {line}")

    assert (done.returncode, "12 rows" in done.stdout) == (0, True), done.stderr


@pytest.mark.skipif(not IS_MATRIX, reason="a cluster of its own, for minutes: make spark-matrix runs it")
def test_a_query_goes_on_when_an_executor_and_a_worker_are_killed(
    server: ServerProcess, filler: Filler, tmp_path: Path
) -> None:
    raw, target = filler.raw, f"{filler.name}COPY"  # one connection, since all of them have the same inbox
    filler.create(subjects=[f"{filler.name.lower()}.>"])
    config = {"subjects": [f"{target.lower()}.>"], "duplicate_window": 100_000_000, "allow_direct": True}
    raw.api(f"STREAM.CREATE.{target}", name=target, **config)
    filler.fill(COPIED)
    (tmp_path / "goes_on.py").write_text(COPY)
    argv = [f"nats://127.0.0.1:{server.port}", filler.name, target, str(tmp_path / "checkpoint")]
    own = Cluster(tmp_path / "cluster")

    def copied() -> int:
        return int(raw.api(f"STREAM.INFO.{target}")["state"]["messages"])

    def wait_until(count: int) -> None:
        deadline_s = time.monotonic() + WAIT_S
        while copied() < count:
            assert query is not None
            assert query.poll() is None, log.read_text()
            assert time.monotonic() < deadline_s, log.read_text()
            time.sleep(0.05)  # polling: no event signals progress of the target

    log, query = tmp_path / "query.log", None
    try:
        own.start()
        line = line_of(own, tmp_path, "--app", str(tmp_path / "goes_on.py"), more=f" {shlex.join(argv)}")
        with log.open("wb") as out:
            query = subprocess.Popen(
                line, shell=True, cwd=tmp_path, env=own.env(), stdout=out, stderr=out, start_new_session=True
            )
        wait_until(80)
        (executor,) = own.executors(1)
        os.kill(executor, signal.SIGKILL)
        wait_until(copied() + 160)
        own.kill_worker(2)
        for lost in own.executors(2):
            os.kill(lost, signal.SIGKILL)
        code = query.wait(WAIT_S)
    finally:
        own.stop()
        if query is not None and query.poll() is None:
            os.killpg(query.pid, signal.SIGKILL)

    assert code == 0, log.read_text()
    payloads = [
        raw.request(f"$JS.API.DIRECT.GET.{target}".encode(), b'{"seq":%d}' % seq)
        for seq in range(1, copied() + 1)
    ]
    assert sorted(map(int, payloads)) == list(range(1, COPIED + 1))
    raw.api(f"STREAM.DELETE.{target}")
