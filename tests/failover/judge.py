"""The checker of histories: Porcupine, which checks linearizability, in Go (porcupine/main.go)."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.failover.history import History

SOURCE = Path(__file__).with_name("porcupine")
PROGRAM = SOURCE.parents[2] / "build" / "bin" / "porcupine"


class NoJudge(Exception):
    """The checker cannot be built here; the text has the reason."""


class Judge:
    """The program, and the directory for histories that are not linearizable."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._program = build()

    def judge(self, history: History, name: str) -> dict[str, Any]:
        """Return the counts, the registers without an explanation, and the path of the history.

        The file at this path is removed if every register has an explanation.
        """
        path = self._directory / f"{name}.jsonl"
        history.write(path)
        with path.open("rb") as lines:
            done = subprocess.run(
                [str(self._program), str(self._directory)], stdin=lines, capture_output=True, check=True
            )
        verdict: dict[str, Any] = json.loads(done.stdout)
        if not (verdict["illegal"] or verdict["undecided"]):
            path.unlink()
        return verdict | {"history": str(path)}


def build() -> Path:
    """Build the program with Go, which fetches Porcupine the first time; return its path."""
    if shutil.which("go") is None:
        raise NoJudge("there is no go")
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    command = ["go", "build", "-C", str(SOURCE), "-o", str(PROGRAM), "."]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise NoJudge(f"go build: {done.stderr.strip()}")
    return PROGRAM
