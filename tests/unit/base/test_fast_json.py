"""The JSON library comes with its first use, and is then called without a detour."""

from __future__ import annotations

import subprocess
import sys

import orjson
import pytest

from pyjs.base import fast_json


def test_the_library_is_loaded_by_its_first_use() -> None:
    script = (
        "import sys; from pyjs.base import fast_json; print('orjson' in sys.modules, fast_json.is_loaded());"
        "fast_json.dumps({}); print('orjson' in sys.modules, fast_json.is_loaded())"
    )

    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert run.stdout.split() == ["False", "False", "True", "True"]


def test_later_uses_are_those_of_the_library() -> None:
    assert fast_json.loads(fast_json.dumps({"a": 1})) == {"a": 1}
    with pytest.raises(fast_json.JSONDecodeError):
        fast_json.loads(b"{")

    assert vars(fast_json)["loads"] is orjson.loads


def test_nothing_else_is_asked_of_the_library() -> None:
    with pytest.raises(
        AttributeError, match=r"^module 'pyjs.base.fast_json' has no attribute 'OPT_INDENT_2'$"
    ):
        _ = fast_json.OPT_INDENT_2  # type: ignore[attr-defined]
