"""Compiled modules and their sources belong together, and the check of that sees a change."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from tests.conftest import load_build, stale_modules
from tests.style.tree import ROOT

build = load_build(ROOT / "src")
PYX = build.pyx_files(ROOT / "src")


@pytest.mark.parametrize("pyx", PYX, ids=lambda pyx: build.module_name(pyx, ROOT / "src"))
def test_a_compiled_module_carries_the_digest_of_its_source(pyx: Path) -> None:
    module = importlib.import_module(build.module_name(pyx, ROOT / "src"))

    assert Path(str(module.__file__)).suffix == ".so"
    assert module.SOURCE_HASH.decode() == build.source_hash(pyx, ROOT / "src")


def test_no_compiled_file_outlives_its_source() -> None:
    built = (ROOT / "src").rglob("*.so")

    assert [path for path in built if not (path.parent / f"{path.name.partition('.')[0]}.pyx").exists()] == []


@pytest.mark.parametrize("changed", ["pyjs/a.pyx", "pyjs/b.pxd", "pyjs/c.h"])
def test_a_change_of_any_source_makes_the_module_stale(tmp_path: Path, changed: str) -> None:
    package = tmp_path / "pyjs"
    package.mkdir()
    (tmp_path / "pyjs_build.py").write_bytes((ROOT / "src" / "pyjs_build.py").read_bytes())
    for name in ("a.pyx", "b.pxd", "c.h"):
        (package / name).write_text("# first\n")
    digest = build.source_hash(package / "a.pyx", tmp_path)
    (package / "a.cpython-311.so").write_bytes(b"code " + digest.encode() + b" code")
    assert stale_modules(tmp_path) == []

    (tmp_path / changed).write_text("# second\n")

    assert stale_modules(tmp_path) == ["pyjs.a"]
