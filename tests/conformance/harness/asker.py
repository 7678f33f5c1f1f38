"""A client that sends requests to one server of a cluster and takes one answer for each."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from tests.conformance.harness.cluster import WAIT_S, NodeClient

PATIENCE_S = 0.5  # the pause before a request is repeated; it doubles each time
PATIENCE_MAX_S = 8.0
_numbers = count(100)  # numbers for inboxes and sids


@dataclass
class Asker:
    """A client that sends its requests to one server."""

    client: NodeClient

    def ask(self, subject: str, body: object = None) -> dict[str, Any]:
        """Return the first answer to a request."""
        inbox = self._send(subject, body)
        while (answer := self._answer(inbox)) is None:
            self.client.wait_for_messages(len(self.client.frames) + 1)
        return answer

    def until(
        self, subject: str, holds: Callable[[dict[str, Any]], bool], body: object = None
    ) -> dict[str, Any]:
        """Repeat a request until its answer is right; while the leader changes, none may come. Late answers count."""
        deadline, patience_s = time.monotonic() + WAIT_S, PATIENCE_S
        inboxes = []
        while time.monotonic() < deadline:
            inboxes.append(self._send(subject, body))
            answers = self._answers(inboxes, time.monotonic() + patience_s)
            for answer in answers:
                if holds(answer):
                    return answer
            if not answers:
                patience_s = min(2 * patience_s, PATIENCE_MAX_S)
            time.sleep(0.01)  # the server sends no event when its state changes
        raise AssertionError(f"{subject} never answered what was wanted")

    def _answers(self, inboxes: list[bytes], until_s: float) -> list[dict[str, Any]]:
        """Wait until a deadline for an answer to any of several requests; return the answers."""
        while True:
            self.client.fence()
            found = [each for inbox in inboxes if (each := self._answer(inbox)) is not None]
            if found or time.monotonic() > until_s:
                return found
            time.sleep(0.01)  # polling: nothing signals that no answer will come

    def _send(self, subject: str, body: object) -> bytes:
        number, data = next(_numbers), b"" if body is None else json.dumps(body).encode()
        inbox = b"_INBOX.ask.%d" % number
        request = b"SUB %b %d\r\nPUB %b %b %d\r\n%b\r\nUNSUB %d 1\r\n"
        self.client.send(request % (inbox, number, subject.encode(), inbox, len(data), data, number))
        return inbox

    def _answer(self, inbox: bytes) -> dict[str, Any] | None:
        """Return the answer that came to an inbox."""
        for frame in self.client.frames:
            if frame[0] == inbox:
                self.client.frames.remove(frame)
                answer: dict[str, Any] = json.loads(frame[4] or b"{}")
                return answer
        return None
