from __future__ import annotations

import pytest
from tests.unit.config.conftest import Load

from pyjs.config.options import NS_PER_S


@pytest.mark.parametrize(
    ("text", "ns"),
    [("5", 5 * NS_PER_S), ("1.5", 3 * NS_PER_S // 2), ('"500ms"', NS_PER_S // 2), ("5s", 5 * NS_PER_S)],
)
def test_the_auth_timeout_is_seconds_or_a_duration(load: Load, text: str, ns: int) -> None:
    options = load(f"authorization {{timeout: {text}}}")
    assert options.authorization.timeout_ns == ns
    assert options.warnings.mistakes == ()
