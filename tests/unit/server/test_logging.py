import json
import os
import re
from pathlib import Path

import pytest

from pyjs.config.options import LogOptions, Options
from pyjs.server.logging import Logger, configured_logger, is_backup

LINE = re.compile(r"\[\d+\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} \[(INF|WRN|ERR|FTL|DBG|TRC)\] (.*)")


def texts(path: Path) -> list[tuple[str, str]]:
    """Return (level, text) of every line; a line of another form fails the test."""
    found = [LINE.fullmatch(line) for line in path.read_text().splitlines()]
    assert all(found)
    return [(match[1], match[2]) for match in found if match]


def test_a_line_has_pid_time_level_and_text(tmp_path: Path) -> None:
    log = Logger(str(tmp_path / "log"))

    log.info("hello")
    log.warn("look")
    log.error("failed")
    log.fatal("end")

    assert texts(tmp_path / "log") == [("INF", "hello"), ("WRN", "look"), ("ERR", "failed"), ("FTL", "end")]
    assert (tmp_path / "log").read_text().startswith(f"[{os.getpid()}] ")


def test_a_line_in_json_is_an_object(tmp_path: Path) -> None:
    log = Logger(str(tmp_path / "log"), as_json=True, name="worker 2")

    log.warn('a "client"\nsent \x00 \ud800')

    (line,) = (tmp_path / "log").read_text().splitlines()
    fields = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9}Z", fields.pop("time"))
    assert fields == {
        "level": "warn",
        "pid": os.getpid(),
        "worker": "worker 2",
        "text": 'a "client"\nsent \x00 ?',
    }


def test_without_time_a_line_has_only_the_pid_before_the_level(tmp_path: Path) -> None:
    log = Logger(str(tmp_path / "log"), show_time=False)

    log.info("hello")

    assert (tmp_path / "log").read_text() == f"[{os.getpid()}] [INF] hello\n"


def test_utc_and_local_time_differ_by_the_zone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "XYZ-5")
    time.tzset()
    local, utc = Logger(str(tmp_path / "local")), Logger(str(tmp_path / "utc"), utc=True)

    local.info("x")
    utc.info("x")

    monkeypatch.delenv("TZ")
    time.tzset()
    hours = [int(path.read_text().split()[2][:2]) for path in (tmp_path / "local", tmp_path / "utc")]
    assert (hours[0] - hours[1]) % 24 == 5


def test_debug_and_trace_are_written_only_when_on(tmp_path: Path) -> None:
    quiet, loud = Logger(str(tmp_path / "quiet")), Logger(str(tmp_path / "loud"), debug=True, trace=True)

    for log in (quiet, loud):
        log.debug("d")
        log.trace("t")

    assert texts(tmp_path / "quiet") == []
    assert texts(tmp_path / "loud") == [("DBG", "d"), ("TRC", "t")]


def test_a_file_over_the_limit_is_renamed_and_started_again(tmp_path: Path) -> None:
    log = Logger(str(tmp_path / "log"), size_limit=1000)

    log.info("x" * 1000)
    log.info("next")

    backup = next(path for path in tmp_path.iterdir() if is_backup(path.name, "log"))
    assert texts(backup) == [("INF", "x" * 1000)]
    assert texts(tmp_path / "log") == [("INF", f'Rotated log, backup saved as "{backup}"'), ("INF", "next")]


def test_only_the_newest_rotated_files_are_kept(tmp_path: Path) -> None:
    log = Logger(str(tmp_path / "log"), size_limit=1000, files_max=3)

    for at in range(6):
        log.info(f"{at}" * 1000)

    backups = sorted(path for path in tmp_path.iterdir() if is_backup(path.name, "log"))
    assert [texts(path)[-1][1][0] for path in backups] == ["4", "5"]


def test_a_file_that_cannot_be_rotated_is_written_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Logger(str(tmp_path / "log"), size_limit=100)

    def refuse(old: str, new: str) -> None:
        raise PermissionError(13, "denied")

    monkeypatch.setattr(os, "rename", refuse)
    log.info("x" * 100)

    assert [level for level, _ in texts(tmp_path / "log")] == ["INF", "ERR"]
    assert log.size_limit == 200


