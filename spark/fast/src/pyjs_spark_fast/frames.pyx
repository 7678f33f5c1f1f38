"""Encodes columns as publishes, and decodes acknowledgements to the acknowledged rows; compiled.

frames.py does the same in plain Python, and describes the formats. Sizes are added up first, then one block of memory
is filled; no Python object is created per row. This module is compiled because the loop over rows is the main cost of
a sink (benchmarks/spark_sink.py).
"""
from cpython.array cimport array, clone
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcmp, memcpy

from pyjs_spark_fast.wire cimport View

from array import array as new_array

from pyjs_spark.decode import frames

cdef enum State:
    NEED_MORE = 0
    OTHER = 1
    ENOUGH = 3

cdef enum:
    DIGITS_MAX = 18
    HEAD_SIZE = 10  # NATS/1.0 CRLF
    ZERO = 48

cdef const char* HEAD = b"NATS/1.0\r\n"
cdef const char* ID = b"Nats-Msg-Id: "
cdef const char* PLACE = b"Pyjs-Sink: "
cdef const char* AGAIN = b'"duplicate":'

cdef array NUMBERS = new_array("q")


cdef struct Text:
    const char* data
    Py_ssize_t size

cdef struct Cells:
    const int32_t* at  # NULL: there is no such column
    const char* values

cdef struct Rows:
    Cells data
    Cells subject
    Cells ids
    Cells names
    Cells values
    const int32_t* entry_at  # NULL: the rows have no headers
    const int32_t* list_at
    const char* own  # NULL: no row has its own id
    const char* skip  # NULL: no row is left out
    Text inbox
    Text one_subject
    Text mark
    Text fixed

cdef struct Sizes:
    Py_ssize_t lines  # lines of headers, without NATS/1.0 and the empty line; 0: a PUB
    Py_ssize_t frame


cdef Text text(bytes value):
    cdef Text made
    made.data = PyBytes_AS_STRING(value)
    made.size = len(value)
    return made


cdef Cells cells(object pair, list held):
    """Return pointers into a column; `held` keeps the memory of the column alive."""
    cdef Cells made
    cdef View at, values
    made.at = NULL
    made.values = NULL
    if pair is not None:
        at, values = View(pair[0]), View(pair[1])
        held += (at, values)
        made.at = <const int32_t*>at.data()
        made.values = values.data()
    return made


def frame_rows(columns, Py_ssize_t low, Py_ssize_t high, how, int64_t first, bytes skip=b""):
    """The compiled form of frames.frame_rows()."""
    cdef Rows rows
    cdef Py_ssize_t total = 0, count = 0
    cdef bytes made
    cdef array ends, numbers
    cdef list held = [how, skip, columns]
    assert 0 <= low <= high <= columns.rows
    assert not skip or len(skip) == columns.rows
    assert not columns.own or len(columns.own) == columns.rows
    fill_in(&rows, columns, how, held)
    rows.skip = PyBytes_AS_STRING(skip) if skip else NULL
    with nogil:
        count = measure(&rows, low, high, first, &total)
    made = PyBytes_FromStringAndSize(NULL, total)
    ends, numbers = clone(NUMBERS, count, False), clone(NUMBERS, count, False)
    if count:
        write(&rows, low, high, first, PyBytes_AS_STRING(made), ends.data.as_longlongs, numbers.data.as_longlongs)
    return frames.Frames(made, ends, numbers)


cdef void fill_in(Rows* rows, object columns, object how, list held):
    """Set the pointers in `rows` to all columns."""
    cdef View entry_at, list_at
    rows.data = cells(columns.data, held)
    rows.subject = cells(columns.subject, held)
    rows.ids = cells(columns.ids, held)
    rows.names = cells(None, held)
    rows.values = cells(None, held)
    rows.entry_at = NULL
    rows.list_at = NULL
    if columns.headers is not None:
        entries, name_at, names, lists, value_at, values = columns.headers
        entry_at, list_at = View(entries), View(lists)
        held += (entry_at, list_at)
        rows.entry_at = <const int32_t*>entry_at.data()
        rows.list_at = <const int32_t*>list_at.data()
        rows.names = cells((name_at, names), held)
        rows.values = cells((value_at, values), held)
    rows.own = PyBytes_AS_STRING(columns.own) if columns.own else NULL
    rows.inbox = text(how.inbox)
    rows.one_subject = text(how.subject)
    rows.mark = text(how.mark)
    rows.fixed = text(how.fixed)


