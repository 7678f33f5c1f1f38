"""The script language of the scenarios, and the reader of frames."""

from __future__ import annotations

import pytest
from tests.conformance.harness.frames import FrameReader, headers
from tests.conformance.harness.script import ScriptError, parse, unescape

STREAM = (
    b'INFO {"server_id":"X"} \r\n+OK\r\nPING\r\nMSG foo 1 5\r\nhello\r\nMSG foo 1 re.ply 7\r\n{"a":1}\r\n'
    b"HMSG foo 2 30 32\r\nNATS/1.0 404 No Messages\r\n\r\n\r\nhi\r\n-ERR 'Invalid Subject'\r\n"
    b"HMSG foo 2 r 18 18\r\nNATS/1.0\r\nA: b\r\n\r\n\r\n"
)


def test_escapes_and_fills_become_bytes() -> None:
    assert unescape(r"a\r\n\t\0\\\xff<<xy*3>>") == b"a\r\n\t\0\\\xffxyxyxy"


def test_a_script_is_steps_with_a_config() -> None:
    # when
    script = parse(
        "# A title\n# of two lines\nserver jetstream {\n  max_payload: 5\n}\nopen a\na>> x\nrepeat 2 a> PUB %d\n",
        "x/y",
    )
    # then
    assert script.title == "A title of two lines"
    assert script.config.splitlines() == ['jetstream: {store_dir: "<<store>>"}', "  max_payload: 5"]
    assert [(s.verb, s.conn, s.text) for s in script.steps] == [
        ("open", "a", ""),
        ("send-exact", "a", "x"),
        ("send", "a", "PUB 1"),
        ("send", "a", "PUB 2"),
    ]


@pytest.mark.parametrize("text", ["# t\nfly away\n", "open a\n", "# t\nserver {\n", "# t\nsync\n"])
def test_a_line_outside_the_language_is_refused(text: str) -> None:
    with pytest.raises(ScriptError):
        parse(text, "x/y")


def test_frames_are_the_same_for_input_split_anywhere() -> None:
    # given
    whole = FrameReader().feed(STREAM)
    # when
    splits = []
    for cut in range(len(STREAM)):
        reader = FrameReader()
        splits.append(reader.feed(STREAM[:cut]) + reader.feed(STREAM[cut:]))
    # then
    assert [frame["op"] for frame in whole] == ["INFO", "+OK", "PING", "MSG", "MSG", "HMSG", "-ERR", "HMSG"]
    assert whole[0]["tail"] == " "
    assert whole[4]["reply"] == "re.ply"
    assert whole[4]["payload"] == {"json": {"a": 1}}
    assert all(frames == whole for frames in splits)


@pytest.mark.parametrize(
    "data", [b"MSG foo 1 2\r\nhiho\r\n", b"MSG foo x\r\n", b"WHAT\r\n", b"INFO {\r\n", b" +OK\r\n"]
)
def test_what_is_no_frame_is_garbage(data: bytes) -> None:
    assert FrameReader().feed(data)[0]["op"] == "garbage"


def test_a_header_block_in_an_unusual_form_is_kept_as_text() -> None:
    assert headers(b"NATS/1.0\r\nA:b\r\n\r\n") == {"raw": "NATS/1.0\r\nA:b\r\n\r\n"}
    assert headers(b"NATS/1.0 503\r\n\r\n")["status"] == "503"
