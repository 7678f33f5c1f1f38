"""One line in the summary where the engine is missing; a failure where it is required."""

from __future__ import annotations

import pytest
from raft.tests.conftest import REASON, is_here, required


def test_the_engine_is_here() -> None:
    if not is_here() and not required():
        pytest.skip(REASON)
    assert is_here(), REASON
