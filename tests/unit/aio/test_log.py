"""The server's log lines as records of Python's logging."""

from __future__ import annotations

import logging

import pytest

from pyjs.aio.log import NAME, StandardLog


def test_lines_are_records_of_the_logger(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, NAME)
    log = StandardLog(None, trace=True)

    log.info("ready, 100 %s")
    log.warn("look")
    log.error("failed")
    log.fatal("ends")
    log.debug("a connection")
    log.trace("a line")

    levels = [logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL, logging.DEBUG, logging.DEBUG]
    assert [record.levelno for record in caplog.records] == levels
    assert caplog.records[0].getMessage() == "ready, 100 %s"


def test_details_are_logged_when_somebody_wants_them() -> None:
    logger = logging.getLogger("quiet")
    logger.setLevel(logging.INFO)

    assert not StandardLog(logger).debug_on
    assert not StandardLog(logger).trace_on
    assert StandardLog(logger, debug=True).debug_on
    logger.setLevel(logging.DEBUG)
    assert StandardLog(logger).debug_on
