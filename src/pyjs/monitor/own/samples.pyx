"""Samples of streams and consumers: rows of numbers with their labels, and their text for Prometheus.

A row has two parts of labels and one number for each family of its table; all consumers of a stream share the first
part. The text of a family has a line for each row, so every part of the labels is written as often as there are
families: the text for 100 streams with three consumers each has 2 MB. Compiled, because plain Python needs 4 ms for
these (benchmarks/metrics.py).
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MIN, int64_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from pyjs.base.grow cimport grow
from pyjs.jetstream.consumer.consumer cimport Consumer

cdef int64_t MISSING = INT64_MIN     # of SECONDS: a row without a sample

cdef enum:
    NS_PER_MS = 1_000_000
    TEXT_MAX = 24               # bytes of the longest number: a sign, 20 digits, and a point

# the forms of a family's numbers
UNSIGNED = b"u"
SIGNED = b"i"
SECONDS = b"s"                  # stored in ns
CONSUMER_FORMS = UNSIGNED * 8 + SECONDS * 4


@cython.final
cdef class Table:
    """A table of samples: each row has labels, and a number for each family.

    `forms` has one letter for each family in `names`, which is the form of the family's numbers.
    """
    cdef readonly tuple names
    cdef bytes _forms
    cdef list _heads, _tails    # the labels of each row, without and with the closing brace
    cdef int64_t* _numbers      # `_width` of each row; unsigned ones keep their bits
    cdef size_t _room, _width

    def __cinit__(self, tuple names, bytes forms):
        assert len(names) == len(forms)
        self.names, self._forms = names, forms
        self._width = len(names)
        self._heads, self._tails = [], []

    def __dealloc__(self):
        free(self._numbers)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._heads)

    def add(self, bytes head, bytes tail, tuple numbers) -> None:
        """Add a row of integers; only their lowest 64 bits are stored."""
        assert len(numbers) == <Py_ssize_t> self._width
        cdef int64_t* row = self._new_row(head, tail)
        cdef size_t i
        for i in range(self._width):
            row[i] = <int64_t> <uint64_t> (numbers[i] & 0xFFFFFFFFFFFFFFFF)

    def add_consumer(self, bytes head, bytes tail, Consumer consumer, int64_t now_ns) -> None:
        """Add the row of an open consumer, in the order of jetstream_metrics.CONSUMER."""
        cdef uint64_t unread = consumer.cursor.num_pending()
        cdef int64_t lag_ns = _lag(consumer, unread, now_ns), unacked_ns = _oldest_unacked(consumer, now_ns)
        cdef int64_t* row = self._new_row(head, tail)
        row[0] = consumer.acks.delivered_cseq
        row[1] = consumer.acks.delivered_seq
        row[2] = consumer.acks.pending.count
        row[3] = <int64_t> consumer.acks.pending.redelivered + <int64_t> len(consumer.acks.exhausted)
        row[4] = 0 if consumer.requests is None else consumer.requests.queue.count
        row[5] = unread
        row[6] = consumer.acks.floor_seq
        row[7] = consumer.acks.floor_cseq
        row[8] = lag_ns
        row[9] = unacked_ns
        row[10] = now_ns - consumer.delivered_at if consumer.delivered_at else MISSING
        row[11] = now_ns - consumer.acked_at if consumer.acked_at else MISSING

    cdef int64_t* _new_row(self, bytes head, bytes tail) except NULL:
        """Return the numbers of a new row, which the caller must set."""
        cdef size_t count = len(self._heads)
        if grow(<void**> &self._numbers, &self._room, (count + 1) * self._width, sizeof(int64_t)):
            raise MemoryError
        self._heads.append(head)
        self._tails.append(tail)
        return &self._numbers[count * self._width]

    def text(self, size_t column, size_t start, size_t stop) -> bytes:
        """Return the lines of the metric family `column` for the rows `start` to `stop` - 1."""
        cdef bytes name = self.names[column]
        cdef char form = self._forms[column]
        cdef size_t i, size = 0, name_size = PyBytes_GET_SIZE(name)
        cdef int64_t number
        cdef char[TEXT_MAX] text
        cdef list heads = self._heads, tails = self._tails
        stop = min(stop, <size_t> len(heads))
        start = min(start, stop)
        for i in range(start, stop):
            number = self._numbers[i * self._width + column]
            if number != MISSING or form != c's':
                size += name_size + PyBytes_GET_SIZE(heads[i]) + PyBytes_GET_SIZE(tails[i]) + 2
                size += write_number(text, number, form) - text
        cdef bytes out = PyBytes_FromStringAndSize(NULL, size)
        cdef char* at = PyBytes_AS_STRING(out)
        for i in range(start, stop):
            number = self._numbers[i * self._width + column]
            if number != MISSING or form != c's':
                at = write(at, name)
                at = write(at, <bytes> heads[i])
                at = write(at, <bytes> tails[i])
                at[0] = c' '
                at = write_number(at + 1, number, form)
                at[0] = c'\n'
                at += 1
        assert at == PyBytes_AS_STRING(out) + size
        return out


cdef inline char* write(char* at, bytes part) noexcept:
    """Copy `part` to `at`; return the position after the copy."""
    memcpy(at, PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part))
    return at + PyBytes_GET_SIZE(part)


cdef char* write_number(char* at, int64_t number, char form) noexcept nogil:
    """Write a number to `at` in the form `form`; return the position after it."""
    cdef uint64_t whole = <uint64_t> number
    cdef uint64_t ms
    if form != c'u' and number < 0:
        at[0] = c'-'
        at += 1
        whole = 0 - whole
    if form != c's':
        return write_digits(at, whole)
    ms = whole // NS_PER_MS
    at = write_digits(at, ms // 1000)
    at[0] = c'.'
    at[1] = c'0' + <char> (ms // 100 % 10)
    at[2] = c'0' + <char> (ms // 10 % 10)
    at[3] = c'0' + <char> (ms % 10)
    return at + 4


cdef char* write_digits(char* at, uint64_t number) noexcept nogil:
    """Write the decimal digits of a number to `at`; return the position after them."""
    cdef char[20] digits
    cdef int count = 0
    while True:
        digits[count] = c'0' + <char> (number % 10)
        number //= 10
        count += 1
        if number == 0:
            break
    while count:
        count -= 1
        at[0] = digits[count]
        at += 1
    return at


def ages_ns(Consumer consumer not None, int64_t now_ns) -> tuple[int, int]:
    """Return the lag of a consumer, and the age of its oldest unacknowledged delivery, in ns; 0 means none.

    The lag is the age of the oldest message that was never delivered.
    """
    return _lag(consumer, consumer.cursor.num_pending(), now_ns), _oldest_unacked(consumer, now_ns)


cdef int64_t _lag(Consumer consumer, uint64_t unread, int64_t now_ns) except -1:
    if not unread:
        return 0
    cdef int64_t stored_ns = consumer.store.catalogue.stored_at(consumer.cursor.find())
    return max(now_ns + consumer.turn.skew - stored_ns, 0) if stored_ns else 0


cdef int64_t _oldest_unacked(Consumer consumer, int64_t now_ns) except -1:
    if not consumer.acks.pending.count:
        return 0
    return max(now_ns - consumer.acks.pending.entries[consumer.acks.pending.oldest].sent_at, 0)
