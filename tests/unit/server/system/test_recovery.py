"""The progress of a recovery, with a clock that passes a second at each step."""

from __future__ import annotations

from pathlib import Path

from tests.support.node import options_with_store

from pyjs.base.clock import NS_PER_S
from pyjs.base.log import ListLog
from pyjs.server.system.recovery import RecoveryProgress
from pyjs.testing import VirtualNode


class StatusLog(ListLog):
    """A log that keeps each status; `shows_status` is that of a terminal."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.shows_status = terminal
        self.shown: list[str] = []

    def status(self, text: str) -> None:
        self.shown.append(text)


def recovered(root: Path, log: StatusLog, seconds: int) -> StatusLog:
    """Recover a store with three streams, with that many seconds between two steps."""
    with VirtualNode(options_with_store(root)) as node:
        client = node.client()
        for number in range(3):
            body = b'{"name":"S%d","subjects":["s%d"]}' % (number, number)
            client.request(b"$JS.API.STREAM.CREATE.S%d" % number, body)
    again = VirtualNode(options_with_store(root))
    progress = RecoveryProgress(again.node, log)
    for _ in again.node.start_jetstream_steps():
        again.clock.advance(seconds * NS_PER_S)
        progress.step()
    progress.end()
    again.node.stop()
    return log


def test_a_terminal_shows_a_bar_until_all_streams_are_there(tmp_path: Path) -> None:
    log = recovered(tmp_path, StatusLog(terminal=True), seconds=2)

    assert log.lines == []
    assert log.shown[0] == f"[{'#' * 9}{'-' * 21}]  33 %  1 of 3 streams recovered"
    assert log.shown[-2] == f"[{'#' * 30}] 100 %  3 of 3 streams recovered"
    assert log.shown[-1] == ""


def test_another_log_gets_a_line_every_ten_seconds(tmp_path: Path) -> None:
    log = recovered(tmp_path, StatusLog(terminal=False), seconds=10)

    assert log.lines[0] == ("INF", "  Recovered 1 of 3 streams")
    assert log.lines[-1] == ("INF", "  Recovered 3 of 3 streams")


def test_a_short_recovery_shows_nothing(tmp_path: Path) -> None:
    log = recovered(tmp_path, StatusLog(terminal=True), seconds=0)

    assert log.lines == []
    assert log.shown == [""]
