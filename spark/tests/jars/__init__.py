"""Jars that tests need; Maven downloads them once into build/jars."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.style.tree import ROOT

HERE = Path(__file__).parent


def jars(name: str, *settings: str) -> list[Path]:
    """Return the jars of `<name>.xml`; skip the test if Maven is not installed."""
    folder = ROOT / "build" / "jars" / "-".join((name, *settings)).replace("=", "-")
    ready = folder / ".ready"
    if not ready.exists() or ready.stat().st_mtime < (HERE / f"{name}.xml").stat().st_mtime:
        maven = shutil.which("mvn")
        if maven is None:
            pytest.skip("mvn is not installed (Debian: apt install maven), and brings the jars")
        command = [
            maven, "-q", "-B", "-f", str(HERE / f"{name}.xml"), "dependency:copy-dependencies",
            "-DincludeScope=runtime", f"-DoutputDirectory={folder}", *(f"-D{each}" for each in settings),
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, text=True)
        ready.touch()
    return sorted(folder.glob("*.jar"))
