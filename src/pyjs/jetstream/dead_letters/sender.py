"""The sender of one consumer's dead letters.

A letter passes through these steps in this order, so that a kill at any moment neither loses it nor stores it twice:

1. The delivery is recorded as given up in the consumer's state. The state is written, with `sync_interval: always` it
   is also synced, and in a cluster the change is committed. From now on, the message is not delivered again, and a
   start of the server continues with step 2.
2. The letter is published to a subject that no other letter has, on the condition that no message with this subject
   is stored. If a message with the id of this letter is stored there, an earlier attempt stored the letter.
3. The PubAck arrives. If the stream that stores the letter is on this server, its files are then synced.
4. The delivery is acknowledged, which may remove the message.

A refused letter stays at step 1. It is sent again after the letters that were not refused, so that a letter which is
too large does not delay others. If all letters of a batch are refused, the letters after them wait too. If there is
no stream for letters (`target` is None), terminated deliveries are acknowledged at once.

Source: docs/dead-letters.md; power cuts and kills in tests/crash/dead.py.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_S
from pyjs.base.errors import NONSENSE, NotNow
from pyjs.jetstream.consumer import letters
from pyjs.jetstream.dead_letters.letter import Origin, has_id, reason_line, reason_of_term
from pyjs.jetstream.dead_letters.questions import Questions, Wait
from pyjs.jetstream.dead_letters.queue import LetterQueue
from pyjs.jetstream.errcodes import STREAM_WRONG_LAST_SEQUENCE
from pyjs.jetstream.rules.dead_letters import problem_of
from pyjs.jetstream.stream.replicated.durable import durable_steps

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from typing import Any

    from pyjs.base.timers import Timer
    from pyjs.core.chore import Step
    from pyjs.jetstream.config.dead_letters import Target
    from pyjs.jetstream.config.stream import StreamConfig
    from pyjs.jetstream.consumer.consumer import Consumer
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.stream.stream import Stream
    from pyjs.store.store import StoredMessage

BATCH = 64  # letters that are published before their answers are awaited
BATCH_SIZE = 1024 * 1024  # bytes of their payloads, unless one is larger
SEQ_DIGITS_MAX = 20  # of 2**64 - 1
ROUNDS_MAX = 8  # of publishes of one letter, each after another message with its subject
STEP = 16  # letters published in one step: about half a millisecond
RETRY_NS, RETRY_MAX_NS = NS_PER_S, 30 * NS_PER_S
NO_ANSWER = "no answer within 5 seconds: no server may lead the stream"
REMOVED = "a message with its subject was removed meanwhile"
OTHERS = "messages that are not this letter arrive with its subject"
UNREADABLE = "the message cannot be read for the moment"


def direct(js: JetStream, stream: Stream, consumer: Consumer, target: Target | None) -> None:
    """Send the dead letters of a consumer to `target` from now on, or stop sending them if `target` is None.

    Without a target, terminated deliveries are acknowledged.
    """
    if target is None:
        consumer.letters, consumer.acks.unsent = None, None
        letters.settle(consumer, list(consumer.acks.terms))
    elif isinstance(consumer.letters, LetterSender):
        consumer.letters.redirect(target)
    else:
        consumer.letters = LetterSender(js, stream, consumer, target)
    consumer.resume()


class LetterSender:
    """The sender of the dead letters of one consumer; `Consumer.letters` refers to it."""

    def __init__(self, js: JetStream, stream: Stream, consumer: Consumer, target: Target) -> None:
        self._js = js
        self._consumer = consumer
        self._origin = Origin(stream.name, stream.created_ns, consumer.name, consumer.created_ns)
        self.target = target
        self.queue = LetterQueue(consumer.acks)
        self._checked: StreamConfig | None = None  # the target's configuration that `_problem` is about
        self._problem = ""  # why the target cannot take letters
        self._sends = False  # `_steps` runs
        self._blocked = False  # nothing is sent before the next attempt
        self._was_refused = False  # whether a refusal was reported since a letter was stored
        self._delay_ns = RETRY_NS  # pause before the next attempt to be planned
        self._timer: Timer | None = None  # of the next attempt

    # -- calls of the consumer ---------------------------------------------------------------------------------

    def term(self, seq: int, cseq: int, reason: str) -> bool:
        """Give up a delivery that a client terminated, and return True.

        False is returned if the delivery is neither pending nor given up.
        """
        return letters.term(self._consumer, seq, cseq, reason_of_term(reason))

    def wake(self) -> None:
        """Begin to send the waiting letters, unless the sender is waiting for its next attempt.

        The caller has already written the consumer's state.
        """
        if not self._blocked and self.queue.has_more():
            self._begin()

    def redirect(self, target: Target) -> None:
        """Use another target for all letters from now on, and forget earlier refusals."""
        self.target, self._checked = target, None
        self.queue.begin()
        self._blocked, self._was_refused, self._delay_ns = False, False, RETRY_NS

    # -- the work ----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if not self._sends:
            self._sends = True
            self._consumer.turn.go_on(self._steps())

    def _steps(self) -> Generator[Step, None, None]:
        """Send all letters of this attempt."""
        try:
            while not self._blocked and self._may_send():
                seqs = self.queue.take(BATCH)
                if seqs is None:
                    yield None
                elif not seqs:
                    break
                else:
                    self._blocked = not (yield from self._send(seqs))
        finally:
            self._rest()

    def _may_send(self) -> bool:
        """Return whether this sender is still in use and its consumer has no unwritten changes."""
        return self._is_current() and self._consumer.acks.changes.is_empty

    def _is_current(self) -> bool:
        return not self._consumer.closed and self._consumer.letters is self

    def _rest(self) -> None:
        """End an attempt, and schedule the next attempt if letters are left."""
        self._sends = False
        if self._consumer.acks.exhausted and self._timer is None and self._is_current():
            shared = self._js.shared
            self._timer = shared.timers.at(shared.clock.now_ns() + self._delay_ns, self._try_again)
            self._delay_ns = min(2 * self._delay_ns, RETRY_MAX_NS)

    def _try_again(self) -> None:
        self._timer = None
        if not self._is_current():  # `acks.unsent` belongs to the queue of another sender
            return
        self._blocked = False
        if self._sends:  # its end makes another attempt later
            return
        self.queue.begin_attempt()
        if self._consumer.acks.exhausted:
            self._consumer.resume()  # its state may not be written yet
            self._begin()

    def _send(self, seqs: list[int]) -> Generator[Step, None, bool]:
        """Send letters, acknowledge the deliveries of those that are stored, and return whether to send more."""
        target = self.target
        problem = self._problem_of_target()
        if not problem and not (yield from self._is_state_durable()):
            problem = "the consumer's state cannot be synced"
        if problem:
            self._refuse(seqs, problem)
            return False
        stored = yield from self._store(seqs, target)
        if stored:
            problem = yield from self._sync(target)
            if problem:
                self._refuse(stored, problem)
                return False
        if self._is_current():
            letters.settle(self._consumer, stored)
        if stored:
            self._delay_ns, self._was_refused = RETRY_NS, False
        return bool(stored) or len(seqs) == 1

    def _problem_of_target(self) -> str:
        """Return the reason why the target stream cannot take letters, or "" if it can.

        The result is cached until the configuration of that stream changes.
        """
        config = self._js.config_of(self.target.stream)
        if config is None or config is not self._checked:
            self._problem = problem_of(self.target, self._origin.stream, config)
            self._checked = config
        return self._problem

    def _is_state_durable(self) -> Generator[Step, None, bool]:
        """With `sync_interval: always`, wait until the consumer's state is synced.

        Returns False if the sync fails, otherwise True.
        """
        keeper = self._consumer.keeper
        if keeper.file is None or not keeper.sync_always:
            return True
        failures: list[Exception | None] = []
        wait = Wait(self._js)

        def done(failure: Exception | None) -> None:
            failures.append(failure)
            wait.end()

        keeper.file.when_synced(done)
        yield wait.park
        return failures == [None]

    def _store(self, seqs: list[int], target: Target) -> Generator[Step, None, list[int]]:
        """Publish letters, and return the sequences of those that are stored or whose messages were removed."""
        messages, stored = self._load(seqs)
        last_seqs = dict.fromkeys(messages, 0)  # the last sequence that the subject of each letter must have
        with Questions(self._js) as questions:
            for _ in range(ROUNDS_MAX):
                if not last_seqs:
                    break
                yield from self._publish(questions, messages, last_seqs, target)
                earlier = {}
                for seq in last_seqs:
                    found = self._judge(seq, questions.answers.get(seq), target.stream)
                    if found == 0:
                        stored.append(seq)
                    elif found > last_seqs[seq]:
                        earlier[seq] = found
                    elif found > 0:
                        self._refuse([seq], REMOVED)
                stored += yield from self._stored_before(questions, messages, earlier, target)
                last_seqs = {seq: last for seq, last in earlier.items() if seq not in stored}
        self._refuse(last_seqs, OTHERS)
        return stored

    def _load(self, seqs: list[int]) -> tuple[dict[int, StoredMessage], list[int]]:
        """Return the messages at `seqs` by sequence, and a list of the sequences whose messages no longer exist.

        Loading stops if the next message would make the total exceed BATCH_SIZE bytes, but one message is always
        loaded. The letters of unreadable messages are refused.
        """
        messages: dict[int, StoredMessage] = {}
        gone: list[int] = []
        size = 0
        for seq in seqs:
            try:
                message = self._consumer.store.get(seq)
            except NotNow:
                self._refuse([seq], UNREADABLE)
                continue
            if message is None:
                gone.append(seq)
                continue
            size += len(message.payload) + len(message.headers)
            if size > BATCH_SIZE and messages:
                break
            messages[seq] = message
        return messages, gone

    def _publish(
        self,
        questions: Questions,
        messages: dict[int, StoredMessage],
        last_seqs: dict[int, int],
        target: Target,
    ) -> Generator[Step, None, None]:
        acks = self._consumer.acks
        for number, (seq, last_seq) in enumerate(last_seqs.items()):
            if number and number % STEP == 0:
                yield None
            reason = reason_line(acks.terms.get(seq))
            message, deliveries = messages[seq], acks.exhausted.get(seq, 0)
            if not deliveries:  # it was acknowledged meanwhile
                questions.answers.pop(seq, None)
                continue
            headers = self._origin.headers_of(message, reason, deliveries, target.stream, last_seq)
            subject = self._origin.subject_of(target.prefix, message)
            questions.ask(seq, subject, message.payload, headers)
        yield from questions.wait()

    def _judge(self, seq: int, answer: dict[str, Any] | None, stream: str) -> int:
        """Return 0 if a letter is stored, or the actual last sequence of its subject if another one was expected.

        In all other cases, -1 is returned, and the letter is refused unless its delivery was acknowledged meanwhile.
        """
        if answer is None:
            if seq in self._consumer.acks.exhausted:
                self._refuse([seq], NO_ANSWER)
            return -1
        error = answer.get("error")
        if not isinstance(error, dict):
            if answer.get("seq") and answer.get("stream") == stream:
                return 0
            self._refuse([seq], f"the answer is no PubAck of the stream {stream}")
            return -1
        text = _text_of(error)
        if error.get("err_code") == STREAM_WRONG_LAST_SEQUENCE.err_code:
            last = text.rpartition(" ")[2]
            if last.isdecimal() and len(last) <= SEQ_DIGITS_MAX and int(last):
                return int(last)
        self._refuse([seq], text)
        return -1

    def _stored_before(
        self,
        questions: Questions,
        messages: dict[int, StoredMessage],
        found: dict[int, int],
        target: Target,
    ) -> Generator[Step, None, list[int]]:
        """Return the sequences of the letters that an earlier attempt has stored.

        `found` maps the sequence of each letter to the sequence of the last stored message with the letter's subject.
        If the stored message cannot be read, the letter is refused and removed from `found`.
        """
        for seq, last in found.items():
            questions.ask(seq, f"$JS.API.STREAM.MSG.GET.{target.stream}".encode(), b'{"seq":%d}' % last)
        yield from questions.wait()
        stored = []
        for seq in list(found):
            answer = questions.answers.get(seq)
            if answer is None:
                self._refuse([seq], NO_ANSWER)
                del found[seq]
            elif "message" not in answer:  # nothing is known of the message, so it may be the letter
                self._refuse([seq], _text_of(answer.get("error")))
                del found[seq]
            elif has_id(_headers_in(answer), self._origin.id_of(messages[seq])):
                stored.append(seq)
        return stored

    def _sync(self, target: Target) -> Generator[Step, None, str]:
        """Wait until the stored letters are durable, and return ""; if they cannot be synced, return the reason."""
        stream = self._js.streams.get(target.stream)
        if stream is None or stream.sync_always or stream.replica is not None:
            return ""  # its PubAcks say so, or it is on another server
        yield from durable_steps(stream)
        if stream.closed or stream.store.failed:
            return f'the stream "{target.stream}" was closed, or cannot be synced'
        return ""

    # -- refusals ----------------------------------------------------------------------------------------------

    def _refuse(self, seqs: Iterable[int], problem: str) -> None:
        """Postpone letters to the next attempt, and report the first refusal since a letter was stored."""
        for seq in seqs:
            self.queue.refuse(seq, problem)
            if self._was_refused:
                continue
            self._was_refused = True
            consumer, shared = self._consumer, self._js.shared
            shared.log.warn(
                f"JetStream consumer '{consumer.path}' dead letters wait for stream {self.target.stream!r}: {problem}"
            )
            consumer.events.send(
                "dead_letter_refused", shared.clock.wall_ns(), stream_seq=seq, reason=problem
            )


def _text_of(error: object) -> str:
    """Return the description of the error in an API answer, or a fixed text if `error` is not an object."""
    return str(error.get("description", "")) if isinstance(error, dict) else "the answer has no message"


def _headers_in(answer: dict[str, Any]) -> bytes:
    """Return the headers of the message in an answer to STREAM.MSG.GET, or b"" if they are missing or invalid."""
    try:
        return base64.b64decode(answer["message"]["hdrs"])
    except NONSENSE:
        return b""
