"""Spark sessions for one machine: their settings, and checks that pyspark, pyarrow and Java are installed.

Spark's defaults are for a cluster: 200 shuffle partitions (ten times slower for small aggregations on two cores), a
web page, an address derived from the host name, and workers that run the first `python3` in PATH.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyjs_spark.errors import SparkMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN = 17
JAVA_SECONDS = 30.0  # seconds that starting Java may take: a cold JVM on a busy machine
PYSPARK_MIN, PYSPARK_BELOW = (4, 2), (4, 4)
SUBMITTED = "PYSPARK_GATEWAY_PORT"  # set by spark-submit for the application that it starts
INSTALL = "pip install pyjs-spark"
CONNECT = "sc://"  # prefix of the address of a Spark Connect server


LOCAL = {  # for a Spark on one machine
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
}
EVERYWHERE = {
    "spark.speculation": "false",  # a second attempt at the same range would be wasted work
    "spark.sql.python.filterPushdown.enabled": "true",  # for option pushdown
    # Hides passwords in addresses from plans, the web page and event logs; Spark itself hides only passwords
    # in separate options.
    "spark.sql.redaction.string.regex": r"(?i)(?<=nats://|tls://)[^\s@/,'\"]+(?=@)",
    "spark.sql.session.timeZone": "UTC",
}


def register(spark: SparkSession) -> None:
    """Register the format `jetstream` in a session; needed if this package comes from --py-files.

    Every thread that writes must call `register` too, except the thread that created the session.
    """
    from pyjs_spark.datasource.source import source_of  # imported lazily: needs pyspark

    _share_zip(spark)
    activate(spark)
    said = spark.conf.get("spark.default.parallelism", None)
    spark.dataSource.register(source_of(int(said) if said else None))


def activate(spark: Any) -> None:
    """Make a session the active session of this thread.

    Spark looks up sinks written in Python in the active session. For a session of Spark Connect, nothing is done.
    """
    if "connect" not in type(spark).__module__:
        sessions = getattr(spark._jvm, "org.apache.spark.sql.classic.SparkSession")
        sessions.setActiveSession(spark._jsparkSession)


def _share_zip(spark: SparkSession) -> None:
    """Put the zip that contains this package on the path of the driver's Python processes.

    The process that plans a streaming query gets no --py-files, and would not find the package.
    """
    root = str(Path(__file__).parents[2])
    if os.path.isfile(root) and "connect" not in type(spark).__module__:
        spark.sparkContext.environment.setdefault("PYTHONPATH", root)


def session(app_name: str = "pyjs", master: str = "local[*]", **conf: object) -> SparkSession:
    """Return a Spark session with `jetstream` registered; `conf` overrides the defaults.

    Names of Spark's settings contain dots, so they are passed as `session(**{"spark.ui.enabled": "true"})`. If a
    session already exists, it gets the settings that can still change, and is returned.

    Raises:
        SparkMissing: pyspark, pyarrow, or Java 17 or newer is missing.
    """
    made = make(app_name, master, conf)
    register(made)
    return made


def make(app_name: str, master: str, conf: Mapping[str, object]) -> SparkSession:
    """Return a Spark session; `conf` overrides the default settings.

    Under spark-submit, the session has the master of the submission, and `master` is ignored.

    Raises:
        SparkMissing: pyspark, pyarrow, or Java 17 or newer is missing.
    """
    if master.startswith(CONNECT):
        return _connected(master, conf)
    check_installed()
    from pyspark.sql import SparkSession

    is_submitted = SUBMITTED in os.environ
    settings: dict[str, object] = dict(EVERYWHERE)
    if master.startswith("local") and not is_submitted:
        # Workers must run the Python of this process, which has pyarrow and this package.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings |= {**LOCAL, "spark.sql.shuffle.partitions": str(cores_of(master))}
    builder = SparkSession.builder.appName(app_name)
    if not is_submitted:
        builder = builder.master(master)
    for name, value in {**settings, **conf}.items():
        builder = builder.config(name, _text(value))
    return builder.getOrCreate()


def _connected(remote: str, conf: Mapping[str, object]) -> SparkSession:
    """Return a session of the Spark Connect server at `remote`.

    A setting in `conf` is applied only if the server allows it to be changed. Java is not needed on this machine.

    Raises:
        SparkMissing: a package is missing.
    """
    check_packages()
    if importlib.util.find_spec("grpc") is None:
        raise SparkMissing(
            "Spark Connect needs the package grpcio, among others; pip install 'pyspark[connect]'"
        )
    from pyspark.sql import SparkSession

    made = SparkSession.builder.remote(remote).getOrCreate()
    for name, value in conf.items():
        if made.conf.isModifiable(name):  # the server determines the others
            made.conf.set(name, _text(value))
    return made


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def cores_of(master: str) -> int:
    """Return the number of tasks that a local master, such as local[4], runs at the same time."""
    said = re.match(r"local\[(\d+)", master)
    if said or master == "local":
        return int(said[1]) if said else 1
    # sched_getaffinity does not exist on macOS
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_installed(master: str = "") -> None:
    """Check the Python packages and, unless `master` is a Spark Connect server, Java.

    Raises:
        SparkMissing: a package or Java is missing, or its version is not supported.
    """
    check_packages()
    if not master.startswith(CONNECT):
        check_java()


def check_packages() -> None:
    """Raise SparkMissing if pyspark or pyarrow is missing, or pyspark is older or newer than supported."""
    for name in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(name) is None:
            raise SparkMissing(f"the package {name} is not installed; {INSTALL}")
    import pyspark

    version = tuple(int(part) for part in re.findall(r"\d+", pyspark.__version__)[:2])
    if not PYSPARK_MIN <= version < PYSPARK_BELOW:
        raise SparkMissing(f"pyspark {pyspark.__version__} is installed, this needs >=4.2,<4.4; {INSTALL}")


def check_java() -> None:
    """Raise SparkMissing if Spark cannot find Java 17 or newer."""
    home = os.environ.get("JAVA_HOME")
    program = os.path.join(home, "bin", "java") if home else shutil.which("java")
    where = f"JAVA_HOME={home}" if home else "PATH"
    advice = "install Java 17 or newer (Debian: apt install openjdk-17-jre-headless) or set JAVA_HOME"
    if program is None or not os.path.exists(program):
        raise SparkMissing(f"Spark needs Java, and there is none in {where}; {advice}")
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=JAVA_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SparkMissing(f"{program} -version does not run ({error}); {advice}") from None
    said = done.stderr + done.stdout
    version = java_version(said)
    if version is None:
        first = (said.splitlines() or ["nothing"])[0]
        raise SparkMissing(f"{program} -version says {first!r}, which names no version; {advice}")
    if version < JAVA_MIN:
        raise SparkMissing(f"{program} is Java {version}; {advice}")


def java_version(said: str) -> int | None:
    """Return the major version in the output of `java -version`, or None if it has none."""
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(match[1]) if match else None