cdef inline Text cell(Cells column, Py_ssize_t at) noexcept nogil:
    cdef Text made
    made.data = column.values + column.at[at]
    made.size = column.at[at + 1] - column.at[at]
    return made


cdef inline Text subject_of(Rows* rows, Py_ssize_t at) noexcept nogil:
    return cell(rows.subject, at) if rows.subject.at != NULL else rows.one_subject


cdef inline int digits(int64_t number) noexcept nogil:
    cdef int count = 1
    while number >= 10:
        number //= 10
        count += 1
    return count


cdef Sizes sizes_of(Rows* rows, Py_ssize_t at, int64_t row) noexcept nogil:
    """Return the sizes of the publish of one row."""
    cdef Sizes found
    cdef int32_t entry, value
    cdef Py_ssize_t lines = rows.fixed.size, name, size = rows.data.at[at + 1] - rows.data.at[at]
    cdef Py_ssize_t head
    if rows.own != NULL and rows.own[at]:
        if rows.ids.at != NULL:
            lines += 13 + rows.ids.at[at + 1] - rows.ids.at[at] + 2
        if rows.mark.size:
            lines += 11 + rows.mark.size + digits(row) + 2
    elif rows.mark.size:
        lines += 13 + rows.mark.size + digits(row) + 2
    if rows.entry_at != NULL:
        for entry in range(rows.entry_at[at], rows.entry_at[at + 1]):
            name = rows.names.at[entry + 1] - rows.names.at[entry]
            for value in range(rows.list_at[entry], rows.list_at[entry + 1]):
                lines += name + 2 + rows.values.at[value + 1] - rows.values.at[value] + 2
    found.lines = lines
    found.frame = subject_of(rows, at).size + 1 + rows.inbox.size + digits(row) + 1
    if lines:
        head = lines + HEAD_SIZE + 2
        found.frame += 5 + digits(head) + 1 + digits(head + size) + 2 + head + size + 2
    else:
        found.frame += 4 + digits(size) + 2 + size + 2
    return found


cdef Py_ssize_t measure(
    Rows* rows, Py_ssize_t low, Py_ssize_t high, int64_t first, Py_ssize_t* total
) noexcept nogil:
    """Return the number of publishes; set `total` to their size in bytes."""
    cdef Py_ssize_t at, count = 0
    for at in range(low, high):
        if rows.skip == NULL or not rows.skip[at]:
            total[0] += sizes_of(rows, at, first + at).frame
            count += 1
    return count


cdef inline char* put(char* to, const char* data, Py_ssize_t size) noexcept nogil:
    memcpy(to, data, size)
    return to + size


cdef inline char* put_number(char* to, int64_t number) noexcept nogil:
    cdef int count = digits(number), at = count
    while at:
        at -= 1
        to[at] = <char>(ZERO + number % 10)
        number //= 10
    return to + count


