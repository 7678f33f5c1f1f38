"""Requests with values at the edge of a field's range: each is answered, and the node keeps working and restarts.

They are drawn from the tables that the readers use (tests/fuzz/border.py). PYJS_BORDER_CASES and PYJS_FUZZ_SEED set
their number and seed; `make fuzz` runs a million. A failure names its batch and case: every batch between two
restarts has its own seed, and the requests of a batch up to the failed one reproduce the failure.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

from tests.fuzz import border
from tests.support.node import options_with_store

from pyjs.testing import RawClient, VirtualNode

CASES = int(os.environ.get("PYJS_BORDER_CASES", "20000"))
SEED = int(os.environ.get("PYJS_FUZZ_SEED", "1"))
BATCH = 400  # cases between two restarts on the same store
KEPT = 50  # number of ack subjects that the test remembers
INBOX = b"_INBOX.f.%d"


class Border:
    """A node with a store, and a client whose requests and answers are counted."""

    def __init__(self, directory: Path) -> None:
        self.options = options_with_store(directory)
        self.options.limits.max_closed_clients = 10
        self.start(None)
        assert self.api("STREAM.CREATE.KEEP", {"name": "KEEP", "subjects": ["keep"], "max_msgs": 5})["config"]

    def start(self, now_ns: int | None) -> None:
        self.node = VirtualNode(self.options, now_ns=now_ns)
        self.node.node.start_jetstream()
        self.node.turn()
        self.client = self.node.client()
        self.client.send(b"SUB _INBOX.> 1\r\n")
        self.client.take()
        self.replies: list[bytes] = []
        self.asked = 0

    def restart(self) -> None:
        """Stop the server, start it on the same store, and check that all file streams are there."""
        before = self.streams("file")
        self.node.node.stop()
        self.check_log()
        self.start(self.node.clock.now_ns())
        assert self.streams("file") == before
        self.check_log()

    def streams(self, storage: str) -> list[str]:
        listed = self.api("STREAM.LIST", {})["streams"]
        return sorted(each["config"]["name"] for each in listed if each["config"]["storage"] == storage)

    def api(self, endpoint: str, body: object) -> dict[str, Any]:
        payload = json.dumps(body).encode()
        answers = self.play(border.Case(b"$JS.API." + endpoint.encode(), b"", payload, (1, 1)))
        answer: dict[str, Any] = json.loads(answers[0])
        return answer

    def play(self, case: border.Case) -> list[bytes]:
        """Send a request and return its answers; their number must be right."""
        self.asked += 1
        inbox = INBOX % self.asked
        size = len(case.headers) + len(case.payload)
        sizes = b"%d %d" % (len(case.headers), size) if case.headers else b"%d" % size
        verb = b"HPUB" if case.headers else b"PUB"
        self.client.send(
            b"%b %b %b %b\r\n%b%b\r\nPING\r\n"
            % (verb, case.subject, inbox, sizes, case.headers, case.payload)
        )
        data = self.client.take()
        assert not self.client.link.closed, data[-200:]
        assert data.count(b"PONG\r\n") == 1
        self.client.link.data = data.replace(b"PONG\r\n", b"")
        frames = self.client.frames()
        self.replies = [*self.replies, *(f.reply for f in frames if f.reply.startswith(b"$JS.ACK."))][-KEPT:]
        answers = [frame.payload for frame in frames if frame.subject == inbox]
        low, high = case.answers
        assert low <= len(answers) <= (len(answers) if high is None else high), answers[:3]
        return answers

    def connect(self, arguments: bytes) -> None:
        """Open a connection that sends CONNECT with `arguments`, and close it."""
        client: RawClient = self.node.client(connect=None)
        client.session.receive_data(b"CONNECT " + arguments + b"\r\nPING\r\n")
        self.node.turn()
        client.session.connection_lost()
        self.node.turn()

    def serves(self) -> None:
        """Publish to a file stream that no case touches."""
        ack = json.loads(self.play(border.Case(b"keep", b"", b"x", (1, 1)))[0])
        assert ack["stream"] == "KEEP"
        assert "error" not in ack

    def check_log(self) -> None:
        errors = [
            text for _, text in self.node.log.lines if "Traceback" in text or "unexpected failure" in text
        ]
        assert errors == []
        assert self.node.node.faults.counts == {}
        self.node.log.lines.clear()


def run_batch(node: Border, number: int, count: int) -> None:
    """Play one batch; a failure names the case and the request."""
    rng = random.Random(SEED * 1_000_003 + number)
    for at in range(count):
        drawn: object = None
        try:
            if rng.random() < 0.05:
                drawn = border.connect(rng)
                node.connect(drawn)
            else:
                drawn = border.case(rng, node.replies)
                node.play(drawn)
            if at % 20 == 0:
                node.node.advance(milliseconds=rng.choice((1, 100, 2_000)))
                node.client.take()
                node.serves()
            node.check_log()
        except BaseException as failure:
            failure.add_note(f"batch {number}, case {at}: {str(drawn)[:2000]}")
            raise
    node.restart()


def test_values_at_the_border_are_answered_and_leave_a_node_that_starts(tmp_path: Path) -> None:
    node = Border(tmp_path)
    for start in range(0, CASES, BATCH):
        run_batch(node, start // BATCH, min(BATCH, CASES - start))
