"""Files that pipelines write beside their data, on a local disk or in any file system of pyarrow.

This module uses neither streams nor Spark. A root is a folder, or a URI (s3://, hdfs://, gs://).
"""

from __future__ import annotations

import importlib.util
import os
from typing import Any

from pyjs_spark.datasource.sessions import INSTALL
from pyjs_spark.errors import OptionError, SparkMissing


def file_system(root: str) -> tuple[Any, str]:
    """Return the file system of a root, and the root's path in it.

    Raises:
        OptionError: pyarrow has no file system for the root.
        SparkMissing: pyarrow is not installed.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise SparkMissing(f"the package pyarrow is not installed; {INSTALL}")
    from pyarrow import fs

    if "://" not in root:
        return fs.LocalFileSystem(), os.path.abspath(root)
    try:
        found, path = fs.FileSystem.from_uri(root)
    except ValueError as error:
        raise OptionError(f"folder {root}: pyarrow has no file system for it ({error})") from None
    return found, path.rstrip("/")


def uri(root: str, path: str) -> str:
    """Return a path in a root's file system, in the form that Spark needs."""
    scheme, _, _ = root.partition("://")
    return f"{scheme}://{path}" if "://" in root else f"file://{path}"


def sync(system: Any, path: str) -> None:
    """Sync a file of a local file system; other file systems sync their files themselves."""
    if system.type_name == "local":
        with open(path, "rb") as file:
            os.fsync(file.fileno())


def write_text(root: str, name: str, text: str) -> None:
    """Write a file below the root, atomically; create the root if it is missing."""
    system, base = file_system(root)
    system.create_dir(base, recursive=True)
    with system.open_output_stream(f"{base}/{name}.new") as out:
        out.write(text.encode())
    system.move(f"{base}/{name}.new", f"{base}/{name}")
