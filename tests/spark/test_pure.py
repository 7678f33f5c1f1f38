"""The package as a zip of its Python files, as --py-files of spark-submit ships it: the pure decoder takes over."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from tests.spark.conftest import arrow_or_skip
from tests.style.tree import ROOT

arrow_or_skip()

SCRIPT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from pyjs_spark import pull; print(pull.Decoder.__module__)"
)


def decoder_in(path: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path)], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or done.stderr


def test_a_zip_of_the_python_files_works_without_the_compiled_module(tmp_path: Path) -> None:
    shipped = tmp_path / "pyjs_spark.zip"
    with zipfile.ZipFile(shipped, "w") as archive:
        for path in (ROOT / "src" / "pyjs_spark").rglob("*.py"):
            archive.write(path, path.relative_to(ROOT / "src"))

    assert decoder_in(shipped) == "pyjs_spark.wire"


def test_the_compiled_module_is_taken_where_it_is() -> None:
    assert decoder_in(ROOT / "src") == "pyjs_spark._wire"


SINK_SCRIPT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from pyjs_spark import delivery, publish; "
    "print(delivery.frame_rows.__module__, publish.Acks.__module__)"
)


def test_a_sink_works_with_and_without_its_compiled_module(tmp_path: Path) -> None:
    shipped = tmp_path / "pyjs_spark.zip"
    with zipfile.ZipFile(shipped, "w") as archive:
        for path in (ROOT / "src" / "pyjs_spark").rglob("*.py"):
            archive.write(path, path.relative_to(ROOT / "src"))

    for path, module in ((shipped, "pyjs_spark.frames"), (ROOT / "src", "pyjs_spark._frames")):
        command = [sys.executable, "-c", SINK_SCRIPT, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env={})
        assert done.stdout.split() == [module, module], done.stderr