cdef void write(
    Rows* rows, Py_ssize_t low, Py_ssize_t high, int64_t first, char* to, long long* ends, long long* numbers
) noexcept nogil:
    """Write the publishes; set the end offset and the row number of each."""
    cdef Py_ssize_t at, size, end = 0
    cdef Sizes sizes
    cdef Text subject
    for at in range(low, high):
        if rows.skip != NULL and rows.skip[at]:
            continue
        sizes = sizes_of(rows, at, first + at)
        size = rows.data.at[at + 1] - rows.data.at[at]
        subject = subject_of(rows, at)
        to = put(to, b"HPUB " if sizes.lines else b"PUB ", 5 if sizes.lines else 4)
        to = put(put(to, subject.data, subject.size), b" ", 1)
        to = put_number(put(to, rows.inbox.data, rows.inbox.size), first + at)
        to = put(to, b" ", 1)
        if sizes.lines:
            to = put_number(to, sizes.lines + HEAD_SIZE + 2)
            to = put_number(put(to, b" ", 1), sizes.lines + HEAD_SIZE + 2 + size)
            to = put(put(to, b"\r\n", 2), HEAD, HEAD_SIZE)
            to = put(put_lines(to, rows, at, first + at), b"\r\n", 2)
        else:
            to = put(put_number(to, size), b"\r\n", 2)
        to = put(put(to, rows.data.values + rows.data.at[at], size), b"\r\n", 2)
        end += sizes.frame
        ends[0] = end
        numbers[0] = first + at
        ends += 1
        numbers += 1


cdef char* put_lines(char* to, Rows* rows, Py_ssize_t at, int64_t row) noexcept nogil:
    """Write the header lines of one row."""
    cdef int32_t entry, value
    cdef Text name, one
    if rows.own != NULL and rows.own[at]:
        if rows.ids.at != NULL:
            one = cell(rows.ids, at)
            to = put(put(put(to, ID, 13), one.data, one.size), b"\r\n", 2)
        if rows.mark.size:
            to = put(put_number(put(put(to, PLACE, 11), rows.mark.data, rows.mark.size), row), b"\r\n", 2)
    elif rows.mark.size:
        to = put(put_number(put(put(to, ID, 13), rows.mark.data, rows.mark.size), row), b"\r\n", 2)
    to = put(to, rows.fixed.data, rows.fixed.size)
    if rows.entry_at == NULL:
        return to
    for entry in range(rows.entry_at[at], rows.entry_at[at + 1]):
        name = cell(rows.names, entry)
        for value in range(rows.list_at[entry], rows.list_at[entry + 1]):
            one = cell(rows.values, value)
            to = put(put(to, name.data, name.size), b": ", 2)
            to = put(put(to, one.data, one.size), b"\r\n", 2)
    return to


cdef struct Ack:
    int64_t row
    int64_t seq
    bint is_duplicate


