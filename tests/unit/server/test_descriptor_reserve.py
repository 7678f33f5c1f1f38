"""The last descriptors stay for files; the log tells, now and then."""

from __future__ import annotations

import asyncio

import pytest

from pyjs.base.log import ListLog
from pyjs.server import descriptor_reserve
from pyjs.server.descriptor_reserve import DescriptorReserve


@pytest.mark.parametrize(
    ("limit", "fd", "admitted"),
    [
        (40, 34, True),
        (40, 35, False),
        (1024, 991, True),
        (1024, 992, False),
        (-1, 10**6, True),
    ],
)
async def test_a_connection_that_would_take_one_of_the_last_descriptors_is_refused(
    monkeypatch: pytest.MonkeyPatch, limit: int, fd: int, admitted: bool
) -> None:
    monkeypatch.setattr(descriptor_reserve.resource, "getrlimit", lambda which: (limit, limit))
    reserve = DescriptorReserve(asyncio.get_running_loop(), ListLog())

    assert reserve.admits(fd, "Client") is admitted


async def test_a_crowd_that_is_refused_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptor_reserve.resource, "getrlimit", lambda which: (40, 40))
    log = ListLog()
    reserve = DescriptorReserve(asyncio.get_running_loop(), log)

    for _ in range(100):
        reserve.admits(39, "Client")

    ((level, text),) = log.lines
    assert level == "ERR"
    assert text.startswith("Temporary Client Accept Error(too many open files), connections are refused")
