"""The project's files, for the style tests: those that are in git or could be added, and the modules among them."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE_SUFFIXES = (".py", ".pyx", ".pxd")


def project_files(root: Path = ROOT) -> list[Path]:
    """Return every file that is or may be committed, sorted; all files if there is no git."""
    ask = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
    git = subprocess.run(ask, cwd=root, capture_output=True, text=True, check=False)
    if git.returncode == 0:
        names = [Path(root, name) for name in git.stdout.split("\0") if name]
        return sorted(path for path in names if path.is_file())
    return sorted(path for path in root.rglob("*") if path.is_file())


def source_files(folder: Path) -> list[Path]:
    """Return the .py, .pyx and .pxd files below `folder`, sorted."""
    return sorted(path for path in folder.rglob("*") if path.suffix in SOURCE_SUFFIXES)


def module_name(path: Path, src: Path) -> str:
    """Return the dotted module name of a source file below `src`."""
    parts = path.relative_to(src).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
