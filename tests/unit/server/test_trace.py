import time

import pytest

from pyjs.base.log import ListLog
from pyjs.config.options import Options
from pyjs.core.link import TraceLimits
from pyjs.server.trace import IN, LINE_SIZE_MAX, OUT, ConnectionTrace, Tracer
from pyjs.testing import VirtualNode


class Traced:
    """A tracer and its lines, without their prefix that names the connection."""

    def __init__(self, direction: str = IN, size_max: int = 0, *, amid: bool = False) -> None:
        self.session = VirtualNode(Options()).client().session
        self.log = ListLog()
        self.log.trace_on = True
        self.tracer = Tracer(self.session, self.log, direction, size_max, amid=amid)

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


def test_the_rest_of_a_line_that_is_too_long_is_not_shown() -> None:
    traced = Traced()

    assert traced.trace(b'CONNECT {"name":"' + b"x" * LINE_SIZE_MAX) == []
    assert traced.trace(b'","pass":"s3cret"}\r\nPING\r\n') == ["<<- [PING]"]


def test_a_secret_in_a_payload_is_not_shown() -> None:
    payload = b"SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"

    lines = Traced().trace(b"PUB keys %d\r\n%b\r\n" % (len(payload), payload))

    assert lines[1] == '<<- MSG_PAYLOAD: ["[REDACTED]"]'


@pytest.mark.parametrize(
    ("rest", "direction", "shown"),
    [
        (b"lo\r\nPING\r\n", IN, ["<<- [PING]"]),
        (b'"pass":"s3cret"}\r\nSUB a 1\r\n', IN, ["<<- [SUB a 1]"]),
        (b"oo 2\r\nhi\r\nPUB foo 1\r\nx\r\n", IN, ["<<- [PUB foo 1]", '<<- MSG_PAYLOAD: ["x"]']),
        (b"PUB in a text\r\nMSG a 1 2\r\nhi\r\n", OUT, ["->> [MSG a 1 2]", '->> MSG_PAYLOAD: ["hi"]']),
        (b"PONG\r\nhello\r\n", OUT, ["->> [PONG]", "->> [HELLO]"]),
    ],
)
def test_a_trace_that_begins_inside_an_operation_skips_its_rest(
    rest: bytes, direction: str, shown: list[str]
) -> None:
    assert Traced(direction, amid=True).trace(rest) == shown


def test_a_size_that_no_payload_has_is_not_believed() -> None:
    for size in (b"9" * 11, b"9" * 5000):
        assert Traced().trace(b"PUB foo %b\r\nPING\r\n" % size)[1:] == ["<<- [PING]"]


def test_bytes_of_a_large_payload_are_looked_at_once() -> None:
    traced, size = Traced(size_max=4), 64 << 20
    traced.trace(b"PUB foo %d\r\n" % size)

    began = time.process_time()
    for _ in range(size // 65_536):
        assert traced.trace(bytes(65_536)) == []

    assert traced.trace(b"\r\n") == ['<<- MSG_PAYLOAD: ["\\x00\\x00\\x00\\x00..."]']
    assert time.process_time() - began < 1


class Part:
    """The trace of one connection, and the log of its server."""

    def __init__(self, lines: int) -> None:
        self.log = ListLog()
        self.ended = 0
        self.session = VirtualNode(Options()).client().session
        self.trace = ConnectionTrace(self.session, self.log, TraceLimits(60, lines, 5), self.end)

    def end(self) -> None:
        self.ended += 1
        self.trace.end()


def test_the_trace_of_a_connection_ends_after_its_lines() -> None:
    part = Part(lines=3)
    received, sent = part.trace.tracers

    received.trace(b"PUB foo 7\r\npayload\r\n")
    sent.trace(b"PONG\r\n+OK\r\n")
    received.trace(b"PING\r\n" * 1000)

    name = f"{part.session} - "
    assert part.log.lines == [
        ("INF", f"{name}Trace begins, for 60 s or 3 lines"),
        ("TRC", f"{name}<<- [PUB foo 7]"),
        ("TRC", f'{name}<<- MSG_PAYLOAD: ["paylo..."]'),
        ("TRC", f"{name}->> [PONG]"),
        ("INF", f"{name}Trace ends after 3 lines"),
    ]
    assert part.ended == 1


def test_other_lines_of_a_traced_connection_are_not_counted() -> None:
    part = Part(lines=1)

    part.trace.error("an error")
    part.trace.debug("not shown")
    part.log.debug_on = True
    part.trace.debug("shown")

    assert part.trace.trace_on
    assert part.log.lines[1:] == [("ERR", "an error"), ("DBG", "shown")]
