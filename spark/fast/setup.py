"""The build of the wheel pyjs-spark-fast: its modules, and the options of Cython and of the compiler."""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCES = Path("src", "pyjs_spark_fast")
DIRECTIVES = {"language_level": 3, "initializedcheck": False, "cdivision": True}

modules = [
    Extension(
        f"{SOURCES.name}.{path.stem}",
        [str(path)],
        include_dirs=[str(SOURCES)],
        extra_compile_args=["-O2", "-fno-strict-aliasing"],
    )
    for path in sorted(SOURCES.glob("*.pyx"))
]
setup(
    ext_modules=cythonize(
        modules, build_dir="build/cython", compiler_directives=DIRECTIVES, include_path=["src"]
    )
)
