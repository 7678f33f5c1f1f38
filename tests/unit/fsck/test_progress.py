from __future__ import annotations

import io

import pytest

from pyjs.base.clock import NS_PER_S, VirtualClock
from pyjs.fsck.progress import Bar, Lines, Progress, bar_text, percent_of, progress_on


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_and_a_file_lines() -> None:
    clock = VirtualClock()

    assert isinstance(progress_on(Terminal(), clock, "p", quiet=False), Bar)
    assert isinstance(progress_on(io.StringIO(), clock, "p", quiet=False), Lines)
    assert type(progress_on(Terminal(), clock, "p", quiet=True)) is Progress


def test_a_line_is_written_every_ten_seconds() -> None:
    out, clock = io.StringIO(), VirtualClock()
    lines = Lines(out, clock, "pyjs-server fsck")

    lines.begin(4096)
    for _ in range(25):
        clock.advance(NS_PER_S)
        lines.advance(100)
    lines.end()

    assert out.getvalue() == (
        "pyjs-server fsck: 24 %, 1000 B of 4.0 KiB\npyjs-server fsck: 48 %, 2.0 KiB of 4.0 KiB\n"
    )


def test_short_work_writes_no_line() -> None:
    out, clock = io.StringIO(), VirtualClock()
    lines = Lines(out, clock, "p")

    lines.begin(10)
    clock.advance(9 * NS_PER_S)
    lines.advance(10)
    lines.end()

    assert out.getvalue() == ""


@pytest.mark.parametrize(
    ("done", "whole", "percent"), [(0, 0, 100), (0, 9, 0), (8, 9, 88), (9, 9, 100), (99, 9, 100)]
)
def test_percents_are_whole_and_never_more_than_100(done: int, whole: int, percent: int) -> None:
    assert percent_of(done, whole) == percent
    assert bar_text(done, whole).endswith(f"{percent:3d} %")
