"""The copy of a stream from another replica, for a replica that is new or lacks entries that the log no longer has.

The receiver requests the messages after its last sequence, one part after another, so it determines the rate: up to
RATE bytes a second. Stored messages never change, so the copied ones stay valid while the other replica continues.
When only few messages remain, the answer has the kind `end`: it has these messages, and the state of the other
replica at that moment. The receiver removes every message that is not in this state, and its store records the last
entry in the state.
Entries that arrive during the copy are held if they are few; those up to the recorded entry have no effect.

Until the end, the store records the entry from before the copy, and the log begins after it. So if the process ends
early, the next start finds the replica behind and continues the copy.

The id of a removed message still counts as a duplicate during the duplicate window, and a start reads ids from
message headers. So for each such id, the copy includes a message that has only the id, and removes this message at
the end of the copy.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from itertools import chain
from struct import Struct
from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.base.errors import NotNow, PyjsError
from pyjs.jetstream.config.choices import MEMORY
from pyjs.jetstream.config.declared import to_meta
from pyjs.jetstream.replication.copy_batch import Kind, State, answer, encode_record, refusal, sequences
from pyjs.store.file.store import FileStore
from pyjs.store.store import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import TypeAlias

    from pyjs.base.timers import Timers
    from pyjs.core.chore import Chore, Step
    from pyjs.core.sink import Turn
    from pyjs.jetstream.replication.copy_batch import Ask, AskThese, Piece
    from pyjs.jetstream.stream.stream import Stream
    from pyjs.store.store import StreamStore

    Steps: TypeAlias = Generator[Step, None, None]

PART_SIZE = 128 << 10  # approximate bytes of records in one answer
PART_MSGS = 200
AHEAD_SIZE = 1 << 20  # bytes after an answer that are read from the disk meanwhile
RATE = 64 << 20  # maximum bytes per second of one copy
ANSWER_NS = NS_PER_S  # wait for an answer, before the next replica is asked
PAUSE_NS = 100 * NS_PER_MS  # pause before another question to a replica that could not serve
STEP = 2000  # maximum number of messages removed in one step
LACKING_MAX = 50_000  # number of messages put back in one round; the segment of the last one is completed too
_ID = Struct("<QqII")


# -- the replica that is asked ------------------------------------------------------------------------------------


def serve(stream: Stream | None, question: Ask, applied: tuple[int, int]) -> list[list[bytes]]:
    """Return the batches that answer a request for messages; `stream` is None if the replica cannot serve.

    `applied` is the index and the term of the last applied entry, even if the entry had no effect on the stream.
    """
    replica = stream.replica if stream is not None else None
    if stream is None or replica is None or replica.is_working or stream.closed:
        return [refusal(Kind.NOT_NOW, question.group, question.number)]
    found = _records(stream, question.have)
    if found is None:
        return [refusal(Kind.NOT_NOW, question.group, question.number)]
    records, upto = found
    state = _state_of(stream, applied) if upto == stream.store.last_seq else None
    return answer(question.group, question.number, upto, records, state)


def serve_these(store: StreamStore | None, stream: Stream | None, question: AskThese) -> list[list[bytes]]:
    """Return the batches that answer a request for single messages, or for the ids of removed messages.

    `store` is None if no messages can be read now. `stream` is None if the ids are not known.
    """
    group, number = question.group, question.number
    if stream is not None and question.ids:
        ids = [encode_record(each) for seq in question.seqs for each in removed_in(stream, seq, seq)]
        return answer(group, number, question.seqs[-1], b"".join(ids), None)
    if store is None or question.ids:
        return [refusal(Kind.NOT_NOW, group, number)]
    found: list[bytes] = []
    size, upto = 0, question.seqs[-1]
    for seq in question.seqs:
        message = readable(store, seq)
        if message is not None:
            found.append(encode_record(message))
            size += len(found[-1])
        if size >= PART_SIZE:
            upto = seq
            break
    return answer(group, number, upto, b"".join(found), None)


def readable(store: StreamStore, seq: int) -> StoredMessage | None:
    """Return a message, or None if it is absent, is damaged, or cannot be read now."""
    try:
        return store.get_checked(seq)
    except NotNow:
        return None


def removed_in(stream: Stream, first: int, last: int) -> list[StoredMessage]:
    """Return those ids of the messages `first` to `last` that still count as duplicates.

    Each id is returned as a message with the sequence and time of the original message and only the id as its header.
    """
    return _removed(stream, first - 1, last)


def _records(stream: Stream, have: int) -> tuple[bytes, int] | None:
    """Return encoded messages after sequence `have`, and the sequence up to which they are complete.

    Return None if a message cannot be read.
    """
    store = stream.store
    everything = store.make_filter(())
    found: list[StoredMessage] = []
    size, upto = 0, have
    seq = store.catalogue.next_match(have + 1, everything)
    while seq and size < PART_SIZE and len(found) < PART_MSGS:
        message = readable(store, seq)
        if message is None:
            return None
        found.append(message)
        size += len(message.subject) + len(message.headers) + len(message.payload)
        upto = seq
        seq = store.catalogue.next_match(seq + 1, everything)
    if seq == 0:
        upto = max(store.last_seq, have)
    else:
        store.read_ahead(seq, AHEAD_SIZE)
    records = {message.seq: encode_record(message) for message in found}
    if stream.config.storage != MEMORY:
        for message in _removed(stream, have, upto):
            records.setdefault(message.seq, encode_record(message))
    return b"".join(records[seq] for seq in sorted(records)), upto


def _removed(stream: Stream, after: int, upto: int) -> list[StoredMessage]:
    """Return those ids of the messages `after` + 1 to `upto` that still count as duplicates, as `removed_in` does.

    The result includes the ids of messages that were not removed.
    """
    dedupe = stream.dedupe
    first, end = _place_of(stream, after + 1), _place_of(stream, upto + 1)
    dump = dedupe.dump(first, end - first)
    found, at = [], _ID.size * (end - first)
    for place in range(end - first):
        seq, ts, size, _ = _ID.unpack_from(dump, _ID.size * place)
        if size:  # otherwise the id was forgotten
            headers = b"NATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n" % dump[at : at + size]
            found.append(StoredMessage(seq, ts, b"_", headers, b""))
        at += size
    return found


def _place_of(stream: Stream, seq: int) -> int:
    """Return the number of ids in the duplicate window that belong to messages before `seq`."""
    low, high = 0, len(stream.dedupe)
    while low < high:
        middle = (low + high) // 2
        if _ID.unpack_from(stream.dedupe.dump(middle, 1))[0] < seq:
            low = middle + 1
        else:
            high = middle
    return low


def _kept_ids(stream: Stream, deleted: array[int]) -> bytes:
    """Return the sequences (u64 each) of removed messages whose ids still count as duplicates."""
    dedupe, first_seq = stream.dedupe, stream.store.first_seq
    heads = memoryview(dedupe.dump(0, len(dedupe))[: _ID.size * len(dedupe)]).cast("Q")
    counting = [seq for seq, size in zip(heads[::3], heads[2::3], strict=True) if size]
    gone = set(deleted)
    return array("Q", [seq for seq in counting if seq < first_seq or seq in gone]).tobytes()


def _state_of(stream: Stream, applied: tuple[int, int]) -> State:
    store, dedupe = stream.store, stream.dedupe
    index, term = max((store.applied_index, store.applied_term), applied)
    deleted = array("Q", store.catalogue.deleted())
    count = len(dedupe) if stream.config.storage == MEMORY else 0
    return State(
        index=index,
        term=term,
        time_ns=store.applied_ns,
        last_id=store.applied_id,
        ids_from=store.ids_from,
        steps=store.steps.encode(),
        last_seq=store.last_seq,
        first_seq=store.first_seq,
        msgs=store.msgs,
        size=store.bytes,
        config=to_meta(stream.config),
        deleted=deleted.tobytes(),
        kept=_kept_ids(stream, deleted),
        lost=array("Q", store.lost_seqs() if isinstance(store, FileStore) else ()).tobytes(),
        ids=dedupe.dump(0, count),
        ids_count=count,
        consumers=stream.replica.consumers.dump() if stream.replica is not None else b"",
    )


# -- the replica that is behind -----------------------------------------------------------------------------------


class OtherStore(PyjsError):
    """Raised if the store does not match the state after the copy. The caller decides whether to drop the store."""


def put(store: StreamStore, message: StoredMessage) -> None:
    """Add a message to a copy.

    Raises:
        StoreFailed: the store has failed.
        OtherStore: the message does not follow the last message of the store.
    """
    store.skip_seqs_to(message.seq - 1)
    if store.store(message.subject, message.headers, message.payload, message.ts) != message.seq:
        raise store.error or OtherStore(f"message {message.seq} follows {store.last_seq}")


def end_steps(store: StreamStore, state: State, deleted: memoryview[int], *, erases: bool = False) -> Steps:
    """Make the copy equal to `state`: remove the messages that are not in `state`, in one change.

    Messages that the other replica has lost stay if the copy has them. With `erases`, removed messages that are not
    at the front are also overwritten in the file. They may have been erased before and put back by a repair.

    Raises:
        OtherStore: the copy does not match the state.
        StoreFailed: the change was not written.
    """
    kept = {seq for seq in sequences(state.lost) if is_there(store, seq)}
    yield from _erase_steps(store, state, deleted, kept, erases=erases)
    store.begin_copied_entry()
    store.skip_seqs_to(state.last_seq)
    everything, first_seq = store.make_filter(()), min([state.first_seq, *kept])
    for number, seq in enumerate(chain(deleted, range(first_seq, state.first_seq))):
        if seq not in kept:
            store.drop_seq(seq)
        if number % STEP == STEP - 1:
            yield None
    if state.msgs == 0 and state.last_seq and not kept:
        store.purge(everything, state.first_seq if state.first_seq > 1 else 0)
    elif first_seq > 1:
        store.purge(everything, first_seq)
    _check(store, state, first_seq, len(kept))
    store.end_copied_entry(state.index, state.term, state.time_ns, state.ids_from, state.last_id, state.steps)


def _check(store: StreamStore, state: State, first_seq: int, more: int) -> None:
    """Raise OtherStore unless the store has the numbers and sequences of `state`, plus `more` messages."""
    size = state.size if not more else store.bytes
    if (store.msgs, store.bytes, store.first_seq, store.last_seq) != (
        state.msgs + more,
        size,
        first_seq,
        state.last_seq,
    ):
        raise OtherStore(
            f"{store.msgs} messages of {store.bytes} bytes, {state.msgs} of {state.size} are right"
        )


def is_there(store: StreamStore, seq: int) -> bool:
    """Return whether a store has a message with the sequence `seq`."""
    return store.catalogue.next_match(seq, store.make_filter(())) == seq


def lacks_lost(store: StreamStore, state: State) -> bool:
    """Return whether this store also lacks a message that the other replica has lost."""
    return any(not is_there(store, seq) for seq in sequences(state.lost))


def _absent(store: StreamStore, first: int) -> Iterator[int]:
    """Yield the sequences without a message between `first` and the last message of a store."""
    while part := store.catalogue.deleted(STEP, first - 1):
        yield from part
        first = part[-1] + 1


def lacking_steps(
    store: FileStore, state: State, deleted: memoryview[int]
) -> Generator[Step, None, list[int]]:
    """Return the sequences of the messages in `state` that a copy does not have, ascending.

    After LACKING_MAX of these messages, the search continues only to the end of the segment of the last one.
    """
    last_seq, end = min(store.last_seq, state.last_seq), 0
    front = range(state.first_seq, min(store.first_seq, last_seq + 1))
    found: list[int] = []
    for number, seq in enumerate(chain(front, _absent(store, state.first_seq))):
        if seq > last_seq or (end and seq > end):
            break
        at = bisect_left(deleted, seq)
        if at == len(deleted) or deleted[at] != seq:
            found.append(seq)
            if len(found) == LACKING_MAX:
                end = max((last for _, base, last in store.ranges() if base <= seq <= last), default=seq)
        if number % STEP == STEP - 1:
            yield None
    return found


def lacking_ids_steps(
    store: StreamStore, state: State
) -> Generator[Step, None, tuple[list[int], dict[int, StoredMessage]]]:
    """Find the removed messages of `state` whose ids still count as duplicates.

    Return a list with the sequences of those that the copy lacks, and a dictionary. For each of the others, the
    dictionary has a message with only headers, by sequence.
    """
    kept = sequences(state.kept)
    if not kept:
        return [], {}
    have = {seq: (ts, headers) for seq, ts, headers in (yield from store.headers_steps(state.ids_from))}
    here = {seq: StoredMessage(seq, have[seq][0], b"_", have[seq][1], b"") for seq in kept if seq in have}
    return [seq for seq in kept if seq not in have], here


def _erase_steps(
    store: StreamStore, state: State, deleted: memoryview[int], lost: set[int], *, erases: bool
) -> Steps:
    """Erase removed messages whose ids no longer count, since a start would read the ids from their headers.

    Messages in `lost` stay. With `erases`, also erase removed messages without an id that are not at the front.
    """
    kept, everything = lost | set(sequences(state.kept)), store.make_filter(())
    front = []
    seq = store.catalogue.next_match(0, everything)
    while 0 < seq < state.first_seq:
        front.append(seq)
        seq = store.catalogue.next_match(seq + 1, everything)
    for number, seq in enumerate(chain(front, deleted)):
        message = None if seq in kept else readable(store, seq)
        is_erased = erases and seq >= state.first_seq
        if message is not None and (is_erased or b"Nats-Msg-Id" in message.headers):
            store.drop_seq(seq, erase=True)
        if number % STEP == STEP - 1:
            yield None
    store.flush()


class Answer:
    """The answer of another replica to a question. Its pieces arrive in any order, while a chore waits for them.

    `asker` (0 to 3) is a part of each question's number. It distinguishes the askers of one group.
    """

    def __init__(self, turn: Turn, timers: Timers, asker: int) -> None:
        self._turn = turn
        self._timers = timers
        self._chore: Chore | None = None
        self._number = asker
        self._pieces: dict[int, Piece] = {}
        self._deadline_ns = 0

    def continue_after(self, other: Answer) -> None:
        """Continue the numbers of `other`, so that a late answer to its questions is not taken for a new one."""
        self._number = other._number

    def steps(self, send: Callable[[int], object]) -> Generator[Step, None, tuple[Kind, int, bytes] | None]:
        """Call `send` with a new question number, and wait for the answer.

        Return kind, `upto` and data of the answer, or None if the next piece does not arrive within ANSWER_NS.
        """
        self._number = (self._number + 4) & 0xFFFFFFFF
        self._pieces.clear()
        send(self._number)
        self._deadline_ns = self._turn.now + ANSWER_NS
        while not self._is_whole():
            if self._turn.now >= self._deadline_ns:
                return None
            yield self._park
        pieces = [self._pieces[place] for place in sorted(self._pieces)]
        self._pieces.clear()
        return pieces[0].kind, pieces[0].upto, b"".join(piece.data for piece in pieces)

    def pause(self, ns: int) -> Steps:
        """Wait for `ns` nanoseconds."""
        self._deadline_ns = self._turn.now + ns
        while self._turn.now < self._deadline_ns:
            yield self._park

    def came(self, piece: Piece) -> None:
        """Store a piece of the answer to the current question, and wake the chore when the answer is complete."""
        if piece.number == self._number:
            self._pieces[piece.place] = piece
            self._deadline_ns = max(self._deadline_ns, self._turn.now + ANSWER_NS)
            if self._is_whole():
                self._wake()

    def _is_whole(self) -> bool:
        return bool(self._pieces) and len(self._pieces) == next(iter(self._pieces.values())).pieces

    def _park(self, chore: Chore) -> None:
        self._chore = chore
        self._timers.at(self._deadline_ns, self._wake)

    def _wake(self) -> None:
        if self._chore is not None:
            self._turn.chores.append(self._chore)
            self._chore = None
