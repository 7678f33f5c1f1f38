"""The replay of dead letters: the messages in them are published again, to their original subjects.

A letter is removed only after its message is stored again and, if the message's stream is on this server, synced. The
message id of a replayed message identifies the letter. So if the replay is repeated within the duplicate window of
the stream, the message is not stored twice.

Clients can publish messages that look like letters. So a replay publishes the message of a letter only to a subject
of the stream that the letter names, and never to a subject of the API.

Source: docs/dead-letters.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pyjs.base.errors import NotNow, StoreFailed
from pyjs.jetstream import errcodes
from pyjs.jetstream.dead_letters.letter import Letter, read_letter, replay_headers
from pyjs.jetstream.dead_letters.questions import Questions
from pyjs.jetstream.stream.replicated import operations
from pyjs.jetstream.stream.replicated.durable import durable_steps
from pyjs.subjects.tokens import is_subset, subject_matches

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from pyjs.core.chore import Step
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.stream.stream import Stream
    from pyjs.store.store import StoredMessage

BATCH = 64  # letters that are replayed before their answers are awaited
BATCH_SIZE = 1024 * 1024  # bytes of their payloads, unless one is larger
READ_STEP = 64  # messages read in one step: about half a millisecond
# Bytes of headers parsed in one step, unless one message has more: at most two milliseconds.
READ_SIZE = 16 * 1024
SEND_STEP = 16  # messages published or removed in one step
SUBJECTS_STEP = 4096  # subjects of a stream compared in one step: about half a millisecond
EXAMINED_MAX = 100_000  # messages that one request examines
ERRORS_MAX = 10  # refusals in the answer
NO_ANSWER = "no answer within 5 seconds"
_RESERVED = (b"$JS.", b"$JSC.", b"$NRG.", b"$SYS.")


class Wanted(NamedTuple):
    """A selection of letters to replay.

    An empty `stream`, `consumer`, `subject` or `reason` matches all letters.
    """

    seq: int
    limit: int
    stream: bytes = b""
    consumer: bytes = b""
    subject: bytes = b""
    reason: bytes = b""
    keep: bool = False

    def matches(self, letter: Letter) -> bool:
        """Return whether a letter matches this selection.

        `reason` is compared as a prefix, and `subject` may have wildcards.
        """
        return (
            self.stream in (b"", letter.stream)
            and self.consumer in (b"", letter.consumer)
            and letter.reason.startswith(self.reason)
            and (not self.subject or subject_matches(letter.subject, self.subject))
        )


@dataclass(slots=True)
class Result:
    """The numbers of replayed, failed and skipped messages of a replay, and its first errors."""

    replayed: int = 0
    failed: int = 0
    skipped: int = 0
    next_seq: int = 0  # 0: there are no more messages
    errors: list[dict[str, Any]] = field(default_factory=list)

    def fail(self, seq: int, error: str) -> None:
        """Count a letter that could not be replayed, and keep its error unless ERRORS_MAX errors are kept already."""
        self.failed += 1
        if len(self.errors) < ERRORS_MAX:
            self.errors.append({"seq": seq, "error": error})


class Replay:
    """One request to replay dead letters, and its progress."""

    def __init__(self, js: JetStream, stream: Stream, wanted: Wanted) -> None:
        self._js = js
        self._stream = stream
        self._wanted = wanted
        self._seq = wanted.seq
        self._end_seq = stream.store.last_seq  # letters that arrive later are left to the next request
        self._left = EXAMINED_MAX
        self._everything = stream.store.make_filter(())
        self.result = Result()

    def steps(self) -> Generator[Step, None, Result]:
        """Replay the letters, and return the result.

        Raises:
            ApiError: the stream of the letters was closed, or a letter cannot be read or removed.
        """
        result, found = self.result, True
        with Questions(self._js) as questions:
            while found and result.replayed + result.failed < self._wanted.limit:
                batch = yield from self._read()
                found = bool(batch) and (yield from self._replay(questions, batch))
        result.next_seq = self._next()
        return result

    def _next(self) -> int:
        """Return the sequence of the next message to examine, or 0 if there is none.

        Raises:
            ApiError: the stream of the letters was closed.
        """
        errcodes.STREAM_NOT_FOUND.raise_if(self._stream.closed)
        return self._stream.store.catalogue.next_match(self._seq, self._everything)

    def _read(self) -> Generator[Step, None, list[tuple[StoredMessage, Letter]]]:
        """Return the next letters that match the request, each with the message that stores it.

        Messages that are not letters are counted as skipped.
        """
        batch: list[tuple[StoredMessage, Letter]] = []
        room = min(BATCH, self._wanted.limit - self.result.replayed - self.result.failed)
        size = read = parsed = 0
        while (
            len(batch) < room
            and size < BATCH_SIZE
            and 0 < (seq := self._next()) <= self._end_seq
            and self._left
        ):
            self._left -= 1
            message = self._get(seq)
            self._seq = seq + 1
            letter = None if message is None else read_letter(message.headers)
            if message is None or letter is None:
                self.result.skipped += 1
            elif self._wanted.matches(letter):
                batch.append((message, letter))
                size += len(message.payload) + len(message.headers)
            read += 1
            parsed += 0 if message is None else len(message.headers)
            if read == READ_STEP or parsed >= READ_SIZE:
                read = parsed = 0
                yield None
        return batch

    def _get(self, seq: int) -> StoredMessage | None:
        try:
            return self._stream.store.get(seq)
        except NotNow:
            raise errcodes.INSUFFICIENT_RESOURCES.error() from None

    def _replay(
        self, questions: Questions, batch: list[tuple[StoredMessage, Letter]]
    ) -> Generator[Step, None, bool]:
        """Publish the original messages of letters, and remove the letters whose messages are stored.

        With `keep`, no letter is removed. Returns whether the replay should continue.
        """
        sent: dict[int, Letter] = {}
        for number, (message, letter) in enumerate(batch):
            if number % SEND_STEP == SEND_STEP - 1:
                yield None
            problem = yield from self._problem_of(letter)
            if problem:
                self.result.fail(message.seq, problem)
                continue
            sent[message.seq] = letter
            headers = replay_headers(letter, self._stream.name, self._stream.created_ns, message.seq)
            questions.ask(message.seq, letter.subject, message.payload, headers)
        yield from questions.wait()
        stored = [seq for seq in sent if self._is_stored(seq, questions.answers.get(seq))]
        yield from self._sync({_name_of(sent[seq]) for seq in stored})
        if not self._wanted.keep:
            yield from self._remove(stored)
        self.result.replayed += len(stored)
        # Without any answer to a batch, the next one would not be answered either.
        return not sent or any(seq in questions.answers for seq in sent)

    def _problem_of(self, letter: Letter) -> Generator[Step, None, str]:
        """Return the reason why a letter cannot be replayed, or "" if it can."""
        name = _name_of(letter)
        config = self._js.config_of(name)
        if config is None:
            return f'the stream "{name}" does not exist'
        if not letter.subject.startswith(_RESERVED):
            for number, subject in enumerate(config.subjects, 1):
                if is_subset(letter.subject, subject.encode()):
                    return ""
                if number % SUBJECTS_STEP == 0:
                    yield None
        shown = letter.subject.decode("utf-8", "replace")
        return f'the stream "{name}" does not listen to "{shown}"'

    def _is_stored(self, seq: int, answer: dict[str, Any] | None) -> bool:
        error = NO_ANSWER
        if answer is not None:
            found = answer.get("error")
            if not isinstance(found, dict) and answer.get("seq"):
                return True
            error = (
                str(found.get("description", "")) if isinstance(found, dict) else "the answer is no PubAck"
            )
        self.result.fail(seq, error)
        return False

    def _sync(self, names: set[str]) -> Generator[Step, None, None]:
        """Sync the named streams of this server, except those that are replicated or sync each publish."""
        for name in names:
            stream = self._js.streams.get(name)
            if stream is not None and not stream.sync_always and stream.replica is None:
                yield from durable_steps(stream)

    def _remove(self, seqs: list[int]) -> Generator[Step, None, None]:
        """Remove replayed letters from their stream.

        Raises:
            ApiError: the stream was closed, or a letter cannot be removed.
        """
        for number, seq in enumerate(seqs):
            errcodes.STREAM_NOT_FOUND.raise_if(self._stream.closed)
            if self._stream.replica is not None:
                yield from self._stream.replica.operate(operations.delete(seq, False))
                continue
            try:
                self._stream.delete_msg(seq, False)
            except StoreFailed as error:
                raise errcodes.STREAM_MSG_DELETE_FAILED.error(err=error) from error
            if number % SEND_STEP == SEND_STEP - 1:
                yield None


def _name_of(letter: Letter) -> str:
    """Return the name of the stream that the message of a letter came from."""
    return letter.stream.decode("utf-8", "replace")