def test_a_reopened_log_writes_to_a_new_file(tmp_path: Path) -> None:
    log = Logger(str(tmp_path / "log"))
    log.info("old")
    (tmp_path / "log").rename(tmp_path / "moved")

    assert log.reopen()
    log.info("new")

    assert texts(tmp_path / "moved") == [("INF", "old")]
    assert texts(tmp_path / "log") == [("INF", "new")]


def test_standard_error_is_not_reopened() -> None:
    assert not Logger().reopen()


def test_a_log_goes_on_as_another(tmp_path: Path) -> None:
    log = Logger(str(tmp_path / "one"))
    log.info("before")

    log.adopt(Logger(str(tmp_path / "two"), debug=True))
    log.debug("after")

    assert texts(tmp_path / "one") == [("INF", "before")]
    assert texts(tmp_path / "two") == [("DBG", "after")]


def test_a_line_that_cannot_be_written_is_lost_in_silence() -> None:
    full = os.open("/dev/full", os.O_WRONLY)

    Logger(fd=full).info("x")

    os.close(full)


def test_a_terminal_gets_colors() -> None:
    keeper, terminal = os.openpty()

    Logger(fd=terminal).warn("x")

    assert b"[\x1b[93mWRN\x1b[0m] x" in os.read(keeper, 200)
    os.close(keeper)
    os.close(terminal)


def test_a_status_stays_below_the_lines_of_a_terminal() -> None:
    keeper, terminal = os.openpty()
    log = Logger(fd=terminal, show_time=False)

    log.status("half")
    log.warn("x")
    log.status("half")
    log.status("")
    log.warn("y")

    prefix = f"[{os.getpid()}] [\x1b[93mWRN\x1b[0m]".encode()
    clear = b"\r\x1b[K"
    shown = b"".join([clear, b"half", clear, prefix, b" x\r\nhalf", clear, prefix, b" y\r\n"])
    assert log.shows_status
    assert os.read(keeper, 500) == shown
    os.close(keeper)
    os.close(terminal)


def test_a_log_that_is_no_terminal_shows_no_status(tmp_path: Path) -> None:
    log = Logger(str(tmp_path / "log"))

    log.status("half")

    assert not log.shows_status
    assert (tmp_path / "log").read_text() == ""
    log.close()


def test_options_describe_the_log(tmp_path: Path) -> None:
    options = Options(
        log=LogOptions(
            log_file=str(tmp_path / "log"), debug=True, trace=True, logtime=False, log_size_limit=9
        )
    )

    log = configured_logger(options)

    assert (log.path, log.debug_on, log.trace_on, log.show_time) == (str(tmp_path / "log"), True, True, False)
    assert log.size_limit == 9
    log.close()
    assert log.path == ""
    log.close()


@pytest.mark.parametrize(
    ("entry", "backup"),
    [
        ("log.2026.01.02.03.04.05.123456789", True),
        ("log.2026.01.02.03.04.05.12345678", False),
        ("log.2026.01.02.03.04.05.12345678x", False),
        ("log", False),
        ("log.txt", False),
        ("other.2026.01.02.03.04.05.123456789", False),
    ],
)
def test_only_names_with_a_whole_stamp_are_rotated_files(entry: str, backup: bool) -> None:
    assert is_backup(entry, "log") is backup


def test_the_log_is_not_for_everybody_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Logger(str(tmp_path / "log")).info("hello")
    finally:
        os.umask(before)

    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o640


def test_a_text_cannot_pass_for_a_line_of_its_own(tmp_path: Path) -> None:
    log = Logger(str(tmp_path / "log"))
    forged = f"[{os.getpid()}] 2026/01/01 00:00:00.000000 [INF] all is well"
    log.warn(f"said no\n{forged}\r\x1b[2K\u2028\n")
    first, second, third = (tmp_path / "log").read_text().split("\n", 2)
    assert first.endswith("[WRN] said no")
    assert second == f"    {forged}\\r\\x1b[2K\\u2028"
    assert third == "    \n"
