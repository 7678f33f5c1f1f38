"""Clients that work until their server is killed: publishers with message ids, a consumer that acks, removals."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable

from tests.conformance.harness.process import ServerProcess
from tests.crash.ledger import Ledger
from tests.crash.servers import PAYLOAD_SIZE, Speaker, framed, id_header, stream_seq_of

STREAM = "LOAD"
CHUNK = 50
OUTSTANDING_MAX = 300
PULL = 40
ACK_WAIT_NS = 500_000_000
DELETE_EVERY = 7  # one message in this many is removed


def make_stream(port: int) -> None:
    """Create the stream and its consumer."""
    client = Speaker(port)
    client.api(
        f"STREAM.CREATE.{STREAM}", name=STREAM, subjects=["load.>"], duplicate_window=3_600_000_000_000
    )
    config = {
        "durable_name": "worker",
        "ack_policy": "explicit",
        "ack_wait": ACK_WAIT_NS,
        "max_ack_pending": 5000,
    }
    client.api(f"CONSUMER.DURABLE.CREATE.{STREAM}.worker", stream_name=STREAM, config=config)
    client.close()


class Load:
    """One run of the server: clients work until `enough` PubAcks have arrived, then `end` is called once."""

    def __init__(self, port: int, ledger: Ledger, name: str, enough: int, end: Callable[[], None]) -> None:
        self._port = port
        self._ledger = ledger
        self._name = name
        self._enough = enough
        self._end = end
        self._done = threading.Event()
        self._acks = 0
        self._count = threading.Lock()
        self.failures: list[BaseException] = []

    def run(self, rng: random.Random) -> None:
        """Return when the server has ended and every client has noticed."""
        resend = sorted(self._ledger.unacked)
        work: list[Callable[[], None]] = [
            lambda: self._publish(b"a", resend),
            lambda: self._publish(b"b", []),
            self._settle,
            lambda: self._remove(random.Random(rng.random())),
        ]
        threads = [threading.Thread(target=self._until_gone, args=(each,), daemon=True) for each in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive(), "a client did not notice that its server is gone"

    def _until_gone(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (OSError, ConnectionError) as error:
            if not self._done.is_set():
                self.failures.append(error)

    def _publish(self, letter: bytes, resend: list[bytes]) -> None:
        client = Speaker(self._port)
        inflight: dict[bytes, bytes] = {}  # inbox -> message id
        frames = client.frames()
        number = 0
        while True:
            chunk = b""
            for _ in range(CHUNK):
                number += 1
                message_id = resend.pop() if resend else b"%b-%b%d" % (self._name.encode(), letter, number)
                inbox = b"%b%d" % (client.inbox, number)
                inflight[inbox] = message_id
                payload = (message_id + b" ").ljust(PAYLOAD_SIZE, b"x")
                chunk += framed(b"load.%b" % letter, inbox, payload, id_header(message_id))
            with self._ledger.lock:
                self._ledger.unacked |= set(inflight.values())
            client.send(chunk)
            while len(inflight) > OUTSTANDING_MAX - CHUNK:
                subject, _, _, body = next(frames)
                answer = json.loads(body)
                if "error" in answer:
                    if self._done.is_set():
                        return
                    self._ledger.violation("refused", body.decode())
                    continue
                self._ledger.ack(inflight.pop(subject), answer["seq"])
                self._one_more()

    def _one_more(self) -> None:
        with self._count:
            self._acks += 1
            due = self._acks == self._enough
        if due:
            self.finish()

    def finish(self) -> None:
        """End this run of the server."""
        self._done.set()
        self._end()

    def _settle(self) -> None:
        client = Speaker(self._port)
        while True:
            replies = {}
            for seq, reply in client.pull(STREAM, "worker", PULL):
                if seq in self._ledger.settled:
                    with self._ledger.lock:
                        self._ledger.violation("redelivered", f"{seq} was acknowledged, and confirmed")
                replies[b"%bak%d" % (client.inbox, seq)] = (seq, reply)
            with self._ledger.lock:
                self._ledger.settle_sent |= {seq for seq, _ in replies.values()}
            client.send(b"".join(framed(reply, inbox, b"+ACK") for inbox, (_, reply) in replies.items()))
            for subject, _, _, _ in client.frames() if replies else ():
                if subject in replies:
                    self._ledger.settled[replies.pop(subject)[0]] = time.monotonic()
                if not replies:
                    break

    def _remove(self, rng: random.Random) -> None:
        client = Speaker(self._port)
        removed = self._ledger.purged_to
        while not self._done.is_set():
            client.fence()
            with self._ledger.lock:
                newest = max(self._ledger.acked.values(), default=0)
            seq = rng.randint(removed, newest) if newest > removed else 0
            if (
                not seq
                or seq in self._ledger.delete_asked
                or seq <= self._ledger.purged_to
                or newest < removed + 100
            ):
                self._done.wait(0.002)
                continue
            removed = newest if rng.random() < 0.5 else removed
            self._ledger.delete_asked.add(seq)
            answer = client.try_api(f"STREAM.MSG.DELETE.{STREAM}", seq=seq, no_erase=rng.random() < 0.5)
            if answer.get("success"):
                self._ledger.deleted[seq] = time.monotonic()
            elif not self._done.is_set():
                self._ledger.violation("refused", str(answer))


def next_due(server: ServerProcess) -> list[int]:
    """Return the sequences that the consumer delivers now; used for a check after the ack wait."""
    client = Speaker(server.port)
    try:
        return [stream_seq_of(reply) for _, reply in client.pull(STREAM, "worker", 5000)]
    finally:
        client.close()
