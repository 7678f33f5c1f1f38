"""A few connections: each is served and uses one descriptor until it is closed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "connections.py"


def test_a_small_crowd_is_served_and_forgotten(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    words = ["--idle", "300", "--active", "30", "--seconds", "0.3", "--only", "ours", "--json", str(found)]
    done = subprocess.run(
        [sys.executable, SCRIPT, *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(found.read_text())["ours"]
    assert 0.98 < figures["descriptors of each"] < 1.02
    assert figures["memory of each, kB"] < 100
    assert figures["least served of the active, share of the median"] > 0
