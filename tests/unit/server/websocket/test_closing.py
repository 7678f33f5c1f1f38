"""Close frames of WebSocket connections."""

from __future__ import annotations

import pytest

from pyjs.server.websocket.closing import BadClose, answer_to_close, close_frame, reason_frame


def test_a_reason_has_a_status() -> None:
    assert reason_frame("Client Closed") == b"\x88\x0f\x03\xe8Client Closed"
    assert reason_frame("Authentication Failure")[2:4] == (1008).to_bytes(2, "big")
    assert reason_frame("Maximum Message Payload Exceeded")[2:4] == (1009).to_bytes(2, "big")
    assert reason_frame("Kicked")[2:4] == (1011).to_bytes(2, "big")


def test_a_long_text_is_cut() -> None:
    frame = close_frame(1002, "x" * 200)
    assert len(frame) == 2 + 125
    assert frame.endswith(b"xx...")


def test_a_long_text_is_cut_between_two_characters() -> None:
    frame = close_frame(1002, "x" + "\u20ac" * 60)
    assert frame[4:].decode() == "x" + "\u20ac" * 39 + "..."
    assert frame[1] == len(frame) - 2


@pytest.mark.parametrize(
    ("payload", "answer"),
    [
        (b"", b"\x88\x00"),
        (b"\x03\xe8", b"\x88\x02\x03\xe8"),
        (b"\x03\xe8bye", b"\x88\x05\x03\xe8bye"),
        (b"\x0b\xb8", b"\x88\x02\x0b\xb8"),
    ],
)
def test_a_close_is_echoed(payload: bytes, answer: bytes) -> None:
    assert answer_to_close(payload) == answer


def test_text_that_is_not_utf_8_has_a_status_of_its_own() -> None:
    assert answer_to_close(b"\x03\xe8\xff")[2:] == b"\x03\xefinvalid utf8 body in close frame"


@pytest.mark.parametrize("status", [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535])
def test_a_status_that_nobody_may_send_is_refused(status: int) -> None:
    with pytest.raises(BadClose, match=f"invalid close status code {status}"):
        answer_to_close(status.to_bytes(2, "big"))


def test_one_byte_is_refused() -> None:
    with pytest.raises(BadClose, match="cannot be 1 byte"):
        answer_to_close(b"\x03")
