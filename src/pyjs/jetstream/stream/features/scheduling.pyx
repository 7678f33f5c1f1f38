"""The message schedules of one stream: when each of them fires next, and the messages that they publish.

A heap has the sequence and the next time of each schedule, sixteen bytes per entry. All other data is read from the
stored message when it fires, so schedules that were removed, replaced or ended need no work: their entries are
skipped. A firing reads and stores messages, so only a bounded number of schedules fire in each turn.

Compiled because it uses compiled functions of the ingest (benchmarks/expiry.py); schedule.py makes the decisions.
Source: ADR-51, probed on nats-server 2.15.1 (tests/conformance/scenarios/schedule).
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pyjs.jetstream.stream.aging cimport Lifetimes
from pyjs.jetstream.stream.features.plain_schedules cimport PlainSchedule, read_plain
from pyjs.jetstream.stream.limits cimport HOLDS, SCHEDULES, SEALED
from pyjs.jetstream.stream.pub_headers cimport PubHeaders, scan_pub_headers
from pyjs.jetstream.stream.stream cimport Stream
from pyjs.store.store cimport StreamStore
from pyjs.wire.compose cimport compose
from pyjs.wire.ops cimport Msg

from pyjs.base.errors import NotNow
from pyjs.jetstream.stream.aging import sweep_steps
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.stream.features.headers import value_of
from pyjs.jetstream.stream.features.schedule import (
    SCHEDULER, SOURCE, TARGET, continued_by, ended_by, following, next_due, produced_headers,
)
from pyjs.jetstream.stream.message_ttl import with_least_ttl

cdef enum:
    STEP = 100                  # number of schedules that fire in one turn: some milliseconds
cdef int64_t RETRY_NS = 1000000000      # ns to wait before a firing that the store refused is repeated


cdef class Scheduling:
    """The schedules of one stream, which fire when they are due."""

    def __init__(self, Stream stream not None, timer) -> None:
        self.stream = stream
        self.timer = timer
        self.due = Lifetimes()
        self.learned = {}

    def __len__(self) -> int:
        """Return the number of entries, including those of schedules that were removed."""
        return len(self.due)

    def close(self) -> None:
        """Stop firing."""
        self.timer.cancel()
        self.stream = None

    # -- the next firing --------------------------------------------------------------------------------------------

    def add(self, bytes headers, uint64_t seq, int64_t stored_at_ns, int64_t now_ns) -> None:
        """Add the stored message `seq` if it is a valid schedule."""
        try:
            due = next_due(headers, stored_at_ns, now_ns)
        except ApiError:
            return
        if due is not None:
            self.note(seq, due.at_ns)

    cdef void note(self, uint64_t seq, int64_t at_ns) noexcept:
        if self.learning:
            self.learned[seq] = at_ns
            return
        self.due.note(seq, 0, max(at_ns, 1))                # 0 would mean that there is no time
        if self.due.is_stale(self.stream.store.catalogue):
            self.due.begin_sweep(self.stream.store.catalogue)
            self.stream.turn.go_on(sweep_steps(self.due, self.stream))

    cdef void note_again(self, uint64_t seq, int64_t at_ns) noexcept:
        """Add the next firing of a schedule that has fired, or that could not fire."""
        if self.learning:
            self.learned[seq] = at_ns
            return
        self.due.note_again(seq, max(at_ns, 1))

    def learn(self, bytes headers, uint64_t seq, int64_t stored_at_ns, int64_t now_ns) -> None:
        """Read the headers of a recovered message.

        The message may be a schedule, or it may end a schedule or state the next time of a schedule.
        """
        cdef PlainSchedule plain
        if read_plain(headers, len(headers), &plain):
            self.learned[seq] = plain.at_ns
            return
        cdef bytes subject = ended_by(headers)
        cdef uint64_t last = self.stream.store.catalogue.last_seq_of(subject, len(subject)) if subject else 0
        if 0 < last < seq:  # a kill happened between the end of the schedule and the removal of its message
            self.learned.pop(last, None)
            self.stream.evictions.note_rollup(subject, b"sub", seq)
            self.stream.note_change()
        continued = continued_by(headers)
        if continued is not None:
            subject = continued[0]
            last = self.stream.store.catalogue.last_seq_of(subject, len(subject))
            if last in self.learned:
                self.learned[last] = continued[1]
            return
        try:
            due = next_due(headers, stored_at_ns, now_ns)
        except ApiError:
            return
        if due is not None:
            self.learned[seq] = due.at_ns

    def begin_learning(self) -> None:
        """Forget the times of all schedules.

        The new leader of a replicated stream then reads them from the messages.
        """
        self.due.clear()
        self.learned, self.learning = {}, True

    def end_learning(self) -> None:
        """Add the schedules that were found, and set the timer."""
        self.learning = False
        learned, self.learned = self.learned, {}
        for seq, at_ns in learned.items():
            self.note(seq, at_ns)
        self.arm()

    def arm(self) -> None:
        """Set the timer to the time of the next firing, unless firings are running or this server is a follower."""
        at_ns = self.due.next_due()  # not a C integer, which could overflow when the skew is added
        if at_ns and not self.busy and (self.stream.replica is None or self.stream.replica.leads):
            self.timer.arm(self, at_ns - self.stream.turn.skew, self.stream.turn.now)

    def arm_again(self) -> None:
        """Set the timer according to the new wall time."""
        self.timer.cancel()
        self.arm()

    # -- firing -----------------------------------------------------------------------------------------------------

    def expire(self) -> None:
        """Fire due schedules: some now, the rest in the next turns. Called by the timer."""
        if self.fire_some():
            self.busy = True
            self.stream.turn.go_on(self.rest())
        else:
            self.arm()

    def rest(self) -> Generator[Step, None, None]:
        """Fire the remaining due schedules, some in each turn."""
        yield None
        while self.stream is not None and self.fire_some():
            yield None
        self.busy = False
        if self.stream is not None:
            self.arm()

    cdef bint fire_some(self) except -1:
        """Fire some schedules, or none while publishes wait for a large batch; return whether more may be due."""
        cdef int64_t now_ns = self.stream.wall(), at_ns
        cdef uint64_t seq
        cdef int left = STEP
        if self.stream.closed or not self.stream.limits.features & SCHEDULES \
                or self.stream.limits.features & SEALED:
            return False
        if self.stream.limits.features & HOLDS:
            return True
        if self.stream.replica is not None:
            return self.propose_some()
        self.stream.mark_dirty()
        self.stream.makes_room()  # remove the schedules that ended in this turn, so that they do not fire again
        while left:
            at_ns = self.due.next_due()
            seq = self.due.take_due(now_ns)
            if seq == 0:
                return False
            self.fire(seq, at_ns, now_ns)
            left -= 1
        return True

    cdef bint propose_some(self) except -1:
        """As the leader of a replicated stream, propose to fire some schedules; return whether more are due."""
        cdef list found = []
        cdef uint64_t seq = 1
        cdef int64_t at_ns, now_ns = self.stream.turn.now + self.stream.turn.skew
        while seq and len(found) < STEP and self.stream.replica.leads and not self.learning:
            at_ns = self.due.next_due()
            seq = self.due.take_due(now_ns)
            if seq:
                found.append((seq, at_ns))
        if found and not self.stream.replica.propose_firing(found):
            for seq, _ in found:
                self.note_again(seq, now_ns + RETRY_NS)
            return False
        return len(found) == STEP

    def fire_one(self, uint64_t seq, int64_t at_ns) -> None:
        """Fire a schedule of a replicated stream, as its leader proposed."""
        self.fire(seq, at_ns, self.stream.wall())
        self.arm()

    cdef void fire(self, uint64_t seq, int64_t at_ns, int64_t now_ns) except *:
        """Fire one schedule, unless it was removed or replaced since it was added."""
        cdef StreamStore store = self.stream.store
        try:
            schedule = store.get(seq)
            if schedule is None or self.is_over(seq, schedule.subject):
                return
            due = following(schedule.headers, at_ns, now_ns)
            if due is None:
                return
            content = self.content_of(schedule)
        except NotNow:
            if self.stream.replica is not None:     # other replicas may have fired it
                raise
            self.note_again(seq, now_ns + RETRY_NS)
            return
        headers = produced_headers(schedule.headers, schedule.subject, content.headers, due)
        subject = self.transformed(value_of(schedule.headers, TARGET), seq, at_ns)
        if not self.publish(subject, headers, content.payload):
            self.note_again(seq, now_ns + RETRY_NS)
        elif due.repeats:
            self.note_again(seq, due.at_ns)

    cdef bint is_over(self, uint64_t seq, bytes subject) except -1:
        """Return whether a later message of the subject has ended the schedule `seq`.

        Messages that schedules have published do not end a schedule, unless they roll up.
        """
        cdef StreamStore store = self.stream.store
        cdef uint64_t last = store.catalogue.last_seq_of(subject, len(subject))
        cdef uint64_t after = seq if last == seq else store.catalogue.next_seq(seq + 1, store.make_filter((subject,)))
        for later in {after, last}:
            if later != seq:
                message = store.get(later)
                if message is not None \
                        and (not value_of(message.headers, SCHEDULER) or value_of(message.headers, b"Nats-Rollup")):
                    return True
        return False

    cdef object content_of(self, schedule):
        """Return the message to publish: the last message of the source, or the schedule itself if there is none."""
        cdef StreamStore store = self.stream.store
        source = value_of(schedule.headers, SOURCE)
        seq = store.last_match(source) if source else 0
        last = store.get(seq) if seq else None
        return schedule if last is None else last

    cdef bytes transformed(self, bytes subject, uint64_t seq, int64_t at_ns):
        """Return the target of a firing after the subject transform; the result is the same on all replicas."""
        transform = self.stream.transform
        if transform is None:
            return subject
        if self.stream.replica is None:
            return transform.apply(subject) or subject
        firing = seq.to_bytes(8, "little") + at_ns.to_bytes(8, "little", signed=True)
        return transform.apply_by(firing, subject) or subject

    cdef bint publish(self, bytes subject, bytes headers, bytes payload) except -1:
        """Store a message that a schedule publishes; drop it if it is too large.

        Return False if a limit or the store refuses the message.
        """
        cdef Stream stream = self.stream
        cdef bytes body
        cdef PubHeaders h
        cdef uint64_t seq
        cdef Msg m
        if stream.limits.marker_ttl_ns and stream.limits.max_msgs_per_subject != 1:
            headers = with_least_ttl(headers, stream.limits.marker_ttl_ns) or headers
        body = headers + payload
        compose(&m, subject, len(subject), body, <uint32_t> len(headers), <uint32_t> len(body))
        if stream.size_refused(&m):
            return True
        scan_pub_headers(m.body, m.header_len, &h)
        seq = stream.keep_or_skip(&m, h.rollup.n != 0)
        if seq:
            stream.note_headers(&m, &h, seq)
        return seq != 0
