"""The changes of a consumer in one turn, encoded for a single write to the consumer's state file.

Grammar (u is an unsigned LEB128 number, times are ns since the epoch):

    delta       = { change }
    change      = %d1 seq:u cseq:u n:u ts:u     n first deliveries; seq and cseq ascend by one
                | %d2 seq:u n:u                 n messages from seq on, each acknowledged or terminated
                | %d3 seq:u cseq:u              ack of everything up to seq
                | %d4 seq:u ts:u                redelivery
                | %d5 seq:u ts:u                in progress
                | %d6 seq:u                     nak
                | %d7 seq:u due_at:u            nak with a delay
                | %d8 seq:u                     max_deliver reached: no longer pending
                | %d9 seq:u                     acknowledged, because its dead letter is stored
                | %d10 seq:u n:u n*byte         terminated with a UTF-8 reason; the dead letter is not stored yet
                | %d11 seq:u cseq:u             ack of all up to seq, except where a dead letter is not stored yet

Consecutive deliveries are joined into one change, as are consecutive acks: the acks of 500 consecutive messages take
a few bytes. This module does not write the file.
Compiled, because it runs for every delivery and every ack (measured in benchmarks/: pull with explicit acks).
"""
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from pyjs.base.grow cimport grow

cdef enum:
    NUMBER_SIZE_MAX = 10        # bytes of 2**64 - 1
    CHANGE_SIZE_MAX = 1 + 4 * NUMBER_SIZE_MAX
cdef int NUMBERS[12]
NUMBERS[:] = [0, 4, 2, 2, 2, 2, 1, 2, 1, 1, 2, 2]


cdef class StateLog:
    """The encoded changes of one consumer since the last `take`."""

    def __cinit__(self, bint enabled=True):
        self.enabled = enabled

    def __dealloc__(self):
        free(self.data)

    cdef void delivered(self, uint64_t seq, uint64_t cseq, int64_t ts) noexcept nogil:
        if not self.enabled:
            return
        if (self.run == DELIVERED and seq == self.run_seq + self.run_n and cseq == self.run_cseq + self.run_n
                and ts == self.run_ts):
            self.run_n += 1
            return
        self.end_run()
        self.run = DELIVERED
        self.run_seq, self.run_cseq, self.run_n, self.run_ts = seq, cseq, 1, ts

    cdef void acked(self, uint64_t seq) noexcept nogil:
        if not self.enabled:
            return
        if self.run == ACKED and seq == self.run_seq + self.run_n:
            self.run_n += 1
            return
        self.end_run()
        self.run = ACKED
        self.run_seq, self.run_n = seq, 1

    cdef void put(self, Change change, uint64_t a, uint64_t b) noexcept nogil:
        cdef uint64_t values[2]
        if not self.enabled:
            return
        self.end_run()
        values[0], values[1] = a, b
        self.write(change, values, NUMBERS[<int> change])

    cdef int put_term(self, uint64_t seq, bytes reason) except -1:
        """Add the termination of the delivery of `seq`, with the client's reason in UTF-8."""
        cdef size_t n = len(reason)
        cdef const char* text = reason
        self.put(TERMINATED, seq, n)
        if not self.enabled or self.lost:
            return 0
        if grow(<void**> &self.data, &self.room, self.len + n, 1) < 0:
            self.lost = True
            return 0
        memcpy(self.data + self.len, text, n)
        self.len += n
        return 0

    cdef void end_run(self) noexcept nogil:
        cdef uint64_t values[4]
        cdef int change = self.run
        self.run = 0
        if change == DELIVERED:
            values[0], values[1] = self.run_seq, self.run_cseq
            values[2], values[3] = self.run_n, <uint64_t> self.run_ts
            self.write(change, values, 4)
        elif change == ACKED:
            values[0], values[1] = self.run_seq, self.run_n
            self.write(change, values, 2)

    cdef void write(self, int change, uint64_t* values, int n) noexcept nogil:
        cdef uint64_t value
        cdef int k
        if grow(<void**> &self.data, &self.room, self.len + CHANGE_SIZE_MAX, 1) < 0:
            self.lost = True
            return
        self.data[self.len] = <unsigned char> change
        self.len += 1
        for k in range(n):
            value = values[k]
            while value >= 0x80:
                self.data[self.len] = <unsigned char> (value & 0x7f | 0x80)
                self.len += 1
                value >>= 7
            self.data[self.len] = <unsigned char> value
            self.len += 1

    @property
    def is_empty(self) -> bool:
        """Whether no change was added since the last `take`, and none was lost."""
        return self.len == 0 and self.run == 0 and not self.lost

    def take(self) -> bytes:
        """Return the encoded changes since the last call, or b"" if there is none."""
        self.end_run()
        out = <bytes> self.data[:self.len] if self.len else b""
        self.len = 0
        return out

    def add(self, int change, *numbers) -> None:
        """Add one change of kind `change` with its values, for tests."""
        if change == DELIVERED:
            self.delivered(numbers[0], numbers[1], numbers[2])
        elif change == ACKED:
            self.acked(numbers[0])
        elif change == TERMINATED:
            self.put_term(numbers[0], numbers[1])
        else:
            self.put(<Change> change, numbers[0], numbers[1] if len(numbers) > 1 else 0)


class UnknownChange(ValueError):
    """Raised if a newer version wrote the change."""


def decode(bytes delta) -> Iterator[tuple[int, ...]]:
    """Yield each change in `delta` as numbers: its kind, its values, and the bytes of its reason if it has one.

    Raises:
        UnknownChange: a newer version wrote the delta.
        ValueError: the delta is invalid.
    """
    cdef Py_ssize_t at = 0, end = len(delta)
    while at < end:
        change = delta[at]
        at += 1
        if change == 0:
            raise ValueError(f"consumer state: change 0 at {at - 1}, which no version writes")
        if change > ACKED_PENDING:
            raise UnknownChange(f"it has a change of kind {change}, and this one reads 1 to {<int> ACKED_PENDING}")
        values = [change]
        for _ in range(NUMBERS[<int> change]):
            value, at = _number(delta, at)
            values.append(value)
        if change == TERMINATED:
            size = values.pop()
            if size > end - at:
                raise ValueError(f"consumer state: a reason of {size} bytes at {at}, cut off at {end}")
            values.extend(delta[at:at + size])
            at += size
        yield tuple(values)


def _number(bytes delta, Py_ssize_t at) -> tuple:
    cdef uint64_t value = 0
    cdef unsigned char byte
    cdef int k
    for k in range(NUMBER_SIZE_MAX):
        if at >= len(delta):
            raise ValueError(f"consumer state: cut off at {at}")
        byte = delta[at]
        at += 1
        if k + 1 == NUMBER_SIZE_MAX and byte > 1:
            break
        value |= <uint64_t> (byte & 0x7F) << (7 * k)
        if byte < 0x80:
            return value, at
    raise ValueError(f"consumer state: a number over 64 bits at {at - NUMBER_SIZE_MAX}")
