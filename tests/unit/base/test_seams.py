"""The interfaces that tests replace: clock, random numbers, log, names."""

from __future__ import annotations

import pytest

from pyjs.base.clock import Clock, VirtualClock
from pyjs.base.log import ListLog
from pyjs.base.nuid import nuid, token
from pyjs.base.rng import Rng, SeededRng


def test_the_virtual_clock_moves_only_when_told() -> None:
    clock = VirtualClock(5)
    assert clock.now_ns() == 5
    clock.advance(7)
    assert clock.now_ns() == 12


def test_a_seam_without_a_source_says_so() -> None:
    with pytest.raises(NotImplementedError, match="Clock subclass"):
        Clock().now_ns()
    with pytest.raises(NotImplementedError, match="Rng subclass"):
        Rng().randbytes(1)


def test_the_same_seed_gives_the_same_bytes() -> None:
    a, b = SeededRng(3), SeededRng(3)
    assert a.randbytes(40) + a.randbytes(3) == b.randbytes(43)
    assert SeededRng(4).randbytes(8) != SeededRng(3).randbytes(8)
    assert 0 <= SeededRng(1).below(7) < 7


def test_names_are_base_62_and_unique() -> None:
    rng = SeededRng(1)
    names = {nuid(rng) for _ in range(1000)}
    assert len(names) == 1000
    assert all(len(name) == 22 and name.isalnum() for name in names)
    assert len(token(rng, 8)) == 8


def test_debug_and_trace_lines_are_written_only_when_on() -> None:
    log = ListLog()
    log.debug("a")
    log.trace("b")
    log.debug_on = log.trace_on = True
    log.debug("c")
    log.trace("d")
    log.info("e")
    log.warn("f")
    log.error("g")
    log.fatal("h")
    assert log.lines == [("DBG", "c"), ("TRC", "d"), ("INF", "e"), ("WRN", "f"), ("ERR", "g"), ("FTL", "h")]
