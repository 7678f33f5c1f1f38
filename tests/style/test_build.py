"""Compiled modules match their sources, and changes of the sources are detected."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from setuptools import Distribution  # type: ignore[import-untyped]
from tests.conftest import load_build, stale_modules
from tests.style.tree import ROOT

build = load_build(ROOT / "src")
SOURCES = (ROOT / build.SRC, ROOT / build.FAST)
PYX = [(src, build.module_name(pyx, src)) for src in SOURCES for pyx in build.pyx_files(src)]


@pytest.mark.parametrize(("src", "name"), PYX, ids=[name for _, name in PYX])
def test_a_compiled_module_carries_the_digest_of_its_source(src: Path, name: str) -> None:
    (built,) = src.joinpath(*name.split(".")).parent.glob(f"{name.rpartition('.')[2]}.*.so")
    pyx = src.joinpath(*name.split(".")).with_suffix(".pyx")

    assert build.source_hash(pyx, src).encode() in built.read_bytes()


def test_no_compiled_file_outlives_its_source() -> None:
    modules = [path.parent / path.name.partition(".")[0] for src in SOURCES for path in src.rglob("*.so")]

    lonely = [path for path in modules if not path.with_suffix(".pyx").exists()]
    assert lonely == [ROOT / build.SRC / build.SHARED.replace(".", "/")]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A tree with one compiled module, its dependencies, and a .pxd that it does not depend on."""
    files = {
        "a.pyx": "from pyjs.b cimport (\n    one,\n    two,\n)\nfrom pyjs cimport c\n",
        "a.pxd": "",
        "b.pxd": "cimport pyjs.deep.d",
        "c.pxd": "",
        "deep/d.pxd": "",
        "other.pxd": "",
        "e.h": "",
    }
    for name, text in files.items():
        path = tmp_path / "pyjs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    digest = build.source_hash(tmp_path / "pyjs" / "a.pyx", tmp_path)
    (tmp_path / "pyjs" / "a.cpython-311.so").write_bytes(b"code " + digest.encode() + b" code")
    return tmp_path


@pytest.mark.parametrize("changed", ["a.pyx", "a.pxd", "b.pxd", "c.pxd", "deep/d.pxd", "e.h"])
def test_a_change_of_anything_that_goes_into_a_module_makes_it_stale(small: Path, changed: str) -> None:
    assert stale_modules(small, build) == []

    with open(small / "pyjs" / changed, "a") as file:
        file.write("# another line")

    assert stale_modules(small, build) == ["pyjs.a"]


def test_a_change_of_something_else_does_not(small: Path) -> None:
    (small / "pyjs" / "other.pxd").write_text("# another line")

    assert stale_modules(small, build) == []


def test_the_hash_of_the_compiled_decoders_is_the_servers() -> None:
    """The server's sources are not available when the wheel of the decoders is built."""
    ours, theirs = ROOT / "src/pyjs/base/xxh64.h", ROOT / "spark/fast/src/pyjs_spark_fast/xxh64.h"

    assert ours.read_bytes() == theirs.read_bytes()


def test_a_module_is_compiled_again_by_another_cython(tmp_path: Path) -> None:
    """Modules compiled by different versions of Cython may not be compatible."""
    command = build.BuildExt(Distribution())
    command.build_lib, command.inplace, command.force, command.ext_map = str(tmp_path), False, False, {}
    ext = build.stamped("a", tmp_path / "src" / "a.pyx", "0123456789abcdef")
    stamp = dict(ext.define_macros)["PYJS_SOURCE_HASH"].strip('"')
    built = Path(command.get_ext_fullpath("a"))

    found = []
    for text in (stamp, stamp[:-1] + "?", stamp.replace("f", "0")):
        built.write_text(f"code {text} code")
        found.append(command.is_current(ext))

    assert "0123456789abcdef by Cython 3." in stamp
    assert found == [True, False, False]


TRANSLATE = """
from pathlib import Path
from pyjs_build import extension, translate, warnings_file
modules = [Path("src/pyjs", name) for name in ("clean.pyx", "unclean.pyx")]
translate([extension(pyx) for pyx in modules], 1, Path("c"))
print([warnings_file(pyx).read_text() for pyx in modules])
"""


def test_the_build_notes_the_warnings_of_each_module(tmp_path: Path) -> None:
    package = tmp_path / "src" / "pyjs"
    package.mkdir(parents=True)
    (package / "clean.pyx").write_text("def one():\n    return 1\n")
    (package / "unclean.pyx").write_text("def one():\n    unread = 2\n    return sum(x for x in (1,))\n")

    command = [sys.executable, "-c", TRANSLATE]
    environment = {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)

    warning = "warning: src/pyjs/unclean.pyx:2:4: Unused entry 'unread'\n"
    assert done.stderr == warning
    assert done.stdout.splitlines()[-1] == str(["", warning])
