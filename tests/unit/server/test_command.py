"""Settings of the process that the command makes, and uncaught exceptions."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from pyjs.base.log import ListLog
from pyjs.config.options import LogOptions, Options
from pyjs.server.command import Command, run


def command(**values: object) -> tuple[Command, ListLog]:
    """Return a command whose server uses a free local port."""
    options, log = Options(host="127.0.0.1", port=-1), ListLog()
    for name, value in values.items():
        setattr(options, name, value)
    return Command(options, log), log


def test_a_log_file_that_cannot_be_opened_is_told_and_ends_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = Options(log=LogOptions(log_file=f"{tmp_path}/none/log"))

    assert run(options) == 1

    text = (
        f"error opening file: open {tmp_path}/none/log: no such file or directory\n"
        "    -> create the directory, or change `log_file`\n"
    )
    assert capsys.readouterr() == ("", text)


async def test_an_exception_on_the_loop_of_the_command_is_logged() -> None:
    made, log = command()
    asyncio.get_running_loop().set_exception_handler(made.log_uncaught)

    def broken() -> None:
        raise ZeroDivisionError("planned")

    def gone() -> None:
        raise ConnectionResetError("of a peer")

    asyncio.get_running_loop().call_soon(gone)
    asyncio.get_running_loop().call_soon(broken)
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    (text,) = [text for level, text in log.lines if level == "ERR"]
    assert "ZeroDivisionError: planned" in text


class Ends:
    """Raises an error in its destructor."""

    def __del__(self) -> None:
        raise ValueError("no way out")


async def test_an_exception_that_compiled_code_cannot_pass_on_is_counted_and_logged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, log = command()
    await made.server.start()
    monkeypatch.setattr(sys, "unraisablehook", made.count_unraisable)

    ended = Ends()
    del ended

    await made.server.stop()
    assert made.server.node.faults.counts == {"compiled": 1}
    assert any("ValueError: no way out" in text for _, text in log.lines)


async def test_such_an_exception_before_the_start_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    made, log = command()
    monkeypatch.setattr(sys, "unraisablehook", made.count_unraisable)

    ended = Ends()
    del ended

    assert any("ValueError: no way out" in text for _, text in log.lines)
