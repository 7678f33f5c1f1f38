"""The comparison of two recordings: values are masked, then everything must be equal; differences are listed.

Types count (1 is not 1.0 and not true), and so does the order of frames, header fields and arrays. The order of the
members of JSON objects does not.
"""

from __future__ import annotations

import json
from typing import Any

from .masks import Masker


def differences(left: dict[str, Any], right: dict[str, Any], script_text: str) -> list[str]:
    """Return one line per difference of two recordings of the same script; none means equal."""
    return masked_differences(Masker(script_text).recording(left), Masker(script_text).recording(right))


def masked_differences(left: dict[str, Any], right: dict[str, Any]) -> list[str]:
    """Return one line per difference of two recordings that are already masked; none means equal."""
    found: list[str] = []
    _compare("", left, right, found)
    return found


def value_differences(left: Any, right: Any, script_text: str) -> list[str]:
    """Return one line per difference of two JSON values that clients of the two servers printed."""
    found: list[str] = []
    _compare("", Masker(script_text).value(left), Masker(script_text).value(right), found)
    return found


def _compare(path: str, left: Any, right: Any, found: list[str]) -> None:
    if type(left) is not type(right):
        found.append(f"{path}: {_shown(left)} | {_shown(right)}")
    elif isinstance(left, dict):
        for key in sorted(left.keys() | right.keys()):
            _compare_member(f"{path}.{key}", key, left, right, found)
    elif isinstance(left, list):
        for index in range(min(len(left), len(right))):
            _compare(f"{path}[{index}]", left[index], right[index], found)
        for index in range(len(right), len(left)):
            found.append(f"{path}[{index}]: {_shown(left[index])} | (nothing)")
        for index in range(len(left), len(right)):
            found.append(f"{path}[{index}]: (nothing) | {_shown(right[index])}")
    elif left != right:
        found.append(f"{path}: {_shown(left)} | {_shown(right)}")


def _compare_member(
    path: str, key: str, left: dict[str, Any], right: dict[str, Any], found: list[str]
) -> None:
    if key not in left:
        found.append(f"{path}: (nothing) | {_shown(right[key])}")
    elif key not in right:
        found.append(f"{path}: {_shown(left[key])} | (nothing)")
    else:
        _compare(path, left[key], right[key], found)


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
