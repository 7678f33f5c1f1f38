"""A server without the consensus engine says how to get it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CODE = """
import sys
sys.modules["pyjs_raft"] = None
try:
    import pyjs.consensus.engine
except ImportError as error:
    print(type(error).__name__, error)
"""


def test_a_missing_engine_is_an_error_with_the_remedy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=True, cwd=Path.cwd()
    )

    assert done.stdout.startswith(
        "EngineMissing the consensus engine (pyjs-raft) is missing: install it with "
    )
    assert 'pip install "pyjs-server[cluster]", or with make cluster in a checkout' in done.stdout
