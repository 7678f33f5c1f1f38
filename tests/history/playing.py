"""Plays a history on one server; returns the answers of all operations, and the final state."""

from __future__ import annotations

import base64
import json
import re
import time
from typing import Any

from tests.conformance.harness.masks import Masker
from tests.history.making import Ack, FastBatch, Fetch, Fired, Gone, History, Operation, Publish, Request
from tests.support.raw import RawClient

WAIT_S = 4.0
PULL_END = (b"404", b"408", b"409")
_PLACE = re.compile(r"\{(last\+1|last|of:(\w+)|S|P)\}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
Seen = list[Any]


class Player:
    """Plays histories over one connection to one server."""

    def __init__(self, port: int) -> None:
        self._client = RawClient(port, timeout_s=WAIT_S)
        self._history: History
        self._asked = 0
        self._last = 0
        self._of: dict[str, int] = {}
        self._deliveries: list[bytes] = []
        self._masker: Masker

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def play(self, history: History) -> Seen:
        """Create the stream and do all operations; return one answer for each."""
        self._history = history
        self._last, self._of, self._deliveries = 0, {}, []
        self._masker = Masker(history.name)
        self._api(f"STREAM.DELETE.{history.name}", "")
        config = {"name": history.name, "subjects": [f"{self._prefix}.>"], **history.config}
        seen: Seen = [self._api(f"STREAM.CREATE.{history.name}", json.dumps(config))]
        return seen + [self._do(operation) for operation in history.operations]

    def rest(self) -> Seen:
        """Return state, consumers and messages."""
        name = self._history.name
        info = self._api(f"STREAM.INFO.{name}", '{"deleted_details":true,"subjects_filter":">"}')
        state = info.get("state", {})
        if state.get("last_seq") == 0:
            state.pop("num_deleted", None)  # nats-server counts sequence 0 of an empty stream as deleted
            state.pop("deleted", None)
        consumers = self._api(f"CONSUMER.LIST.{name}", "").get("consumers") or []
        # Positions are left out: that a consumer has skipped removed messages is only visible at its next delivery.
        consumers = sorted([each["name"], each["num_pending"]] for each in consumers)
        first, last = state.get("first_seq", 1), state.get("last_seq", 0)
        return [state, consumers, self._messages(name, range(max(first, 1), last + 1))]

    def forget(self) -> None:
        """Delete the stream."""
        self._api(f"STREAM.DELETE.{self._history.name}", "")

    # -- operations --------------------------------------------------------------------------------------------

    @property
    def _prefix(self) -> str:
        return f"h{self._history.seed}"

    def _do(self, operation: Operation) -> Any:
        match operation:
            case Publish():
                return self._publish(operation)
            case FastBatch():
                return self._fast_batch(operation)
            case Request():
                return self._asked_for(operation)
            case Fetch():
                return self._fetch(operation)
            case Ack():
                return self._ack(operation)
            case Gone():
                return self._until(f"STREAM.MSG.GET.{self._history.name}", {"seq": self._last}, found=False)
            case Fired():
                return self._fired(operation)

    def _asked_for(self, request: Request) -> Any:
        answer = self._api(self._filled(request.endpoint), self._filled(request.body))
        if isinstance(answer, dict) and "RESET" in request.endpoint and request.body in ("", '{"seq":0}'):
            # A reset to the ack floor shows how far a consumer has moved past messages that it does not deliver.
            for field in ("delivered", "ack_floor", "reset_seq"):
                answer.pop(field, None)
        return answer

    def _publish(self, operation: Publish) -> Any:
        _, payload = self._ask(
            f"{self._prefix}.{operation.subject}", operation.payload, self._lines(operation)
        )
        return self._note(operation.subject, payload)

    def _note(self, subject: str, payload: bytes) -> Any:
        answer = json.loads(payload) if payload else None
        if answer and "error" not in answer and answer.get("seq") and not answer.get("duplicate"):
            self._last = self._of[subject] = answer["seq"]
        return answer

    def _fast_batch(self, batch: FastBatch) -> Any:
        """Send all parts; their answers have arrived when a refused publish after them is answered."""
        inbox = self._inbox()
        for sequence, operation, publish in batch.parts:
            reply = f"{inbox}.{self._history.name}-{batch.number}.{batch.flow}.{batch.gap}.{sequence}.{operation}.$FI"
            self._send(f"{self._prefix}.{publish.subject}", publish.payload, self._lines(publish), reply)
        answers: list[Any] = []
        fence = self._inbox()
        self._send(f"{self._prefix}.fence", "", [("Nats-Expected-Stream", "fence")], fence)
        for subject, _, _, payload in self._client.frames():
            if subject == fence.encode():
                return [*answers, json.loads(payload) if payload else None]
            if subject.startswith(inbox.encode()):
                answers.append(self._note(batch.parts[-1][2].subject, payload))
        raise AssertionError("unreachable")

    def _fetch(self, fetch: Fetch) -> Any:
        inbox = self._inbox()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._history.name}.{fetch.consumer}"
        self._send(subject, json.dumps({"batch": fetch.batch, "no_wait": True}), [], inbox)
        found: list[Any] = []
        for subject_of, reply, headers, payload in self._client.frames():
            if subject_of == inbox.encode() and not reply:
                return [*found, headers.split(b"\r\n")[0].decode()]
            if not reply.startswith(b"$JS.ACK."):
                continue
            words = reply.split(b".")
            self._deliveries.append(reply)
            # The number of pending messages is left out: nats-server may count a message later than it stores it.
            found.append(
                [subject_of.decode(), b".".join(words[2:7]).decode(), shown(headers), payload.decode()]
            )
            if len(found) == fetch.batch:
                return found
        raise AssertionError("unreachable")

    def _ack(self, ack: Ack) -> Any:
        if ack.which >= len(self._deliveries):
            return None
        reply = self._deliveries[-1 - ack.which].decode()
        return self._ask(reply, ack.verb, [])[1].decode()

    def _fired(self, operation: Fired) -> Any:
        subject = f"{self._prefix}.{operation.subject}"
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            answer = self._api(f"STREAM.MSG.GET.{self._history.name}", json.dumps({"last_by_subj": subject}))
            if answer.get("message", {}).get("seq", 0) > self._last:
                self._last = self._of[operation.subject] = answer["message"]["seq"]
                return answer
        return "no product"

    def _until(self, endpoint: str, body: dict[str, Any], found: bool) -> Any:
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            answer = self._api(endpoint, json.dumps(body))
            if ("error" not in answer) is found:
                return answer
        return "it stays"

    # -- requests ----------------------------------------------------------------------------------------------

    def _lines(self, publish: Publish) -> list[tuple[str, str]]:
        return [(name, self._filled(value)) for name, value in publish.headers]

    def _filled(self, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            word = match[1]
            if word == "S":
                return self._history.name
            if word == "P":
                return self._prefix
            if match[2]:
                return str(self._of.get(match[2], 0))
            return str(self._last + (word == "last+1"))

        return _PLACE.sub(value, text)

    def _inbox(self) -> str:
        self._asked += 1
        return f"{self._client.inbox.decode()}.{self._asked}"

    def _send(self, subject: str, payload: str, lines: list[tuple[str, str]], reply: str) -> None:
        body = payload.encode()
        if not lines:
            self._client.send(f"PUB {subject} {reply} {len(body)}\r\n".encode() + body + b"\r\n")
            return
        block = "".join(["NATS/1.0\r\n", *(f"{name}: {value}\r\n" for name, value in lines), "\r\n"]).encode()
        head = f"HPUB {subject} {reply} {len(block)} {len(block) + len(body)}\r\n".encode()
        self._client.send(head + block + body + b"\r\n")

    def _ask(self, subject: str, payload: str, lines: list[tuple[str, str]]) -> tuple[bytes, bytes]:
        inbox = self._inbox()
        self._send(subject, payload, lines, inbox)
        return self._answer(inbox)

    def _answer(self, inbox: str) -> tuple[bytes, bytes]:
        try:
            for subject, _, headers, payload in self._client.frames():
                if subject == inbox.encode():
                    return headers, payload
        except TimeoutError:
            pass
        return b"", b'"no answer"'

    def _api(self, endpoint: str, body: str) -> Any:
        payload = self._ask(f"$JS.API.{endpoint}", body, [])[1]
        return self._masked(json.loads(payload)) if payload else {}

    def _masked(self, answer: Any) -> Any:
        message = answer.get("message") if isinstance(answer, dict) else None
        if message and "hdrs" in message:
            message["hdrs"] = shown(base64.b64decode(message["hdrs"]))
        return self._masker.value(answer)

    def _messages(self, name: str, seqs: range) -> list[Any]:
        return [self._api(f"STREAM.MSG.GET.{name}", f'{{"seq":{seq}}}') for seq in seqs]


def shown(headers: bytes) -> str:
    """Return headers as text, with times masked."""
    return _TIME.sub("<time>", headers.decode("utf-8", "backslashreplace"))
