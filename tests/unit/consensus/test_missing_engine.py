"""A server without the consensus engine explains how to install it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from raft.tests.conftest import REASON, is_here

CODE = """
import sys
sys.modules["pyjs_raft"] = None
try:
    import pyjs.consensus.engine
except ImportError as error:
    print(type(error).__name__, error)
"""


OTHER = """
import pyjs_raft
pyjs_raft.INTERFACE += {change}
try:
    import pyjs.consensus.engine
except ImportError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.skipif(not is_here(), reason=REASON)
@pytest.mark.parametrize(("change", "age"), [(-1, "older"), (1, "newer")])
def test_an_engine_of_another_version_is_an_error_with_the_remedy(change: int, age: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OTHER.format(change=change)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path.cwd(),
    )

    assert done.stdout.startswith(f"EngineMissing the consensus engine (pyjs-raft) is {age} than this server")
    assert "make cluster in a checkout" in done.stdout


def test_a_missing_engine_is_an_error_with_the_remedy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=True, cwd=Path.cwd()
    )

    assert done.stdout.startswith(
        "EngineMissing the consensus engine (pyjs-raft) is missing: install it with "
    )
    assert 'pip install "pyjs-server[cluster]", or with make cluster in a checkout' in done.stdout
