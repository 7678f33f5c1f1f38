"""Build of the compiled modules: finds every .pyx, holds the compiler directives, stamps source hashes.

Used by pip through pyproject.toml (`cmdclass`) and by `make build` in place. Not installed.

Each module is compiled with PYJS_SOURCE_HASH, a digest of its own .pyx and of every .pxd and .h of the tree
(a changed .pxd moves vtable slots of all its users). `tests/style/test_build.py` compares it with the tree, so
that no test runs on stale code.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from setuptools import Extension
from setuptools.command.build_ext import build_ext

SRC = Path("src")
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
    "embedsignature": False,
    "binding": True,
    "profile": False,
    "freethreading_compatible": False,
}
COMPILE_ARGS = ["-O2", "-fno-strict-aliasing", "-Wno-unused-function", "-Wno-unreachable-code"]
NO_COMPILER = """
pyjs-server has compiled modules and no C compiler (or no Python headers) was found.
Install them and run pip again:
    Debian, Ubuntu:  apt install gcc python3-dev
    Fedora, RHEL:    dnf install gcc python3-devel
    Alpine:          apk add gcc musl-dev python3-dev
    macOS:           xcode-select --install
"""


def pyx_files(src: Path = SRC) -> list[Path]:
    """Return every compiled module's source below `src`, sorted."""
    return sorted(src.rglob("*.pyx"))


def module_name(pyx: Path, src: Path = SRC) -> str:
    """Return the dotted module name of `pyx`."""
    return ".".join(pyx.relative_to(src).with_suffix("").parts)


def source_hash(pyx: Path, src: Path = SRC) -> str:
    """Return the digest that the module compiled from `pyx` carries as SOURCE_HASH."""
    digest = hashlib.sha256(pyx.read_bytes())
    for shared in sorted([*src.rglob("*.pxd"), *src.rglob("*.h")]):
        digest.update(shared.relative_to(src).as_posix().encode())
        digest.update(shared.read_bytes())
    return digest.hexdigest()[:16]


class BuildExt(build_ext):
    """build_ext that cythonizes the whole tree, in parallel, and explains a missing compiler."""

    def finalize_options(self) -> None:
        from Cython.Build import cythonize

        jobs = os.cpu_count() or 1
        extra = os.environ.get("PYJS_CFLAGS", "").split()
        extensions = [
            Extension(
                module_name(pyx),
                [str(pyx)],
                depends=[str(path) for path in [*SRC.rglob("*.pxd"), *SRC.rglob("*.h")]],
                include_dirs=[str(SRC / "pyjs" / "base")],
                define_macros=[("PYJS_SOURCE_HASH", f'"{source_hash(pyx)}"')],
                extra_compile_args=[*COMPILE_ARGS, *extra],
                extra_link_args=[*([] if sys.platform == "darwin" else ["-Wl,-s"]), *extra],
            )
            for pyx in pyx_files()
        ]
        self.distribution.ext_modules = cythonize(
            extensions,
            nthreads=jobs,
            build_dir=os.environ.get("PYJS_BUILD_DIR", "build/cython"),
            compiler_directives=DIRECTIVES,
            include_path=[str(SRC)],
        )
        super().finalize_options()
        self.parallel = self.parallel or jobs

    def run(self) -> None:
        """Compile everything; without a compiler end with the package to install."""
        try:
            super().run()
        except Exception as error:
            if "command" in str(error) and "failed" in str(error) or "Python.h" in str(error):
                sys.stderr.write(NO_COMPILER)
            raise

    def get_source_files(self) -> list[str]:
        """Name everything the sdist needs besides the Python packages."""
        wanted = [*SRC.rglob("*.pyx"), *SRC.rglob("*.pxd"), *SRC.rglob("*.pyi"), *SRC.rglob("*.h")]
        return [*map(str, wanted), str(SRC / "pyjs_build.py")]
