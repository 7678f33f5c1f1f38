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


class Clean:
    """An environment without compilers, and the time since its creation began."""

    def __init__(self, folder: Path) -> None:
        self.began = time.monotonic()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.used = used.ru_utime + used.ru_stime  # by processes that have ended
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

    def clock_text(self) -> str:
        """Return the time on the clock, for the figures."""
        return f"({time.monotonic() - self.began:.1f} s on the clock)"

    def seconds(self) -> float:
        """Return the time since the beginning; on a machine with much other work, the processor time."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = time.monotonic() - self.began
        is_busy = os.getloadavg()[0] > 2 * (os.cpu_count() or 1)
        return min(spent, used.ru_utime + used.ru_stime - self.used) if is_busy else spent


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

    print(
        f"pyjs-server: {clean.seconds():.1f} s from an empty environment to the first message {clean.clock_text()}"
    )
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
        said = clean.run("python", "first.py", f"nats://127.0.0.1:{servers.server('a').port}", "3")
    finally:
        servers.kill()

    print(
        f"pyjs-raft: {clean.seconds():.1f} s from nothing to the first replicated message {clean.clock_text()}"
    )
    assert said == "orders.new one loaf of bread\n"
    assert clean.seconds() < FIRST_MESSAGE_S


@pytest.mark.skipif(not shutil.which("java"), reason="needs Java 17")
def test_spark_reads_a_first_message(clean: Clean, server: ServerProcess, tmp_path: Path) -> None:
    ours = Clean(tmp_path)
    # Spark is published as sources without anything to compile.
    ours.run("python", "-m", "pip", "install", "--quiet", "setuptools", "wheel")
    ours.run(
        "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-build-isolation",
        wheel("pyjs-spark"),
        wheel("pyjs-spark-fast"),
    )
    installed_s = ours.seconds()
    (tmp_path / "first.py").write_text(SPARK_PROGRAM)

    said = ours.run("python", "first.py", f"nats://127.0.0.1:{server.port}")

    print(
        f"pyjs-spark: {ours.seconds():.1f} s from an empty environment to the first row, "
        f"{installed_s:.1f} s of them for Spark and the other packages {ours.clock_text()}"
    )
    assert "[b'one loaf of bread']" in said
    assert ours.seconds() - installed_s < FIRST_MESSAGE_S
