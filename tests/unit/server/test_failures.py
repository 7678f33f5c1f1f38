"""Failures are reported, even if there are hardly any resources left for the report."""

from __future__ import annotations

import sys

import pytest

from pyjs.base.log import ListLog
from pyjs.server.failures import log_exception


def test_an_exception_is_logged_with_where_it_came_from() -> None:
    log = ListLog()
    try:
        raise ValueError("seven")
    except ValueError as error:
        log_exception(log, "It failed", error)
    assert log.lines[0][1].startswith("It failed\nTraceback")
    assert log.lines[0][1].endswith("ValueError: seven")


def test_an_exception_is_logged_when_no_module_can_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "traceback", None)
    log = ListLog()

    log_exception(log, "It failed", OSError(24, "Too many open files"))

    assert log.lines == [("ERR", "It failed\nOSError: [Errno 24] Too many open files")]
