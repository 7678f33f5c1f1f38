"""The compiled loops of store_load.pyx, built like the server's modules into build/ and imported from there.

They access the store's structures, so they are rebuilt when one of its .pxd files changes (src/pyjs_build.py).
"""

from __future__ import annotations

import sys
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SOURCE = HERE / "store_load.pyx"
BUILD = ROOT / "build" / "benchmarks"


def load_module() -> ModuleType:
    """Return the module store_load, compiled from its present source.

    Raises:
        SystemExit: there is no C compiler.
    """
    sys.path.insert(0, str(ROOT / "src"))
    from pyjs_build import source_hash

    folder = BUILD / source_hash(SOURCE, ROOT / "src")
    built = folder / f"store_load{EXTENSION_SUFFIXES[0]}"
    if not built.exists():
        compile_into(folder)
    spec = spec_from_file_location("store_load", built)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_into(folder: Path) -> None:
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    from pyjs_build import COMPILE_ARGS, DIRECTIVES

    extension = Extension(
        "store_load",
        [str(SOURCE)],
        include_dirs=[str(ROOT / "src" / "pyjs" / "base")],
        extra_compile_args=COMPILE_ARGS,
    )
    made = cythonize(
        [extension],
        force=True,
        quiet=True,
        build_dir=str(folder / "c"),
        compiler_directives=DIRECTIVES,
        include_path=[str(ROOT / "src")],
    )
    command = build_ext(Distribution({"ext_modules": made}))
    command.build_lib, command.build_temp = str(folder), str(folder / "o")
    command.ensure_finalized()
    command.run()
