"""The checkers of histories detect losses, moved messages, wrong refusals, and stale reads."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.failover.history import FOREVER_NS, UNKNOWN, History, Operation
from tests.failover.judge import PROGRAM, Judge


def write(value: str, seq: int, call: int, back: int = FOREVER_NS, expect: int = UNKNOWN) -> Operation:
    """Return a write that took effect, or a write without an answer if `seq` is UNKNOWN."""
    done = seq != UNKNOWN
    return Operation("r", "write", call, call, value, expect, back, seq, done)


def refused(value: str, expect: int, last: int, call: int, back: int) -> Operation:
    return Operation("r", "write", call, call, value, expect, back, last)


def read(value: str, seq: int, call: int, back: int, kind: str = "read") -> Operation:
    return Operation("r", kind, call, call, value, back=back, seq=seq, done=True)


def completed(stored: dict[str, int], *operations: Operation) -> History:
    history = History()
    history.operations += operations
    history.complete({"r": stored}, 100)
    return history


@pytest.mark.parametrize(
    ("stored", "operation", "violation"),
    [
        ({}, write("a", 1, 0, 1), "acked lost"),
        ({"a": 2}, write("a", 1, 0, 1), "moved"),
        ({"a": 1}, refused("a", 5, 0, 0, 1), "refused and stored"),
        ({"a": 1}, read("b", 1, 0, 1, "loose"), "read, never stored"),
    ],
)
def test_what_contradicts_the_end_is_a_violation(
    stored: dict[str, int], operation: Operation, violation: str
) -> None:
    assert set(completed(stored, operation).found) == {violation}


def test_the_end_decides_what_has_become_of_a_write_without_an_answer() -> None:
    history = completed({"a": 3}, write("a", UNKNOWN, 0), write("b", UNKNOWN, 1))
    assert not history.found
    done, end = history.operations
    assert (done.value, done.seq, done.done, done.back) == ("a", 3, True, FOREVER_NS)
    assert (end.kind, end.value, end.seq) == ("read", "a", 3)


@pytest.mark.skipif(not (PROGRAM.exists() and shutil.which("go")), reason="built by make cluster-linear")
@pytest.mark.parametrize(
    ("operations", "illegal"),
    [
        ([write("a", 1, 0, 1), read("a", 1, 2, 3), refused("b", 0, 1, 4, 5)], []),
        ([write("a", 1, 0, 1), read("", 0, 2, 3)], ["r"]),  # a stale read
        # a value that was read, and later missing
        ([write("a", 1, 0, 9), read("a", 1, 2, 3), read("", 0, 4, 5)], ["r"]),
        ([write("a", 1, 0, 1), write("b", 2, 2, 3, expect=0)], ["r"]),  # the write expected another sequence
        # refused before the named sequence existed
        ([write("a", 1, 0, 9), refused("b", 0, 1, 2, 3), read("", 0, 4, 5)], ["r"]),
        # the write took effect late
        ([write("a", UNKNOWN, 0), read("", 0, 10, 11), read("a", 1, 12, 13)], []),
    ],
)
def test_a_history_that_no_order_explains_is_illegal(
    tmp_path: Path, operations: list[Operation], illegal: list[str]
) -> None:
    writes = [each for each in operations if each.kind == "write" and (each.done or each.back == FOREVER_NS)]
    stored = {each.value: each.seq if each.done else 1 for each in writes}
    history = completed(stored, *operations)
    assert Judge(tmp_path).judge(history, "h")["illegal"] == illegal
