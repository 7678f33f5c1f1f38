"""The wheels of a release where no compiler is found: from nothing to the first message within a minute.

PYJS_WHEELS names the directory with the wheels; `make wheels` sets it. Our own wheels are installed from their files,
and their dependencies from the package registry, as wheels only.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.conformance.harness.cluster import ThreeServers
from tests.conformance.harness.process import ServerProcess

WHEELS = Path(os.environ.get("PYJS_WHEELS", "/nonexistent")).resolve()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not WHEELS.is_dir(), reason="no wheels: make wheels"),
]
FIRST_MESSAGE_S = 60.0
MANYLINUX = re.compile(r"manylinux_2_(\d+)_x86_64")
COMPILERS = re.compile(r"gcc|g\+\+|c\+\+|^cc$|^c[89]9$|clang|cargo|rustc|python|pip")
GLIBC_MAX = 36  # of Debian 12; a newer symbol would exclude it

PROGRAM = """
import asyncio, sys
import nats

async def main():
    client = await nats.connect(sys.argv[1])
    stream = client.jetstream()
    await stream.add_stream(name="ORDERS", subjects=["orders.>"], num_replicas=int(sys.argv[2]))
    await stream.publish("orders.new", b"one loaf of bread")
    orders = await stream.pull_subscribe("orders.>", durable="bakery")
    for order in await orders.fetch(1):
        print(order.subject, order.data.decode())
        await order.ack()
    await client.close()

asyncio.run(main())
"""
SPARK_PROGRAM = """
import sys
import pyjs_spark

