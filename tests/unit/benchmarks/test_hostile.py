"""The verdict on an attack, and the client that the attackers use."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from attacks.attack import Attack, nothing  # noqa: E402
from attacks.client import Client  # noqa: E402
from attacks.measure import Sample  # noqa: E402
from attacks.table import Line, markdown, text  # noqa: E402

ATTACK = Attack("storm", "a storm", nothing)


def sample(**changes: float) -> Sample:
    """Return a sample that passes, with changes."""
    figures = {
        "asked": 10,
        "answered": 10,
        "worst_ms": 5.0,
        "before_mb": 100.0,
        "peak_mb": 110.0,
        "after_mb": 105.0,
    }
    return Sample(alive=bool(changes.pop("alive", 1)), **{**figures, **changes})  # type: ignore[arg-type]


def faults(ours: Sample, peer: Sample) -> list[str]:
    return Line(ATTACK, [{"ours": ours, "peer": peer}]).faults()


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"alive": 0}, "dead"),
        ({"answered": 9}, "1 unanswered"),
        ({"worst_ms": 50.1}, "wait 50.1 ms"),
        ({"after_mb": 131}, "memory after 1.3x"),
        ({"peak_mb": 165}, "growth 65 MB"),
        ({"failures": 2}, "2 failures in the log"),
    ],
)
def test_each_figure_that_is_too_bad_is_a_fault(changes: dict[str, float], fault: str) -> None:
    assert faults(sample(), sample()) == []
    assert faults(sample(**changes), sample()) == [fault]


@pytest.mark.parametrize(
    ("ours", "peer"),
    [
        ({"worst_ms": 200}, {"worst_ms": 100}),
        ({"peak_mb": 300}, {"peak_mb": 200}),
        ({"answered": 7}, {"answered": 7}),
    ],
)
def test_the_peer_in_the_same_run_sets_the_bound(ours: dict[str, float], peer: dict[str, float]) -> None:
    assert faults(sample(**ours), sample(**peer)) == []


def test_the_median_of_the_rounds_counts_and_the_worst_answer() -> None:
    rounds = [
        {"ours": sample(worst_ms=wait, answered=10 - number)} for number, wait in enumerate((10, 400, 20))
    ]
    line = Line(ATTACK, rounds)

    both = line.side("ours")

    assert both is not None
    assert (both.worst_ms, both.answered) == (20, 8)
    assert line.faults() == ["2 unanswered"]


def test_the_tables_show_both_servers() -> None:
    line = Line(ATTACK, [{"ours": sample(worst_ms=7), "peer": sample(alive=0, answered=3)}])

    assert "storm" in text(line)
    assert "DEAD 3 / 10" in text(line)
    assert markdown([line]).splitlines()[-1] == (
        "| a storm | 10 / DEAD 3 of 10 | 7.0 / 5.0 | 0.0 / 0.0 | 10 / 10 | 1.05 / 1.05 | 0.00 / 0.00 |  |"
    )


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """Listen; a test accepts connections in its own thread."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def play(server: socket.socket, answers: list[bytes]) -> int:
    """Send `answers` to the next connection, each in its own packet, and close it; return the port.

    Data from the client is read: closing a socket with unread bytes resets the connection and drops bytes in transit.
    """

    def run() -> None:
        connection, _ = server.accept()
        with connection:
            for answer in answers:
                connection.sendall(answer)
                time.sleep(0.005)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass

    threading.Thread(target=run, daemon=True).start()
    port: int = server.getsockname()[1]
    return port


def test_the_client_cuts_frames_that_arrive_in_pieces(server: socket.socket) -> None:
    whole = b"INFO {}\r\nMSG a 1 r.1 3\r\nabc\r\nPONG\r\nHMSG b 1 12 14\r\nNATS/1.0\r\n\r\nxy\r\n-ERR 'no'\r\n+OK\r\n"
    client = Client(
        play(server, [whole[at : at + 7] for at in range(0, len(whole), 7)]), time.monotonic() + 20
    )

    client.run(lambda: client.closed)

    assert list(client.messages) == [(b"a", b"r.1", b"abc"), (b"b", b"", b"NATS/1.0\r\n\r\nxy")]
    assert (client.count, client.pongs, client.errors) == (2, 1, [b"'no'"])
    client.close()


def test_the_client_counts_a_long_body_without_its_bytes(server: socket.socket) -> None:
    body = b"x" * (5 << 20)
    client = Client(
        play(server, [b"MSG a 1 %d\r\n" % len(body), body + b"\r\nPONG\r\n"]), time.monotonic() + 20
    )

    client.run(lambda: client.closed)

    assert (client.count, client.pongs) == (1, 1)
    client.close()


def test_the_client_ends_at_its_deadline(server: socket.socket) -> None:
    client = Client(server.getsockname()[1], time.monotonic() + 0.05)

    assert client.request("$JS.API.INFO") is None
    client.close()
