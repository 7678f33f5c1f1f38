"""The requirements of a session, and the errors if they are missing."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from spark.tests.support.places import PYTHONPATH
from tests.style.tree import ROOT

import pyjs_spark
from pyjs_spark.datasource import sessions
from pyjs_spark.errors import SparkMissing


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program at the place where Java is looked for; the test writes it."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    return program


def says(program: Path, text: str) -> None:
    program.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("nonsense", None),
    ],
)
def test_the_version_of_java_is_read(said: str, version: int | None) -> None:
    assert sessions.java_version(said) == version


def test_a_new_java_will_do(java: Path) -> None:
    says(java, 'openjdk version "21.0.1" 2023-10-17')

    sessions.check_java()


def test_an_old_java_is_told_with_what_to_install(java: Path) -> None:
    says(java, 'java version "1.8.0_402"')

    with pytest.raises(SparkMissing, match="is Java 8; install Java 17 or newer"):
        sessions.check_java()


def test_a_java_that_says_nothing_is_told(java: Path) -> None:
    says(java, "")

    with pytest.raises(SparkMissing, match="which names no version"):
        sessions.check_java()


def test_no_java_is_told_with_where_it_was_looked_for(java: Path) -> None:
    with pytest.raises(SparkMissing, match=f"there is none in JAVA_HOME={java.parent.parent}"):
        sessions.check_java()


def test_a_java_that_does_not_run_is_told(java: Path) -> None:
    java.write_text("no program")
    java.chmod(0o755)

    with pytest.raises(SparkMissing, match="does not run"):
        sessions.check_java()


def test_no_java_at_all_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(SparkMissing, match="there is none in PATH"):
        sessions.check_java()


@pytest.mark.skipif(importlib.util.find_spec("pyspark") is not None, reason="pyspark is installed here")
def test_without_pyspark_a_session_says_what_to_install() -> None:
    with pytest.raises(SparkMissing, match=r"pip install pyjs-spark"):
        pyjs_spark.session()


@pytest.mark.parametrize(("master", "cores"), [("local", 1), ("local[3]", 3), ("local[2,4]", 2)])
def test_cores_are_read_from_the_master(master: str, cores: int) -> None:
    assert sessions.cores_of(master) == cores


def test_all_cores_are_those_of_this_process() -> None:
    assert sessions.cores_of("local[*]") >= 1


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("nats://ann:secret@a:4222,tls://t0ken@b", "nats://*@a:4222,tls://*@b"),
        ("OPTIONS (servers 'nats://ann:pw@a')", "OPTIONS (servers 'nats://*@a')"),
        ("nats://a:4222 b@c", "nats://a:4222 b@c"),
    ],
)
def test_passwords_in_addresses_are_hidden_in_plans(said: str, shown: str) -> None:
    hidden = sessions.EVERYWHERE["spark.sql.redaction.string.regex"]
    java = hidden.replace(
        "(?<=nats://|tls://)", "(?:(?<=nats://)|(?<=tls://))"
    )  # Python's lookbehind needs a fixed length

    assert re.sub(java, "*", said) == shown


def test_a_system_that_tells_no_affinity_has_the_cores_of_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)

    assert sessions.cores_of("local[*]") == 3


def test_importing_the_package_loads_neither_pyspark_nor_pyarrow() -> None:
    loaded = "sys.exit(bool({'pyspark', 'pyarrow'} & set(sys.modules)))"
    script = f"import sys, pyjs_spark, pyjs_spark.options.reading, pyjs_spark.read.planner; {loaded}"
    environment = {"PYTHONPATH": PYTHONPATH}

    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_the_version_of_the_compiled_decoders_is_that_of_the_package() -> None:
    fast = ROOT / "spark" / "fast"
    wanted = f'"pyjs-spark-fast=={pyjs_spark.__version__}"'

    assert wanted in (ROOT / "spark" / "pyproject.toml").read_text()
    assert f'version = "{pyjs_spark.__version__}"' in (fast / "pyproject.toml").read_text()
    assert f'"pyjs-spark=={pyjs_spark.__version__}"' in (fast / "pyproject.toml").read_text()
    assert f'VERSION = "{pyjs_spark.__version__}"' in (fast / "src/pyjs_spark_fast/__init__.py").read_text()


class FakeSpark:
    """A session with the attributes that `register` uses."""

    def __init__(self) -> None:
        self.conf: dict[str, str] = {}
        self.environment: dict[str, str] = {}
        self.sparkContext = self.dataSource = self
        self.registered: list[type] = []
        self._jvm = SimpleNamespace(**{"org.apache.spark.sql.classic.SparkSession": self})
        self._jsparkSession = self
        self.active: list[object] = []

    def setActiveSession(self, session: object) -> None:
        self.active.append(session)

    def register(self, source: type) -> None:
        self.registered.append(source)


@pytest.mark.parametrize("is_zip", [True, False])
def test_a_package_that_came_as_a_zip_is_named_to_the_planner_of_queries(
    is_zip: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    root = tmp_path / "pyjs_spark.zip"
    root.touch() if is_zip else root.mkdir()
    monkeypatch.setattr(sessions, "__file__", str(root / "pyjs_spark/datasource/sessions.py"))
    spark = FakeSpark()

    pyjs_spark.register(spark)  # type: ignore[arg-type]

    assert spark.environment == ({"PYTHONPATH": str(root)} if is_zip else {})
    assert len(spark.registered) == 1
    assert spark.active == [spark]
