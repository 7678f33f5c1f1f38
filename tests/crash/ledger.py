"""The answers that clients got from a server before it was killed, and checks of its store afterwards.

Every payload begins with its message id and is published again, under the same id, until it is acknowledged. So each
message must be stored at most once, and once acknowledged it must keep the sequence that its PubAck gave.
"""

from __future__ import annotations

import threading
import time
from collections import Counter


class Ledger:
    """One stream and its consumer, over many restarts of the server. Threads of a cycle write to it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.acked: dict[bytes, int] = {}  # message id -> sequence of its PubAck
        self.acked_at: dict[bytes, float] = {}
        self.unacked: set[bytes] = set()  # sent to a server that was killed before it answered
        self.delete_asked: set[int] = set()
        self.deleted: dict[int, float] = {}  # sequence -> time at which the deletion was confirmed
        self.settle_sent: set[int] = set()
        self.settled: dict[int, float] = {}  # sequence -> time at which the consumer's ack was confirmed
        self.purged_to = 0
        self.found: Counter[str] = Counter()  # violation -> how often it was found
        self.examples: list[str] = []

    def ack(self, message_id: bytes, seq: int) -> int:
        """Record a PubAck; return the number of PubAcks so far."""
        with self.lock:
            before = self.acked.get(message_id, seq)
            if before != seq:
                self.violation("moved", f"{message_id.decode()} was {before}, is acknowledged as {seq}")
            self.acked[message_id] = seq
            self.acked_at[message_id] = time.monotonic()
            self.unacked.discard(message_id)
            return len(self.acked)

    def violation(self, name: str, text: str, count: int = 1) -> None:
        """Count a violation, with an example."""
        self.found[name] += count
        if sum(each.startswith(f"{name}:") for each in self.examples) < 3:
            self.examples.append(f"{name}: {text}")

    def forget(self, up_to: int) -> None:
        """Forget the messages up to a sequence, because the stream was purged."""
        self.purged_to = up_to
        self.acked.clear()
        self.acked_at.clear()
        self.unacked.clear()

    def check_messages(self, messages: list[tuple[int, bytes]], first_seq: int, last_seq: int) -> set[bytes]:
        """Compare the stream with what was acknowledged; return the ids of acknowledged messages that are lost."""
        seqs = [seq for seq, _ in messages]
        ids = Counter(payload.split(b" ", 1)[0] for _, payload in messages)
        by_id = {payload.split(b" ", 1)[0]: seq for seq, payload in messages}
        for message_id, count in ids.items():
            if count > 1:
                self.violation("duplicate", f"{message_id.decode()} is there {count} times")
        if seqs != sorted(set(seqs)):
            self.violation("order", "sequences do not rise")
        gaps = set(range(first_seq, last_seq + 1)) - set(seqs) - self.delete_asked
        if gaps:
            self.violation("gap", f"{len(gaps)} from {min(gaps)} to {max(gaps)}", len(gaps))
        risen = set(self.deleted) & set(seqs)
        if risen:
            self.violation("risen", f"{sorted(risen)[:5]} were removed", len(risen))
        lost = {
            each for each, seq in self.acked.items() if each not in by_id and seq not in self.delete_asked
        }
        moved = {each for each, seq in self.acked.items() if by_id.get(each, seq) != seq}
        if moved:
            self.violation("moved", f"{len(moved)} such as {min(moved).decode()}", len(moved))
        return lost

    def check_floor(self, floor: int) -> None:
        """Check that the ack floor covers only messages that a client acknowledged or removed."""
        fair = self.settle_sent | self.delete_asked
        ahead = [seq for seq in range(self.purged_to + 1, floor + 1) if seq not in fair]
        if ahead:
            self.violation("floor ahead", f"floor {floor}, {ahead[:3]} were never acknowledged", len(ahead))
