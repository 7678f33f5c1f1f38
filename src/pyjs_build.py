"""Build of the compiled modules: finds every .pyx, holds the compiler directives, stamps source hashes.

Used by pip through pyproject.toml (`cmdclass`) and by `make build` in place, which also compiles the decoders of the
data source for Spark; these have a separate wheel (spark/fast). Not installed.

Each module contains PYJS_SOURCE_HASH (base/stamp.h), a digest of its .pyx, of every .pxd and .h that it includes
(a changed .pxd moves vtable slots of all its users) and of the flags below, and the version of Cython. A module whose
file already has both is not compiled again, regardless of timestamps. tests/conftest.py compares the digests with the
tree, so that no test runs on stale code.

The functions that Cython adds to every module are in one library, SHARED, which has no .pyx file: this saves a fifth
of the compiler's time, and a third of the size of a small module.

Environment: PYJS_CFLAGS adds flags to compiler and linker (the sanitizer build).
"""

from __future__ import annotations

import gc
import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from setuptools import Extension
from setuptools.command.build_ext import build_ext

SRC = Path("src")
FAST = Path("spark/fast/src")
CIMPORT = re.compile(
    r"^\s*(?:from\s+([\w.]+)\s+cimport\s+(\([^)]*\)|[^\n(]*)|cimport\s+([\w.]+))", re.MULTILINE
)
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": True,
    "wraparound": True,
    "initializedcheck": False,
    "cdivision": True,
    "embedsignature": False,
    "auto_pickle": False,  # no object is pickled, and the code for it would take a tenth of the compiler's time
    "binding": True,
    "profile": False,
    "freethreading_compatible": False,
}
SHARED = "pyjs._shared"
# Features that no module uses are left out: memory views alone would add two milliseconds to each start.
SHARING = {
    "shared_utility_qualified_name": SHARED,
    "shared_utility_features_disabled": ["AutoPickle", "MemoryView"],
}
# Thresholds of the garbage collector for Cython. Python's own take a quarter of its time, and save 2 % of its memory.
COLLECTIONS = (100_000, 20, 100)
# These do not change the generated C, so the digests do not contain them.
WARNINGS = {"warn.maybe_uninitialized": True, "warn.unused": True, "warn.multiple_declarators": True}
WARNING = re.compile(r"warning: ([^:]+):")
NO_WARNING = "Unused entry 'genexpr'"  # Cython reports this for every generator expression
MADE = Path("build/cython")  # generated C files, and the warnings of each module
COMPILE_ARGS = ["-O2", "-fno-strict-aliasing", "-g0"]  # Python's own flags ask for -g; a wheel is stripped
STAMP_ARGS = ["-include", str(SRC / "pyjs" / "base" / "stamp.h")]
# Cython's C causes many of these warnings; a reader of the build output cannot fix them.
COMPILE_ARGS += [
    "-Wno-unused-function",
    "-Wno-unreachable-code",
    "-Wno-sign-compare",
    "-Wno-maybe-uninitialized",
]
NO_COMPILER = """
pyjs-server has compiled modules, and this C compiler could not compile a file that includes Python.h:
    {reason}
Install a C compiler and the headers of Python {version}, then run the same command again:
    Debian, Ubuntu:  apt install gcc libc6-dev python3-dev
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


def shared_files(pyx: Path, src: Path = SRC) -> list[Path]:
    """Return the other files compiled into `pyx`: all C headers, and every .pxd that it cimports, even indirectly."""
    found: set[Path] = set()
    look = [pyx, pyx.with_suffix(".pxd")]
    while look:
        path = look.pop()
        if path in found or not path.exists():
            continue
        found.add(path)
        look += [src / name for name in cimported(path.read_text())]
    return sorted([*(found - {pyx}), *headers(src)])


@cache
def cimported(text: str) -> list[str]:
    """Return the paths that the cimports of a source may mean, relative to the root of the modules."""
    names: list[str] = []
    for package, imported, module in CIMPORT.findall(text):
        base = (package or module).replace(".", "/")
        names += [f"{base}.pxd", f"{base}/__init__.pxd"]
        names += [f"{base}/{name}.pxd" for name in re.findall(r"\w+", imported)]
    return names


@cache
def headers(src: Path) -> list[Path]:
    """Return all C headers below `src`, as they were at the first call: searching takes longer than hashing."""
    return list(src.rglob("*.h"))


def source_hash(pyx: Path, src: Path = SRC) -> str:
    """Return the digest that the module compiled from `pyx` must contain."""
    digest = hashlib.sha256(pyx.read_bytes())
    for shared in shared_files(pyx, src):
        digest.update(shared.relative_to(src).as_posix().encode())
        digest.update(shared.read_bytes())
    digest.update(flags())
    return digest.hexdigest()[:16]


def flags() -> bytes:
    """Return the part that all digests share: the directives, and the flags of the compiler."""
    given = [*COMPILE_ARGS, os.environ.get("PYJS_CFLAGS", "")]
    return repr((sorted(DIRECTIVES.items()), sorted(SHARING.items()), given)).encode()


def warnings_file(pyx: Path, src: Path = SRC) -> Path:
    """Return the file with Cython's warnings about `pyx`, for .ci/cython-warnings."""
    return MADE / f"{module_name(pyx, src)}.{source_hash(pyx, src)}.warnings"


