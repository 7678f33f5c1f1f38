"""The command line of `pyjs-server trace`; tests/system/test_trace.py runs it against servers."""

from __future__ import annotations

import io

import pytest

from pyjs.operating.trace import USAGE, run


def told(*words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    return run([*words], {}, out, err), out.getvalue(), err.getvalue()


def test_help_is_printed() -> None:
    for word in ("-h", "--help"):
        assert told(word) == (0, f"{USAGE}\n", "")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "give the id of one connection"),
        (["5", "6"], "give the id of one connection"),
        (["five"], "the id of the connection is five: give a whole number"),
        (["٣"], "the id of the connection is ٣: give a whole number"),
        (["9" * 19], f"the id of the connection is {'9' * 19}: give a whole number"),
        (["--lines", "many", "5"], "--lines is many: give a whole number"),
        (["--lines", "-1", "5"], "--lines is -1: give a whole number"),
        (["5", "--seconds"], "flag needs an argument: --seconds"),
        (["--seconds=", "5"], "flag needs an argument: --seconds="),
        (["--password", "x", "5"], "there is no flag --password"),
        (["--stop=yes", "5"], "there is no flag --stop=yes"),
    ],
)
def test_a_wrong_command_line_is_told(words: list[str], text: str) -> None:
    assert told(*words) == (2, "", f"pyjs-server trace: {text}\n\n{USAGE}\n")


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"error": {"description": "no \x1b[31m"}}, "no \\x1b[31m"),
        ({"server": {}}, "fake does not trace single connections: it is not a pyjs-server"),
    ],
)
def test_an_answer_of_another_server_is_told(
    monkeypatch: pytest.MonkeyPatch, answer: dict[str, object], text: str
) -> None:
    class Fake:
        info = {"server_id": "A", "server_name": "fake"}

        def __init__(self, *arguments: object, **named: object) -> None: ...
        def __enter__(self) -> Fake:
            return self

        def __exit__(self, *error: object) -> None: ...
        def request(self, subject: str, body: bytes) -> dict[str, object]:
            return answer

    monkeypatch.setattr("pyjs.operating.trace.OperatorConnection", Fake)

    assert told("5") == (1, "", f"pyjs-server trace: {text}\n")

    Fake.info["server_id"] = "> *"
    assert told("5") == (1, "", "pyjs-server trace: the server has no valid id: is it a NATS server?\n")
