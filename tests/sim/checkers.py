"""The answers that clients got, and checks that the server keeps the promises in them.

A `Publish` is one message that was sent; the payload of each message has its number. Every answer is a promise:
- an acknowledged message is stored under its sequence, until a request or a limit explains its removal;
- a message whose removal was confirmed does not come back;
- an acknowledged sequence is never used for another message;
- a message id is stored once within its window;
- a publish with an expectation succeeds only if the expectation was true.
With `always`, and after kill -9, all promises hold. After a power cut in interval mode, `take_back` withdraws the
promises of the last interval, since the server does not guarantee these.

The checks use neither the implementation of the server nor its files.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyjs.store.store import StoredMessage

NS_PER_S = 1_000_000_000
# a smaller step of the clock backwards does not change the order of messages; restarts make half of these steps
STEP_NS = NS_PER_S
OVERHEAD, HEADER_OVERHEAD = 30, 4  # bytes that a stored message counts in addition to its content


class Violation(AssertionError):
    """The server broke one of its guarantees."""


def demand(condition: object, text: str) -> None:
    """Raise Violation unless `condition`."""
    if not condition:
        raise Violation(text)


@dataclass(eq=False)
class Publish:
    """One message that was sent."""

    number: int
    subject: str
    size: int
    sent_ns: int
    msg_id: str = ""
    expected_seq: int | None = None
    expected_subject_seq: int | None = None
    rollup: str = ""
    known_last: int = 0  # last sequence known to clients when the message was sent
    known_of_subject: Publish | None = None  # last known message of the subject at that time
    seq: int = 0  # sequence in an answer, or at which the message was read
    told_ns: int = 0  # time of the acknowledgement; 0: none
    refused: bool = False  # certainly refused, so it must never be stored
    duplicate: bool = False
    shaky: bool = False  # in flight when a sync failed: it is never certain whether it is on the medium

    def __str__(self) -> str:
        return f"message #{self.number} ({self.subject}, seq {self.seq})"


@dataclass(eq=False)
class Removal:
    """A requested deletion or purge."""

    high_seq: int  # highest acknowledged sequence at the time of the request
    seq: int = 0  # sequence of a single deleted message
    subject: str = ""  # filter of a purge; "": all
    below: int = 0
    keep: int = 0
    told_ns: int = 0
    done_number: int = 0  # number of the last message sent before the answer; 0: no answer

    def concerns(self, publish: Publish) -> bool:
        """Whether the request may have removed the message."""
        if self.done_number and publish.number > self.done_number:
            return False
        if self.seq:
            return publish.seq == self.seq
        if self.below and publish.seq >= self.below:
            return False
        return not self.subject or self.subject == publish.subject

    def must_have_removed(self, publish: Publish) -> bool:
        """Whether the message must have been removed."""
        if not self.told_ns or self.keep or not self.concerns(publish):
            return False
        return bool(self.seq) or (publish.told_ns > 0 and publish.seq <= self.high_seq)


@dataclass(eq=False)
class ConsumerModel:
    """The messages and answers of one pull consumer."""

    name: str
    subject: str  # filter; "": all
    ack_all: bool
    max_deliver: int
    number: int = 1 << 62  # number of the last message sent before the consumer was known to exist
    exists: bool | None = None  # None: unknown
    deleting: bool = False
    # number of deliveries, as seen or as told by the server if that is higher, by number of the publish
    delivered: dict[int, int] = field(default_factory=dict)
    # time of an ack that was sent and may be lost, by number of the publish
    acked: dict[int, int] = field(default_factory=dict)
    # time of a confirmed ack, by number of the publish
    confirmed: dict[int, int] = field(default_factory=dict)
    # time of the start that found the consumer although its creation was not confirmed; 0: it was confirmed
    adopted_ns: int = 0
    waiting: list[tuple[str, Publish]] = field(default_factory=list)  # ack subjects that were not used yet
    start_seq: int = 0  # messages before the last reset need not be delivered
    resetting: bool = False  # a reset was requested and not answered yet
    resets: int = 0

    def wants(self, publish: Publish) -> bool:
        """Return whether the filter matches a message."""
        return not self.subject or self.subject == publish.subject

    def deliver(self, publish: Publish, count: int) -> None:
        """Check and count a delivery."""
        again = publish.number in self.confirmed
        demand(not again, f"{publish} delivered again to {self.name} after its ack was confirmed")
        demand(self.wants(publish), f"{publish} delivered to {self.name}, which filters {self.subject}")
        demand(
            self.max_deliver < 0 or count <= self.max_deliver,
            f"{publish} delivered {count} times to {self.name}",
        )
        # a kill may have lost an earlier delivery on its way to the client, but the server has counted it
        self.delivered[publish.number] = max(self.delivered.get(publish.number, 0) + 1, count)


class StreamModel:
    """The messages and answers of one stream, from its creation to its deletion."""

    def __init__(self, name: str, config: dict[str, object], moment: Callable[[], int]) -> None:
        self.name = name
        self.config = config
        self.moment = moment  # returns a time that never goes backwards, over all processes
        self.exists: bool | None = None  # None: unknown
        # time of the start that found the stream although its creation was not confirmed; 0: it was confirmed
        self.adopted_ns = 0
        self.deleting = False
        self.publishes: dict[int, Publish] = {}
        self.at: dict[int, Publish] = {}  # messages by sequence, as acknowledged or read
        self.removals: list[Removal] = []
        self.consumers: dict[str, ConsumerModel] = {}
        self.former_consumers: list[ConsumerModel] = []
        # earlier configurations, whose limits may have removed messages
        self.old_limits: list[dict[str, object]] = []
        self.max_seq = 0  # highest acknowledged sequence
        self.tainted = (
            # a sync failed: later data in the same file may depend on bytes that never reach the medium
            False
        )
        self.cut = False  # removed messages may have come back, after a power cut or a kill within a call
        self.latest_ns = 0  # the latest time of any process so far
        self.set_back: list[int] = []  # last sequences at starts that found the clock set back
        self.present: dict[int, Publish] = {}  # messages that the last audit found, by sequence

    # -- answers -------------------------------------------------------------------------------------------

    def acked(self, publish: Publish, seq: int, now_ns: int) -> None:
        """Check a PubAck without `duplicate`."""
        demand(seq > 0, f"{publish} acknowledged with sequence {seq}")
        other = self.at.get(seq)
        demand(other is None or other is publish, f"{publish} acknowledged with {seq}, which is {other}")
        demand(not publish.seq or publish.seq == seq, f"{publish} acknowledged with {seq}")
        if publish.expected_seq is not None:
            demand(
                seq == publish.expected_seq + 1, f"{publish}: expected last {publish.expected_seq}, got {seq}"
            )
        if publish.expected_subject_seq is not None:
            self._subject_expectation_met(publish, seq)
        if publish.msg_id:
            self._no_twin(publish, seq, now_ns)
        publish.seq, publish.told_ns = seq, self.moment()
        self.at[seq] = publish
        self.max_seq = max(self.max_seq, seq)

    def _subject_expectation_met(self, publish: Publish, seq: int) -> None:
        expected = publish.expected_subject_seq
        assert expected is not None
        for other in self.at.values():
            if other.subject != publish.subject:
                demand(
                    other.seq != expected, f"{publish}: expected {expected} of its subject, which is {other}"
                )
            elif expected < other.seq < seq and other.told_ns:
                demand(
                    self.excuse(other), f"{publish}: expected {expected} of its subject, but there is {other}"
                )

    def _no_twin(self, publish: Publish, seq: int, now_ns: int) -> None:
        """Check that no other message within the window has the id of the acknowledged message `publish`."""
        window = int(str(self.config["duplicate_window"]))
        # An id that left the window in one process stays forgotten, even if the clock of the next one is behind.
        latest_ns = max(now_ns, self.latest_ns)
        for other in self.at.values():
            if other.msg_id != publish.msg_id or other is publish or not other.told_ns or other.seq >= seq:
                continue
            if (
                publish.sent_ns >= other.sent_ns
                and latest_ns - other.sent_ns < window
                and not self.excuse(other)
            ):
                raise Violation(f"{publish} stored as {seq} although {other} has its id {publish.msg_id}")

    def duplicated(self, publish: Publish, seq: int) -> None:
        """Check a PubAck with `duplicate`: the message at that sequence has the same id, and is now acknowledged."""
        publish.duplicate = True
        other = self.at.get(seq)
        if other is None:  # the answer to that message was lost
            candidates = [
                each
                for each in self.publishes.values()
                if each is not publish
                and each.msg_id == publish.msg_id
                and not each.seq
                and not (each.refused or each.duplicate)
            ]
            demand(candidates, f"{publish} is called a duplicate of {seq}, but nothing else has its id")
            if len(candidates) > 1:
                return
            other = candidates[0]
            other.seq = seq
            self.at[seq] = other
        demand(
            other.msg_id == publish.msg_id,
            f"{publish} with id {publish.msg_id} called a duplicate of {other}",
        )
        if not other.told_ns:
            other.told_ns = self.moment()
            self.max_seq = max(self.max_seq, seq)

    def refused(self, publish: Publish, err_code: int, last: int | None) -> None:
        """Check an error, after which the message must not be stored."""
        publish.refused = True
        if err_code != 10071 or last is None:
            return
        if publish.expected_subject_seq is None and publish.expected_seq is not None:
            demand(last != publish.expected_seq, f"{publish}: expected {last}, as it is, and was refused")
            demand(
                last >= publish.known_last, f"{publish}: last is {last} where {publish.known_last} was told"
            )
        elif publish.expected_subject_seq is not None and publish.expected_seq is None:
            demand(
                last != publish.expected_subject_seq, f"{publish}: expected {last}, as it is, and was refused"
            )
            other = self.at.get(last)
            demand(
                other is None or other.subject == publish.subject,
                f"{publish}: last of its subject is {other}?",
            )
            known = publish.known_of_subject
            if known is not None and known.seq > last:
                demand(self.excuse(known), f"{publish}: last of its subject {last}, but there is {known}")

    def see(self, publish: Publish, seq: int) -> None:
        """Check a message that was read at a sequence."""
        other = self.at.get(seq)
        demand(other is None or other is publish, f"sequence {seq} is message #{publish.number}, was {other}")
        demand(publish.seq in (0, seq), f"{publish} is there as {seq} as well")
        demand(not publish.refused, f"{publish} was refused and is there as {seq}")
        demand(not publish.duplicate, f"{publish} was called a duplicate and is there as {seq}")
        publish.seq = seq
        self.at[seq] = publish

    # -- crashes -------------------------------------------------------------------------------------------

    def take_back(self, since_ns: int, found_since_ns: int) -> None:
        """After a power cut, withdraw promises made after `since_ns`; unacknowledged messages may be lost.

        The existence of a stream or consumer becomes unknown too, if its creation was not confirmed and only a start
        later than `found_since_ns` has found it.
        """
        for publish in list(self.at.values()):
            if publish.told_ns == 0 or publish.told_ns > since_ns or publish.shaky or self.tainted:
                publish.told_ns = 0
        if self.adopted_ns > found_since_ns:
            self.exists = None
        for removal in self.removals:
            if removal.told_ns > since_ns:
                removal.told_ns = 0
        for consumer in self.consumers.values():
            if consumer.adopted_ns > found_since_ns:
                consumer.exists = None
            for number in [number for number, told_ns in consumer.confirmed.items() if told_ns > since_ns]:
                del consumer.confirmed[number]
        for publish in self.publishes.values():
            publish.shaky = False  # a later answer is certain again
        self.tainted = False
        self.max_seq = max((each.seq for each in self.at.values() if each.told_ns), default=0)

    def doubt(self, since_ns: int) -> None:
        """After a failed sync, mark answers later than `since_ns` as uncertain, regardless of later syncs."""
        for publish in self.publishes.values():
            publish.shaky = publish.shaky or publish.told_ns == 0 or publish.told_ns > since_ns
        for removal in self.removals:
            removal.told_ns = 0 if removal.told_ns > since_ns else removal.told_ns
        for consumer in self.consumers.values():
            consumer.confirmed = {
                n: told_ns for n, told_ns in consumer.confirmed.items() if told_ns <= since_ns
            }

    def renew(self, since_ns: int) -> None:
        """After a kill, treat answers later than `since_ns` as if they were given now.

        The next process must sync the data that these answers acknowledged.
        """
        now_ns = self.moment()
        told: list[Publish | Removal] = [*self.at.values(), *self.removals]
        for each in told:
            if each.told_ns > max(since_ns, 0):
                each.told_ns = now_ns
        if self.adopted_ns:
            self.adopted_ns = now_ns
        for consumer in self.consumers.values():
            if consumer.adopted_ns:
                consumer.adopted_ns = now_ns
            for number, told_ns in consumer.confirmed.items():
                if told_ns > since_ns:
                    consumer.confirmed[number] = now_ns

    def forget_lost(self, present: dict[int, Publish]) -> None:
        """After a power cut, forget the sequences of unacknowledged messages that are missing."""
        for seq, publish in list(self.at.items()):
            if publish.told_ns == 0 and seq not in present:
                publish.seq = 0
                del self.at[seq]

    # -- excuses -------------------------------------------------------------------------------------------

    def excuse(self, publish: Publish) -> str:
        """Return the reason why a message may be missing, or "" if it must be stored."""
        for removal in self.removals:
            if removal.concerns(publish):
                return "removed"
        later = [
            each
            for each in self.publishes.values()
            if each is not publish
            and each.number > publish.number
            and not (each.refused or each.duplicate)
            and (not each.seq or each.seq > publish.seq)
        ]
        if any(each.rollup == "all" or (each.rollup and each.subject == publish.subject) for each in later):
            return "rolled up"
        for limits in (self.config, *self.old_limits):
            if reason := self._limit(limits, publish, later):
                return reason
        return self._settled(publish)

    def _limit(self, limits: dict[str, object], publish: Publish, later: list[Publish]) -> str:
        max_msgs, max_bytes = int(str(limits["max_msgs"])), int(str(limits["max_bytes"]))
        max_age, per_subject = int(str(limits["max_age"])), int(str(limits["max_msgs_per_subject"]))
        if max_age and publish.sent_ns + max_age <= self.latest_ns:
            return "too old"
        if per_subject > 0 and sum(each.subject == publish.subject for each in later) >= per_subject:
            return "too many of its subject"
        if limits["discard"] == "new":
            return ""
        if 0 < max_msgs <= len(later):
            return "too many"
        if max_bytes > 0 and sum(each.size + 200 for each in later) + publish.size + 200 > max_bytes:
            return "too many bytes"
        return ""

    def _settled(self, publish: Publish) -> str:
        if self.config["retention"] == "limits":
            return ""
        everyone = [*self.consumers.values(), *self.former_consumers]
        if self.config["retention"] == "workqueue":
            return "acked" if any(publish.number in each.acked for each in everyone) else ""
        for each in self.consumers.values():
            stable = each.exists and not each.deleting and each.number < publish.number
            if stable and each.wants(publish) and publish.number not in each.acked:
                return ""
        return "of no interest"

    # -- audit ---------------------------------------------------------------------------------------------

    def audit(
        self,
        messages: list[StoredMessage],
        state: dict[str, int],
        now_ns: int,
        young: bool,
        restarted: bool,
        power: bool,
    ) -> None:
        """Compare the stored messages with all promises; `young` means that timers have not fired yet."""
        present: dict[int, Publish] = {}
        for message in messages:
            present[message.seq] = self._recognise(message)
        if restarted and power:
            self.forget_lost(present)
        for seq, publish in present.items():
            self.see(publish, seq)
        demand(len({each.number for each in present.values()}) == len(present), "a message is there twice")
        self._check_state(messages, state)
        self._check_loss(present)
        self._check_removals(present)
        self._check_ids(messages, present)
        self._check_limits(messages, present, now_ns, young)
        self._check_order(messages)
        if restarted:
            self._note_step(messages, state["last_seq"], now_ns)
            self._check_acked_are_gone(present)
            if not power:
                self._check_rollups(present)
        self.present = present

    def _check_rollups(self, present: dict[int, Publish]) -> None:
        """After a kill, a stored roll-up has removed all older messages that it replaces."""
        for seq, rollup in present.items():
            for older, publish in present.items():
                is_replaced = rollup.rollup == "all" or publish.subject == rollup.subject
                demand(
                    not (rollup.rollup and older < seq and is_replaced),
                    f"{self.name}: {publish} is there as {older}, but {seq} is a roll-up of it",
                )

    def _recognise(self, message: StoredMessage) -> Publish:
        number, _, rest = message.payload.partition(b".")
        publish = self.publishes.get(int(number)) if number.isdigit() else None
        demand(publish is not None, f"{self.name}: {message.seq} is no message of this stream")
        assert publish is not None
        demand(
            message.subject.decode() == publish.subject
            and len(message.payload) == publish.size
            and not rest.strip(b"x"),
            f"{self.name}: {publish} is there with other bytes",
        )
        return publish

    def _check_state(self, messages: list[StoredMessage], state: dict[str, int]) -> None:
        demand(state["messages"] == len(messages), f"{self.name}: {state} and {len(messages)} messages")
        size = sum(
            OVERHEAD
            + len(m.subject)
            + len(m.headers)
            + len(m.payload)
            + (HEADER_OVERHEAD if m.headers else 0)
            for m in messages
        )
        demand(state["bytes"] == size, f"{self.name}: {state} and {size} bytes")
        demand(state["last_seq"] >= self.max_seq, f"{self.name}: {state} and {self.max_seq} was told")
        first = messages[0].seq if messages else state["last_seq"] + 1
        if state["last_seq"]:
            demand(state["first_seq"] == first, f"{self.name}: {state} and {first} is the first")
        if messages:
            demand(
                messages[-1].seq <= state["last_seq"], f"{self.name}: {state} and {messages[-1].seq} is there"
            )
            gaps = state["last_seq"] - first + 1 - len(messages)
            demand(state.get("num_deleted", 0) == gaps, f"{self.name}: {state} and {gaps} gaps")

    def _check_loss(self, present: dict[int, Publish]) -> None:
        for seq, publish in self.at.items():
            if publish.told_ns and seq not in present:
                demand(self.excuse(publish), f"{self.name}: {publish} was acknowledged and is gone")

    def _check_removals(self, present: dict[int, Publish]) -> None:
        for removal in self.removals:
            if removal.told_ns:
                for publish in present.values():
                    demand(
                        not removal.must_have_removed(publish),
                        f"{self.name}: {publish} was removed and is there",
                    )

    def _check_ids(self, messages: list[StoredMessage], present: dict[int, Publish]) -> None:
        window = int(str(self.config["duplicate_window"]))
        last: dict[str, StoredMessage] = {}
        for message in messages:
            msg_id = present[message.seq].msg_id
            if msg_id and msg_id in last:
                apart = message.ts - last[msg_id].ts
                # After the clock was set back, the times of messages are ahead of it.
                demand(
                    apart >= window - 3 * NS_PER_S // 2,
                    f"{self.name}: id {msg_id} is there twice: {last[msg_id].seq}, {message.seq}",
                )
            if msg_id:
                last[msg_id] = message

    def _check_limits(
        self, messages: list[StoredMessage], present: dict[int, Publish], now_ns: int, young: bool
    ) -> None:
        max_msgs, max_age = int(str(self.config["max_msgs"])), int(str(self.config["max_age"]))
        per_subject = int(str(self.config["max_msgs_per_subject"]))
        shrunk = self.config["discard"] == "new" and (self.old_limits or self.cut)  # excess messages remain
        demand(
            max_msgs <= 0 or shrunk or len(messages) <= max_msgs,
            f"{self.name}: {len(messages)} messages of {max_msgs}",
        )
        if max_age and messages and not young:
            age = now_ns - messages[0].ts
            demand(age < max_age + 2 * NS_PER_S, f"{self.name}: {messages[0].seq} is {age / NS_PER_S} s old")
        if per_subject > 0:
            subjects = [each.subject for each in present.values()]
            for subject in set(subjects):
                demand(subjects.count(subject) <= per_subject, f"{self.name}: too many of {subject}")

    def _check_order(self, messages: list[StoredMessage]) -> None:
        for before, after in itertools.pairwise(messages):
            # The size of the step is unknown, since the first messages after it may be missing.
            stepped = any(before.seq <= last_seq < after.seq for last_seq in self.set_back)
            demand(before.ts < after.ts or stepped, f"{self.name}: {after.seq} is older than {before.seq}")

    def _note_step(self, messages: list[StoredMessage], last_seq: int, now_ns: int) -> None:
        """Record after a start whether new messages may have earlier times than the stored messages."""
        is_known = bool(messages) and messages[-1].seq == last_seq  # otherwise the last message was removed
        last_ns = messages[-1].ts if is_known else self.latest_ns
        self.set_back = [seq for seq in self.set_back if seq < last_seq]
        if last_ns - now_ns >= STEP_NS:
            self.set_back.append(last_seq)

    def _check_acked_are_gone(self, present: dict[int, Publish]) -> None:
        if self.config["retention"] == "workqueue":
            for consumer in self.consumers.values():
                for publish in present.values():
                    demand(
                        publish.number not in consumer.confirmed,
                        f"{self.name}: the ack of {publish} by {consumer.name} was confirmed, and it is there",
                    )

    def audit_consumer(self, consumer: ConsumerModel, info: dict[str, object], counted: bool) -> None:
        """Check the ack floor of a consumer and, if `counted`, its num_pending."""
        floor, delivered = info["ack_floor"], info["delivered"]
        assert isinstance(floor, dict)
        assert isinstance(delivered, dict)
        for seq, publish in self.present.items():
            if (
                consumer.start_seq <= seq <= floor["stream_seq"]
                and consumer.wants(publish)
                and publish.number not in consumer.acked
            ):
                exhausted = 0 < consumer.max_deliver <= consumer.delivered.get(publish.number, 0)
                # A removed message may be back after a power cut; the consumer need not deliver it again.
                demand(
                    exhausted or self.excuse(publish),
                    f"{consumer.name}: floor {floor} is ahead of {publish}, which was not acknowledged",
                )
        due = [
            publish
            for seq, publish in self.present.items()
            if seq > delivered["stream_seq"] and consumer.wants(publish)
        ]
        # A removed message that is back after a power cut may or may not be counted.
        sure = [publish for publish in due if not self.excuse(publish)]
        pending = info["num_pending"]
        assert isinstance(pending, int)
        demand(
            not counted or len(sure) <= pending <= len(due),
            f"{consumer.name}: num_pending {pending}, due {[each.seq for each in due]}, {delivered}",
        )