@contextmanager
def collected_warnings(sources: Iterable[tuple[Path, Path]]) -> Iterator[None]:
    """Write Cython's warnings about `sources` (each a .pyx and its root) into a file for each.

    Cython's output to standard error is printed when the block ends.
    """
    with tempfile.TemporaryFile("w+") as heard:
        loud = os.dup(2)
        os.dup2(heard.fileno(), 2)  # the worker processes of cythonize write to this descriptor
        try:
            yield
        finally:
            os.dup2(loud, 2)
            os.close(loud)
            heard.seek(0)
            told = [line for line in heard.read().splitlines() if not line.endswith(NO_WARNING)]
            sys.stderr.writelines(f"{line}\n" for line in told)
    lines = [(line, found[1]) for line in told if (found := WARNING.match(line))]
    for pyx, src in sources:
        # A warning about a .pxd belongs to every module that may have read it.
        own = [line for line, path in lines if path == str(pyx) or not path.endswith(".pyx")]
        for old in MADE.glob(f"{module_name(pyx, src)}.*.warnings"):
            old.unlink()
        MADE.mkdir(parents=True, exist_ok=True)
        warnings_file(pyx, src).write_text("".join(f"{line}\n" for line in own))


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect garbage rarely until the block ends, also in processes that start meanwhile."""
    usual = gc.get_threshold()
    gc.set_threshold(*COLLECTIONS)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def translate(extensions: list[Extension], nthreads: int, folder: Path = MADE) -> list[Extension]:
    """Run Cython over `extensions` into `folder`; return them with their C files."""
    from Cython.Build import cythonize

    made: list[Extension] = []
    pyx = [Path(ext.sources[0]) for ext in extensions if ext.name != SHARED]
    # The decoders for Spark do not use SHARED, since their wheel must work without the server's wheel.
    for src, sharing in ((SRC, SHARING), (FAST, {})):
        some = [ext for ext in extensions if Path(ext.sources[0]).is_relative_to(src)]
        sources = [(path, src) for path in pyx if path.is_relative_to(src)]
        with collected_warnings(sources), rare_collections():
            made += cythonize(
                some,
                nthreads=nthreads if len(some) > 1 else 0,
                force=True,
                build_dir=str(folder),
                compiler_directives={**DIRECTIVES, **WARNINGS},
                include_path=[str(SRC), str(FAST)],
                **sharing,
            )
    return made


def extension(pyx: Path, src: Path = SRC) -> Extension:
    """Return the extension for the module compiled from `pyx`, a file below `src`."""
    return stamped(module_name(pyx, src), pyx, source_hash(pyx, src))


def shared_extension() -> Extension:
    """Return the extension for SHARED, whose C file Cython makes without a source."""
    digest = hashlib.sha256(flags()).hexdigest()[:16]
    return stamped(SHARED, SRC.joinpath(*SHARED.split(".")).with_suffix(".c"), digest)


def stamped(name: str, source: Path, digest: str) -> Extension:
    """Return an extension whose file will contain the digest and the version of Cython."""
    from Cython import __version__

    extra = os.environ.get("PYJS_CFLAGS", "").split()
    strip = [] if extra or sys.platform == "darwin" else ["-Wl,-s"]
    return Extension(
        name,
        [str(source)],
        include_dirs=[str(SRC / "pyjs" / "base")],
        define_macros=[("PYJS_SOURCE_HASH", f'"{digest} by Cython {__version__}"')],
        extra_compile_args=[*COMPILE_ARGS, *STAMP_ARGS, *extra],
        extra_link_args=[*strip, *extra],
    )


class BuildExt(build_ext):
    """build_ext that compiles changed modules, in parallel, and explains a missing compiler."""

    def finalize_options(self) -> None:
        """Add every .pyx below src/ as a module, and SHARED; in place also those with a separate wheel."""
        self.distribution.ext_modules = [shared_extension(), *(extension(pyx) for pyx in pyx_files())]
        if self.inplace:
            fast = [extension(pyx, FAST) for pyx in pyx_files(FAST)]
            self.distribution.ext_modules += fast
            packages = {ext.name.partition(".")[0] for ext in fast}
            self.distribution.package_dir |= {name: str(FAST / name) for name in packages}
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count() or 1

    def build_extensions(self) -> None:
        """Compile the modules whose file does not contain the digest of their source and this Cython's version."""
        all_extensions = self.extensions
        self.extensions = [ext for ext in all_extensions if not self.is_current(ext)]
        if self.extensions:
            self.demand_compiler()
            self.make_c_files()
            self.force = True  # the digest has decided; timestamps must not override it
            super().build_extensions()
        self.extensions = all_extensions
        self.force = True  # the copy into src/ (--inplace) must not depend on timestamps either

    def is_current(self, ext: Extension) -> bool:
        """Return whether a file in the build folder or in src/ was compiled from this source by this Cython."""
        digest = dict(ext.define_macros)["PYJS_SOURCE_HASH"].strip('"').encode()
        built = Path(self.get_ext_fullpath(ext.name))
        in_place = Path(ext.sources[0]).parent / Path(self.get_ext_filename(ext.name)).name
        if self.force:
            return False
        if built.is_file() and digest in built.read_bytes():
            return True
        if in_place.is_file() and digest in in_place.read_bytes():
            built.parent.mkdir(parents=True, exist_ok=True)
            built.write_bytes(in_place.read_bytes())
            return True
        return False

    def make_c_files(self) -> None:
        """Run Cython over `extensions` and set their C files."""
        c_files = {ext.name: ext.sources for ext in translate(self.extensions, self.parallel)}
        for ext in self.extensions:
            ext.sources = c_files[ext.name]

    def demand_compiler(self) -> None:
        """End with a list of packages to install if a file that includes Python.h does not compile."""
        with tempfile.TemporaryDirectory() as folder:
            probe = Path(folder, "probe.c")
            probe.write_text("#include <Python.h>\nint pyjs_probe(void) { return 0; }\n")
            try:
                self.compiler.compile([str(probe)], output_dir=folder, include_dirs=self.include_dirs)
            except Exception as error:  # setuptools raises errors of several classes
                version = f"{sys.version_info.major}.{sys.version_info.minor}"
                raise SystemExit(NO_COMPILER.format(reason=error, version=version)) from None

    def get_source_files(self) -> list[str]:
        """Return the files that the sdist needs in addition to the Python packages."""
        wanted = [*SRC.rglob("*.pyx"), *SRC.rglob("*.pxd"), *SRC.rglob("*.pyi"), *SRC.rglob("*.h")]
        return [*map(str, wanted), str(SRC / "pyjs_build.py")]
