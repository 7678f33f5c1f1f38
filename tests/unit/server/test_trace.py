import pytest

from pyjs.base.log import ListLog
from pyjs.config.options import Options
from pyjs.server.trace import IN, LINE_SIZE_MAX, OUT, Tracer
from pyjs.testing import VirtualNode


class Traced:
    """A tracer and its lines, without their prefix that names the connection."""

    def __init__(self, direction: str = IN, size_max: int = 0) -> None:
        self.session = VirtualNode(Options()).client().session
        self.log = ListLog()
        self.log.trace_on = True
        self.tracer = Tracer(self.session, self.log, direction, size_max)

    def trace(self, data: bytes) -> list[str]:
        self.log.lines.clear()
        self.tracer.trace(data)
        assert all(level == "TRC" for level, _ in self.log.lines)
        return [text.removeprefix(f"{self.session} - ") for _, text in self.log.lines]


def test_operations_and_payloads_are_lines() -> None:
    traced = Traced()

    lines = traced.trace(b"PING\r\nsub  foo q 1\r\nPUB foo re 5\r\nhello\r\nPUB foo 0\r\n\r\nPONG\r\n")

    assert lines == [
        "<<- [PING]",
        "<<- [SUB foo q 1]",
        "<<- [PUB foo re 5]",
        '<<- MSG_PAYLOAD: ["hello"]',
        "<<- [PUB foo 0]",
        "<<- [PONG]",
    ]


def test_headers_are_shown_escaped() -> None:
    lines = Traced().trace(b"HPUB foo 12 14\r\nNATS/1.0\r\n\r\nxx\r\n")

    assert lines == ["<<- [HPUB foo 12 14]", '<<- MSG_PAYLOAD: ["NATS/1.0\\r\\n\\r\\nxx"]']


def test_what_goes_out_is_marked_so() -> None:
    lines = Traced(OUT).trace(b"+OK\r\nPONG\r\n-ERR 'Stale Connection'\r\nMSG foo 1 2\r\nhi\r\n")

    assert lines == [
        "->> [OK]",
        "->> [PONG]",
        "->> [-ERR Stale Connection]",
        "->> [MSG foo 1 2]",
        '->> MSG_PAYLOAD: ["hi"]',
    ]


def test_secrets_are_not_shown() -> None:
    line = b'CONNECT {"user":"u","pass":"a\\"b","auth_token": "t","jwt":"j","sig":"s","proxy_sig":"p","name":"n"}\r\n'

    (shown,) = Traced().trace(line)

    assert shown == (
        '<<- [CONNECT {"user":"u","pass":"[REDACTED]","auth_token": "[REDACTED]",'
        '"jwt":"[REDACTED]","sig":"[REDACTED]","proxy_sig":"[REDACTED]","name":"n"}]'
    )


def test_a_long_payload_is_cut() -> None:
    traced = Traced(size_max=3)

    assert traced.trace(b"PUB foo 5\r\nhello\r\n")[1] == '<<- MSG_PAYLOAD: ["hel..."]'
    assert traced.trace(b"PUB foo 3\r\nabc\r\n")[1] == '<<- MSG_PAYLOAD: ["abc"]'


@pytest.mark.parametrize("at", range(1, 30))
def test_reads_may_end_anywhere(at: int) -> None:
    traced, data = Traced(), b"PUB foo 5\r\nhello\r\nSUB bar 12\r\n"

    lines = traced.trace(data[:at]) + traced.trace(data[at:])

    assert lines == ["<<- [PUB foo 5]", '<<- MSG_PAYLOAD: ["hello"]', "<<- [SUB bar 12]"]


def test_an_endless_line_is_dropped() -> None:
    traced = Traced()

    assert traced.trace(b"x" * (LINE_SIZE_MAX + 1)) == []
    assert traced.trace(b"\r\nPING\r\n") == ["<<- [PING]"]