spark = pyjs_spark.session()
rows = spark.read.format("jetstream").option("servers", sys.argv[1]).option("stream", "ORDERS").load()
print([bytes(row.data) for row in rows.select("data").collect()])
"""


def wheel(name: str) -> Path:
    """Return the wheel of a distribution."""
    (found,) = WHEELS.glob(f"{name.replace('-', '_')}-*.whl")
    return found


class Spent(NamedTuple):
    """Seconds on the clock, and of processor time of programs that have ended."""

    clock: float
    processor: float


def spent_so_far() -> Spent:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Spent(time.monotonic(), used.ru_utime + used.ru_stime)


class Clean:
    """An environment without compilers, and the time of each phase since its creation began."""

    def __init__(self, folder: Path) -> None:
        self.phases: dict[str, Spent] = {}
        self._last = spent_so_far()
        self.folder = folder
        self.programs = folder / "venv" / "bin"
        (folder / "tools").mkdir()
        for path in (each for each in Path("/usr/bin").iterdir() if not COMPILERS.search(each.name)):
            (folder / "tools" / path.name).symlink_to(path)
        if java := shutil.which("java"):
            (folder / "tools" / "java").unlink(missing_ok=True)
            (folder / "tools" / "java").symlink_to(os.path.realpath(java))
        path_text = f"{self.programs}:{folder}/tools"
        kept = {
            name: os.environ[name] for name in os.environ if name.startswith(("PIP_", "HOME", "JAVA", "TMP"))
        }
        self.environment = {**kept, "PATH": path_text, "CC": "/nonexistent"}
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True, env=kept)
        self.ends("environment")
        assert not any(
            shutil.which(each, path=path_text) for each in ("gcc", "cc", "clang", "cargo", "rustc")
        )

    def run(self, *words: str | Path) -> str:
        """Run a command of the environment; return its output."""
        done = subprocess.run(
            [self.programs / words[0], *words[1:]],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def install(self, *names: str | Path) -> None:
        """Install wheels, and no other form of a package."""
        self.run("python", "-m", "pip", "install", "--quiet", "--only-binary", ":all:", *names)
        self.ends("install")

    def ends(self, phase: str) -> None:
        """Count the time since the last phase as that of this one."""
        now = spent_so_far()
        self.phases[phase] = Spent(now.clock - self._last.clock, now.processor - self._last.processor)
        self._last = now

    def seconds(self) -> float:
        """Return the time of all phases but downloads; on a machine with much other work, the processor time."""
        counted = [spent for phase, spent in self.phases.items() if not phase.startswith("download")]
        clock, processor = sum(each.clock for each in counted), sum(each.processor for each in counted)
        is_busy = os.getloadavg()[0] > 2 * (os.cpu_count() or 1)
        return min(clock, processor) if is_busy else clock

    def report(self, name: str) -> None:
        """Print the seconds of each phase."""
        parts = [
            f"{phase} {each.clock:.1f} s (processor {each.processor:.1f} s)"
            for phase, each in self.phases.items()
        ]
        print(f"{name}: first message after {self.seconds():.1f} s: {', '.join(parts)}")


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Clean:
    found = Clean(tmp_path_factory.mktemp("clean"))
    found.install(wheel("pyjs-server"), "nats-py")
    return found


@pytest.fixture(scope="module")
def server(clean: Clean, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    command = [str(clean.programs / "pyjs-server")]
    config = 'jetstream { store_dir: "<<store>>" }'
    found = ServerProcess(command, config, tmp_path_factory.mktemp("server"), with_http=False)
    found.start()
    clean.ends("start")
    yield found
    found.kill()


def test_the_tags_are_those_of_the_symbols() -> None:
    for name in ("pyjs-server", "pyjs-raft", "pyjs-spark-fast"):
        versions = [int(version) for version in MANYLINUX.findall(wheel(name).name)]
        assert versions, wheel(name)
        assert min(versions) <= GLIBC_MAX
    assert wheel("pyjs-spark").name.endswith("-py3-none-any.whl")
    assert "-cp311-abi3-" in wheel("pyjs-raft").name


def test_every_distribution_has_its_sources_beside_it() -> None:
    names = {path.name.partition("-")[0] for path in WHEELS.glob("*.tar.gz")}

    assert names == {"pyjs_server", "pyjs_spark", "pyjs_spark_fast", "pyjs_raft"}


def test_the_server_has_a_first_message_within_a_minute(clean: Clean, server: ServerProcess) -> None:
    (clean.folder / "first.py").write_text(PROGRAM)

    said = clean.run("python", "first.py", f"nats://127.0.0.1:{server.port}", "1")

    clean.ends("first message")
    clean.report("pyjs-server")
    assert said == "orders.new one loaf of bread\n"
    assert clean.seconds() < FIRST_MESSAGE_S


def test_a_replicated_stream_has_a_first_message_within_a_minute(tmp_path: Path) -> None:
    clean = Clean(tmp_path)
    clean.install(wheel("pyjs-raft"), wheel("pyjs-server"), "nats-py")
    (tmp_path / "first.py").write_text(PROGRAM)
    servers = ThreeServers(
        [str(clean.programs / "pyjs-server")], tmp_path, 'jetstream { store_dir: "<<store>>" }'
    )
    try:
        servers.start()
        servers.wait_healthy("a")
        clean.ends("start of three servers")
        said = clean.run("python", "first.py", f"nats://127.0.0.1:{servers.server('a').port}", "3")
    finally:
        servers.kill()

    clean.ends("first message")
    clean.report("pyjs-raft")
    assert said == "orders.new one loaf of bread\n"
    assert clean.seconds() < FIRST_MESSAGE_S


@pytest.mark.skipif(not shutil.which("java"), reason="needs Java 17")
def test_spark_reads_a_first_message(clean: Clean, server: ServerProcess, tmp_path: Path) -> None:
    ours, wheels = Clean(tmp_path), (wheel("pyjs-spark"), wheel("pyjs-spark-fast"))
    # Spark is published as sources without anything to compile; pip makes a wheel of it once for each user.
    ours.run("python", "-m", "pip", "install", "--quiet", "setuptools", "wheel")
    folder = tmp_path / "wheels"
    ours.run("python", "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "-w", folder, *wheels)
    ours.ends("download of Spark and others (not counted)")
    ours.install("--no-index", "--find-links", folder, *wheels)
    (tmp_path / "first.py").write_text(SPARK_PROGRAM)

    said = ours.run("python", "first.py", f"nats://127.0.0.1:{server.port}")

    ours.ends("start of Spark and first message")
    ours.report("pyjs-spark")
    assert "[b'one loaf of bread']" in said
    assert ours.seconds() < FIRST_MESSAGE_S