cdef class Acks:
    """The compiled form of frames.Acks."""
    cdef readonly int64_t sid
    cdef readonly int state
    cdef readonly Py_ssize_t need
    cdef readonly int64_t waiting
    cdef readonly int64_t last_seq
    cdef readonly int64_t duplicates
    cdef public int64_t enough
    cdef bytes _inbox
    cdef bytes _prefix
    cdef bytes _head  # the line up to the row number
    cdef bytes _tail  # the line after the row number, up to the size
    cdef int64_t _first
    cdef bytearray _flags

    def __cinit__(self, bytes inbox):
        self._inbox = inbox
        self._prefix = b""
        self._head = b"MSG " + inbox
        self._tail = b" 0 "
        self._flags = bytearray()
        self.need = 1

    def listen(self, int64_t sid):
        """Set the subscription on which acknowledgements will arrive."""
        self.sid = sid
        self._tail = b" %d " % sid

    def learn(self, bytes payload):
        """Store the constant part of acknowledgements, taken from the payload of a validated acknowledgement."""
        head, found, _ = payload.partition(b'"seq":')
        self._prefix = head + found

    def add(self, object numbers):
        """Add rows that wait for acknowledgements; their numbers are higher than all earlier ones."""
        cdef int64_t number
        if not self._flags:
            self._first = numbers[0]
        self._flags.extend(bytes(numbers[-1] + 1 - self._first - len(self._flags)))
        for number in numbers:
            self._flags[number - self._first] = 1
        self.waiting += len(numbers)

    def is_waiting(self, int64_t number):
        """Return whether a row is not acknowledged yet."""
        return 0 <= number - self._first < len(self._flags) and self._flags[number - self._first] == 1

    def settle(self, int64_t number, int64_t seq, bint is_duplicate):
        """Mark a row as stored; do nothing if the row is unknown or already stored."""
        if self.is_waiting(number):
            self._flags[number - self._first] = 0
            self.waiting -= 1
            self.duplicates += is_duplicate
            self.last_seq = max(self.last_seq, seq)

    def forget_before(self, int64_t number):
        """Forget the rows before `number`, all of which are acknowledged."""
        cdef int64_t count = min(number - self._first, <int64_t>len(self._flags))
        if count > 0:
            del self._flags[:count]
            self._first += count

    def decode(self, data, Py_ssize_t start, Py_ssize_t end):
        """Decode acknowledgements in `data[start:end]`; return the offset of the first unread byte.

        `state` is then the reason why decoding ended.
        """
        cdef View view = View(data)
        cdef const char* base = view.data()
        cdef char* flags = PyByteArray_AS_STRING(self._flags)
        cdef int64_t index, count = len(self._flags)
        cdef Py_ssize_t at = start, size
        cdef Ack ack
        assert 0 <= start <= end <= view.buffer.len
        while True:
            if self.waiting <= self.enough:
                self.state = ENOUGH
                return at
            size = self._scan(base + at, base + end, &ack) if self._prefix else 0
            if not size:
                break
            index = ack.row - self._first
            if 0 <= index < count and flags[index]:
                flags[index] = 0
                self.waiting -= 1
                self.duplicates += ack.is_duplicate
                self.last_seq = max(self.last_seq, ack.seq)
            at += size
        self.state, self.need = frames.stopped_at(data, at, end)
        return at

    cdef Py_ssize_t _scan(self, const char* start, const char* end, Ack* ack) noexcept:
        """Parse one plain acknowledgement; return its size, or 0 if there is no complete one."""
        cdef const char* at = after(start, end, self._head)
        cdef int64_t number = 0
        if at == NULL:
            return 0
        at = read_number(at, end, &ack.row)
        if at != NULL:
            at = after(at, end, self._tail)
        if at == NULL:
            return 0
        at = read_number(at, end, &number)
        if at != NULL:
            at = after(at, end, b"\r\n")
        if at != NULL:
            at = after(at, end, self._prefix)
        if at == NULL:
            return 0
        if at < end and at[0] == b" ":
            at += 1
        at = read_number(at, end, &ack.seq)
        if at == NULL:
            return 0
        ack.is_duplicate = at < end and at[0] == b","
        if ack.is_duplicate:
            at = duplicate(at + 1, end)
        if at != NULL:
            at = after(at, end, b"}\r\n")
        return 0 if at == NULL else at - start


cdef inline const char* after(const char* at, const char* end, bytes wanted) noexcept:
    """Return the position after `wanted`, or NULL if `wanted` is not at `at`."""
    cdef Py_ssize_t size = len(wanted)
    if end - at < size or memcmp(at, PyBytes_AS_STRING(wanted), size) != 0:
        return NULL
    return at + size


cdef inline const char* duplicate(const char* at, const char* end) noexcept:
    if at < end and at[0] == b" ":
        at += 1
    if end - at < 12 or memcmp(at, AGAIN, 12) != 0:
        return NULL
    at += 12
    if at < end and at[0] == b" ":
        at += 1
    return after(at, end, b"true")


cdef inline const char* read_number(const char* at, const char* end, int64_t* value) noexcept nogil:
    """Read up to DIGITS_MAX digits; return the position after them, or NULL if there are none or too many."""
    cdef const char* start = at
    cdef int64_t number = 0
    while at < end and b"0" <= at[0] <= b"9" and at - start < DIGITS_MAX:
        number = 10 * number + (at[0] - ZERO)
        at += 1
    if at == start or (at < end and b"0" <= at[0] <= b"9"):
        return NULL
    value[0] = number
    return at
