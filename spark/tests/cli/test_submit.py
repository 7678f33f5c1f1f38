"""`pyjs-pipeline submit-args`: the packed files, and the printed line."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pyjs_spark.cli import submit
from pyjs_spark.cli.main import main

MASTER = "spark://127.0.0.1:7077"


def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> list[str]:
    """Return the words of the printed line after the settings: the application and its arguments."""
    assert main(["submit-args", *argv]) == 0
    words = shlex.split(capsys.readouterr().out)
    return words[words.index("--py-files") + 2 :]


def test_the_zip_holds_the_python_files_and_imports_alone(tmp_path: Path) -> None:
    path, application = submit.package(str(tmp_path / "out"))

    names = zipfile.ZipFile(path).namelist()
    assert {"pyjs_spark/__init__.py", "pyjs_spark/lake/archive.py", "pyspark_jetstream/__init__.py"} <= {
        *names
    }
    assert all(name.endswith(".py") for name in names)
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-S", application, "--help"],
        env=env,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.stdout.startswith("usage: pyjs-pipeline"), done.stderr


def test_the_same_files_make_the_same_zip(tmp_path: Path) -> None:
    first, second = (Path(submit.package(str(tmp_path / name))[0]) for name in "ab")

    assert first.read_bytes() == second.read_bytes()
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [submit.APPLICATION, submit.ZIP]


def test_the_line_of_a_pipeline_on_the_command_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("deltalake")
    argv = ["ORDERS", "/lake", "-s", "nats://a:1", "-o", "subjects=orders.*", "--format", "delta"]

    words = printed(capsys, *argv, "--master", MASTER, "--to", str(tmp_path))

    assert words == [
        *("--conf", f"spark.pyspark.python={sys.executable}", str(tmp_path / submit.APPLICATION)),
        *("archive", "ORDERS", "/lake", "--format", "delta", "--rows-per-file", "500000"),
        *("-o", "servers=nats://a:1", "-o", "subjects=orders.*"),
    ]


def test_the_line_of_a_file_has_its_master_and_its_settings(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(
        f'[pipeline]\nkind = "archive"\nstream = "A"\ntarget = "/lake"\nmaster = "{MASTER}"\n'
        '[spark]\n"spark.pyspark.python" = "./env/bin/python"\n"spark.driver.memory" = "2g"\n'
    )

    assert main(["submit-args", "-c", str(file), "--to", str(tmp_path), "--json"]) == 0
    words = json.loads(capsys.readouterr().out)["command"]

    assert words[1:] == [
        *("--master", MASTER, "--py-files", str(tmp_path / submit.ZIP)),
        *("--conf", "spark.pyspark.python=./env/bin/python", "--conf", "spark.driver.memory=2g"),
        *(str(tmp_path / submit.APPLICATION), "run", "-c", str(file)),
    ]


def test_the_line_of_an_application(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    app = tmp_path / "job.py"
    app.write_text("")

    words = printed(capsys, "--app", str(app), "--master", MASTER, "--to", str(tmp_path))

    assert words[2:] == [str(app)]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["ORDERS", "/lake"], "--master local[*] is no cluster; name one, such as spark://host:7077"),
        (["--master", MASTER], "archive needs stream"),
        (["--app", "none.py", "--master", MASTER], "--app none.py: there is no such file"),
        (["A", "/lake", "--app", "x.py"], "--app x.py is in place of a pipeline"),
    ],
)
def test_what_makes_no_line_is_refused_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, argv: list[str], said: str
) -> None:
    assert main(["submit-args", *argv, "--to", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
