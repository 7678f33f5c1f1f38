"""The commit of an atomic batch: its messages are checked, and then all of them are stored, or none.

A small batch is committed as soon as its last message arrives. A large batch is committed in steps of bounded work
over several turns: first the checks, then the bytes, which the store takes in parts, and last the index, so that no
reader sees a message until all of them are stored. During this time, publishes to the stream are held, in order, and
other commits of the stream wait. All other code that stores into the stream, erases from it, or purges, configures or
closes it, calls `finish` first or waits. Removals of acknowledged or unwanted messages and the steps of a purge
continue: until the commit after the batch, they change only the index, no file. If many publishes are held, each
further publish does a part of the work itself.

Compiled, because it runs for every message of a batch (measured by benchmarks/batches.py: atomic).
Source: ADR-50; order of checks probed on nats-server 2.15.1 (tests/conformance/scenarios/atomic).
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pyjs.jetstream.stream.answers cimport LONG_ACK
from pyjs.jetstream.stream.limits cimport (
    COUNTS, DISCARD_NEW, DISCARD_NEW_PER_SUBJECT, HOLDS, IN_STEPS, KEEPS_INTEREST, NO_ACK, SCHEDULES,
)
from pyjs.jetstream.stream.pub_headers cimport PubHeaders, scan_pub_headers
from pyjs.jetstream.stream.retention cimport skip_unwanted
from pyjs.store.store cimport StreamStore
from pyjs.wire.compose cimport compose

import orjson

from pyjs.jetstream import errcodes
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.stream.features.batch_checks import HEADERS_SIZE_MAX, BatchChecks, Staged
from pyjs.jetstream.stream.publish_errors import store_error

cdef uint32_t HEADER_LEN_MAX = HEADERS_SIZE_MAX

cdef enum:
    CHECKED_STEP = 128          # number of messages that one step checks
    HELD_MAX = 2097152          # bytes of held publishes; above this, each further publish does a part of the work
    HELD_OVERHEAD = 512         # bytes that a held publish counts in addition to its size
    STEP_WORK = 8192            # units of a turn's input (Turn.input_left) that a step counts as

cdef enum Phase:
    ENTER
    AT_ONCE
    CHECK
    PUT


cdef class BatchCommits:
    """The commits of one stream's atomic batches, one at a time."""

    def __init__(self, Stream stream not None, state, BatchUsage usage not None) -> None:
        self.stream = stream
        self.state = state
        self.usage = usage
        self.held = []

    cdef void commit(self, Msg* m, AtomicBatch batch) except *:
        """Commit a closed batch whose last message is `m`; the PubAck of the batch answers this message.

        A large batch is committed in later turns, and errors are then sent as the answer.

        Raises:
            ApiError: a check failed, or the store refused the batch; nothing was stored.
        """
        if batch.used > self.usage.at_once_max and not self.stream.store.changing:
            self.begin(m, batch)
        else:
            self.commit_whole(m, batch)

    cdef void commit_whole(self, Msg* m, AtomicBatch batch) except *:
        """Check, store and answer a batch at once. Raises ApiError."""
        if self.stream.limits.features & DISCARD_NEW:
            self.stream.makes_room()            # so that earlier evictions of this turn do not count any more
        try:
            self.check(batch, 0, batch.n, self.count_to_check(batch))
        finally:
            self.checks = None                  # break the cycle: it refers to the stream
        if self.stream.replica is None:         # otherwise the leader has checked the limits of its own node
            self.check_room(batch)
        self.answer(m, batch, self.append_batch(batch))

    # -- in steps ----------------------------------------------------------------------------------------------
    cdef void begin(self, Msg* m, AtomicBatch batch) except *:
        """Begin to commit a batch in steps: hold publishes to the stream, and queue the steps."""
        self.batch, self.reply = batch, m.reply[:m.reply_len]
        self.phase, self.at, self.last_wanted = ENTER, 0, batch.n
        self.usage.bytes += batch.bytes
        self.stream.limits.features |= HOLDS
        self.stream.turn.go_on(self.steps(batch))

    def steps(self, AtomicBatch batch not None):
        """Run the steps of a batch; yield after each."""
        while self.batch is batch:
            self.step()
            yield None

    def finish(self) -> None:
        """Run all remaining steps of the batch, and store the held publishes, before the stream changes.

        This may run during a delivery, so other messages of the turn are not committed. The current trace belongs to
        another message, and is switched off during the call.
        """
        trace, self.stream.turn.trace = self.stream.turn.trace, None
        try:
            while self.batch is not None and not self.stepping:
                if self.phase == ENTER:
                    self.phase = AT_ONCE
                self.step()
        finally:
            self.stream.turn.trace = trace

    def drop(self, error) -> None:
        """Refuse the batch and the held publishes with `error`; write nothing."""
        held, self.held, self.held_size = self.held, [], 0
        if self.batch is not None:
            held.insert(0, (b"", self.reply, b"", 0))
            self.usage.bytes -= self.batch.bytes
            self.stream.limits.features &= ~<unsigned int> (HOLDS | IN_STEPS)
            self.batch = self.checks = None
        for _, reply, _, _ in held:
            self.refuse(reply, store_error(error))

    def close(self) -> None:
        """Finish the batch, and release the references to the stream's parts, which would form a cycle."""
        self.finish()
        self.state = self.checks = None

    cdef int hold(self, Msg* m) noexcept nogil:
        """Hold a publish until the batch is stored. If many bytes are held, run steps of the batch at once."""
        cdef size_t size = m.subject_len + m.reply_len + m.size
        cdef size_t due = size // self.usage.part_size + 1
        with gil:
            self.held.append((m.subject[:m.subject_len], m.reply[:m.reply_len], m.body[:m.size], m.header_len))
            self.held_size += size + HELD_OVERHEAD
            while due and self.held_size > HELD_MAX and self.phase != ENTER and self.batch is not None \
                    and not self.stepping:
                due -= 1
                self.stream.turn.extra_work += STEP_WORK
                try:
                    self.step()
                except BaseException as error:
                    self.stream.turn.faulted.append((self.stream, error))
        return 1

    cdef void step(self) except *:
        """Run one step of the batch; an error ends the batch."""
        self.stepping = True
        try:
            self.do_step()
        except ApiError as error:
            self.refuse(self.reply, error)
            self.leave()
        except Exception as error:          # the stream's state may be half changed
            self.stream.turn.faulted.append((self.stream, error))
            self.leave()
        finally:
            self.stepping = False
        if self.batch is None:
            self.release()

    cdef void do_step(self) except *:
        if self.phase == ENTER:
            self.enter()
        elif self.phase == AT_ONCE:
            self.do_all()
        elif self.phase == CHECK:
            self.check_some()
        else:
            self.put_some()

    cdef void enter(self) except *:
        """Commit earlier messages, and make later commits wait.

        This must not run in a delivery, since it sends PubAcks.
        """
        if self.stream.dirty:
            self.stream.commit()
        self.stream.limits.features |= IN_STEPS
        self.phase = CHECK

    cdef void do_all(self) except *:
        """Run all phases of a batch that has not run any step yet."""
        cdef bytes reply = self.reply
        cdef Msg m
        compose(&m, NULL, 0, NULL, 0, 0)
        m.reply, m.reply_len = reply, <uint32_t> len(reply)
        self.commit_whole(&m, self.batch)
        self.leave()

    cdef void check_some(self) except *:
        """Check up to CHECKED_STEP messages; after the last message, begin to write."""
        cdef AtomicBatch batch = self.batch
        cdef size_t end = min(self.at + CHECKED_STEP, batch.n)
        self.check(batch, self.at, end, self.count_to_check(batch))
        self.at = end
        if end == batch.n:
            self.check_room(batch)
            self.at, self.phase = 0, PUT
            self.begin_parts()

    cdef void begin_parts(self) except *:
        """Determine which messages are stored, set their times, and begin the batch in the store. Raises ApiError."""
        cdef StreamStore store = self.stream.store
        cdef AtomicBatch batch = self.batch
        cdef uint64_t size = 0
        cdef size_t i
        cdef Msg m
        for i in range(batch.n):
            batch.view(i, &m)
            batch.messages[i].skipped = not self.is_wanted(&m)
            if not batch.messages[i].skipped:
                self.last_wanted = i
                size += m.subject_len + m.size
        self.first_ts = self.stream.next_ts()
        if store.begin_parts(batch.n, size, self.first_ts) != 0:
            raise store_error(store.error)

    cdef void put_some(self) except *:
        """Write some messages to the store; after the last message, add all to the index. Raises ApiError."""
        cdef StreamStore store = self.stream.store
        cdef AtomicBatch batch = self.batch
        cdef size_t size = 0
        cdef int failed = 0
        cdef Msg m
        self.check_room(batch)  # again, since other streams may have used the account's room since the first check
        while self.at < batch.n and size < self.usage.part_size and failed == 0:
            if not batch.messages[self.at].skipped:
                batch.view(self.at, &m)
                failed = store.put_part(&m, store.catalogue.last_seq + 1 + self.at, self.first_ts + <int64_t> self.at,
                                        self.at == self.last_wanted)
                size += m.subject_len + m.size
            self.at += 1
        if failed != 0 or store.flush_parts() != 0:
            raise store_error(store.error)
        if self.at == batch.n:
            self.add_all()

    cdef void add_all(self) except *:
        """Add all messages to the index, and queue the PubAck.

        Raises:
            MemoryError: only some of the messages are in the index.
        """
        cdef AtomicBatch batch = self.batch
        cdef uint64_t first = self.stream.store.catalogue.last_seq + 1, seq = 0
        cdef bytes reply = self.reply
        cdef size_t i
        cdef Msg m
        self.stream.store.add_parts()
        for i in range(batch.n):
            batch.view(i, &m)
            self.stream.stamp = self.first_ts + <int64_t> i
            seq = self.stream.store.skip() if batch.messages[i].skipped else self.keep_wanted(&m)
            if seq == 0:
                break
        self.stream.stamp = 0
        self.stream.store.end_parts()
        if seq == 0:  # out of memory: the store has all records, but the index has only some of the messages
            raise MemoryError
        self.note_batch(batch, first)
        compose(&m, NULL, 0, NULL, 0, 0)
        m.reply, m.reply_len = reply, <uint32_t> len(reply)
        self.answer(&m, batch, seq)
        self.leave()

    cdef void leave(self) except *:
        """End the batch; from then on, the stream commits as usual."""
        self.stream.store.drop_parts()
        self.stream.limits.features &= ~<unsigned int> (HOLDS | IN_STEPS)
        self.usage.bytes -= self.batch.bytes
        self.batch = self.checks = None
        self.stream.note_change()

    cdef void release(self) except *:
        """Publish the held messages; if one of them ends another large batch, hold those after it again."""
        held, self.held, self.held_size = self.held, [], 0
        for subject, reply, body, header_len in held:
            self.replay(subject, reply, body, header_len)

    cdef void refuse(self, bytes reply, object error) except *:
        cdef Msg m
        compose(&m, NULL, 0, NULL, 0, 0)
        m.reply, m.reply_len = reply, <uint32_t> len(reply)
        self.stream.refuse_with(&m, error)

    cdef void replay(self, bytes subject, bytes reply, bytes body, size_t header_len) except *:
        cdef Msg m
        compose(&m, subject, len(subject), body, header_len, len(body))
        m.reply, m.reply_len = reply, <uint32_t> len(reply)
        self.stream.ingest(&m)

    # -- checks ------------------------------------------------------------------------------------------------
    cdef void check(self, AtomicBatch batch, size_t first, size_t end, size_t n_checked) except *:
        """Check messages `first` to `end` - 1 in order, and replace those that must be stored with other headers.

        Of messages with an index of `n_checked` or more, only the size of the headers is checked.

        Raises:
            ApiError: a message fails a check.
        """
        cdef size_t i
        cdef bint all_special = self.stream.limits.features & (COUNTS | SCHEDULES) != 0
        cdef Msg m
        if first == 0:
            self.checks = BatchChecks(self.state) if n_checked else None
        for i in range(first, end):
            if i < n_checked:
                batch.view(i, &m)
                message = Staged(m.subject[:m.subject_len], m.body[:m.header_len], m.body[m.header_len:m.size])
                if all_special or batch.messages[i].special:
                    changed = self.checks.checked(message)
                    if changed is not message:
                        batch.replace(i, changed.subject, changed.headers, changed.payload)
                else:
                    self.checks.plain(message)
            elif batch.messages[i].header_len > HEADER_LEN_MAX:
                raise errcodes.STREAM_HEADER_EXCEEDS_MAXIMUM.error()

    cdef void check_room(self, AtomicBatch batch) except *:
        """Raise ApiError if the account has no room for the batch."""
        cdef uint64_t size = batch.n * self.stream.store.catalogue.overhead
        cdef size_t i
        for i in range(batch.n):
            size += batch.messages[i].subject_len + batch.messages[i].size
        usage = self.stream.usage.account
        errcodes.ACCOUNT_RESOURCES_EXCEEDED.raise_if(0 <= usage.max < usage.used + size)

    cdef size_t count_to_check(self, AtomicBatch batch) noexcept nogil:
        """Return how many messages, counted from the first one, need the checks in Python.

        Messages after the last message with a special header do not need these checks, unless an option of the
        stream requires them for all messages.
        """
        cdef size_t n = batch.n
        if self.stream.limits.features & (COUNTS | SCHEDULES | DISCARD_NEW | DISCARD_NEW_PER_SUBJECT):
            return n
        while n and not batch.messages[n - 1].special:
            n -= 1
        return n

    # -- storing -----------------------------------------------------------------------------------------------
    cdef uint64_t append_batch(self, AtomicBatch batch) except? 0:
        """Append the messages so that after a crash either all or none exist; return the last sequence.

        Raises:
            ApiError: the store refused the batch.
        """
        cdef StreamStore store = self.stream.store
        cdef uint64_t first = store.catalogue.last_seq + 1
        cdef uint64_t seq = self.append_all(batch)
        if seq == 0:
            while store.catalogue.last_seq >= first:
                store.drop(first, False)
                first += 1
            raise store_error(store.error)
        self.note_batch(batch, first)
        return seq

    cdef uint64_t append_all(self, AtomicBatch batch) noexcept nogil:
        """Append the messages as one batch of the store; return the last sequence, or 0 if the store refused it.

        After a refusal, some messages may be in the index.
        """
        cdef uint64_t seq = 0, size = 0
        cdef size_t i
        cdef Msg m
        for i in range(batch.n):
            size += batch.messages[i].subject_len + batch.messages[i].size
        if self.stream.store.begin_batch(batch.n, size, self.stream.next_ts()) != 0:
            return 0
        for i in range(batch.n):
            batch.view(i, &m)
            seq = self.keep_wanted(&m) if self.is_wanted(&m) else self.skip(&m)
            if seq == 0:
                self.stream.store.drop_batch()
                return 0
        self.stream.store.end_batch()
        return seq

    cdef bint is_wanted(self, Msg* m) noexcept nogil:
        """Return whether the stream stores the message; an interest stream stores what a filter matches."""
        return not self.stream.limits.features & KEEPS_INTEREST \
            or self.stream.interest.wanted(m.subject, m.subject_len)

    cdef uint64_t skip(self, Msg* m) noexcept nogil:
        """Use up a sequence for a message that the stream does not store; return the sequence, or 0 on failure."""
        if self.stream.replica is None:
            return self.stream.store.skip()
        return skip_unwanted(self.stream.store, m, self.stream.wall(), True)

    cdef uint64_t keep_wanted(self, Msg* m) noexcept nogil:
        """Append one message of a checked batch; return its sequence, or 0 if the store refused it."""
        if self.stream.republisher is None:
            return self.stream.keep(m)
        with gil:
            return self.stream.keep_and_republish(m)

    cdef void note_batch(self, AtomicBatch batch, uint64_t first) noexcept nogil:
        """Apply the headers of the batch's messages, which have just been appended from sequence `first` on."""
        cdef PubHeaders h
        cdef size_t i
        cdef Msg m
        self.stream.dedupe.last_id_len = 0
        for i in range(batch.n):
            if batch.messages[i].special:
                batch.view(i, &m)
                scan_pub_headers(m.body, m.header_len, &h)
                self.stream.note_headers(&m, &h, first + i)
        if batch.n and not batch.messages[batch.n - 1].special:
            self.stream.dedupe.last_id_len = 0

    cdef void answer(self, Msg* m, AtomicBatch batch, uint64_t seq) except *:
        """Queue the PubAck of a batch, if its last message `m` has a reply subject and the stream sends PubAcks."""
        cdef bytes body
        if m.reply_len and not self.stream.limits.features & NO_ACK:
            shown = orjson.dumps(batch.id.decode("utf-8", "replace"))
            body = b'%b%d,"batch":%b,"count":%d}' % (self.stream.answers.head, seq, shown, batch.n)
            self.stream.answers.add(m, LONG_ACK, seq, body, len(body))
