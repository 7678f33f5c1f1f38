"""Compiled decoder of a pull's deliveries into columns; wire.py does the same in plain Python and explains it.

No Python object is made for a message: the line is scanned in place and each column grows in one block of memory,
which the Arrow array then owns. pyjs_spark_fast/entries.pyx uses the same columns. This module decodes several times
as many messages per second of processor time as wire.py (benchmarks/spark_client.py).
"""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy

from pyjs_spark.decode import wire

cdef enum State:
    NEED_MORE = 0
    OTHER = 1
    FULL = 2
    ENOUGH = 3
    DONE = 4
    GAP = 5
    TOO_LARGE = 6

cdef enum:
    LINES_MAX = 64  # headers with more lines are grouped by a Python dict
    SEQ_DIGITS_MAX = 19
    ZERO = 48

cdef uint64_t SEQ_MAX = 0x7FFFFFFFFFFFFFFF


cdef struct Frame:
    const char* subject
    Py_ssize_t subject_size
    uint64_t seq
    int seq_digits
    int64_t consumer_seq
    int64_t ts_ns
    int64_t pending
    Py_ssize_t head_size
    Py_ssize_t size  # size of headers and payload
    Py_ssize_t line_size  # size of the line with its CRLF

cdef struct Line:
    Span name
    Span value


cdef class View:
    def __cinit__(self, object owner):
        PyObject_GetBuffer(owner, &self.buffer, PyBUF_SIMPLE)
        self.is_held = True

    def __dealloc__(self):
        if self.is_held:
            PyBuffer_Release(&self.buffer)

    cdef const char* data(self) noexcept:
        return <const char*>self.buffer.buf


cdef class Block:
    """Memory of one column. It exists as long as an object that uses it as a buffer."""
    def __cinit__(self, Py_ssize_t room):
        self.data = <char*>malloc(max(room, 64))
        if self.data == NULL:
            raise MemoryError
        self.room = max(room, 64)

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, True, flags)

    cdef int need(self, Py_ssize_t more) except -1 nogil:
        """Make room for `more` bytes after those that are used."""
        cdef char* larger
        cdef Py_ssize_t room = self.room
        if self.size + more <= room:
            return 0
        while room < self.size + more:
            room *= 2
        larger = <char*>realloc(self.data, room)
        if larger == NULL:
            with gil:
                raise MemoryError
        self.data = larger
        self.room = room
        return 0

    cdef inline int add(self, const char* data, Py_ssize_t size) except -1 nogil:
        self.need(size)
        memcpy(self.data + self.size, data, size)
        self.size += size
        return 0

    cdef inline int add_int64(self, int64_t value) except -1 nogil:
        self.need(8)
        (<int64_t*>(self.data + self.size))[0] = value
        self.size += 8
        return 0

    cdef inline int add_int32(self, int32_t value) except -1 nogil:
        self.need(4)
        (<int32_t*>(self.data + self.size))[0] = value
        self.size += 4
        return 0

    cdef inline void set_bit(self, Py_ssize_t at) noexcept nogil:
        cdef char* byte = self.data + at // 8
        byte[0] = byte[0] | <char>(1 << (at % 8))

    cdef inline int32_t count(self) noexcept nogil:
        """Return the number of offsets after the first one."""
        return <int32_t>(self.size // 4) - 1

    cdef bint is_ascii(self) noexcept nogil:
        cdef Py_ssize_t at = 0
        cdef uint64_t word = 0
        cdef uint8_t high = 0
        while at + 8 <= self.size:
            memcpy(&word, self.data + at, 8)
            if word & 0x8080808080808080ULL:
                return False
            at += 8
        while at < self.size:
            high |= <uint8_t>self.data[at]
            at += 1
        return high < 0x80


cdef Block begun(Block before):
    """Return an empty block with room for as many bytes as `before` had."""
    return Block(before.size + before.size // 8 if before is not None else 4096)


cdef Block offsets_begun(Block before):
    """Return a block of offsets with only the first one, 0."""
    cdef Block block = begun(before)
    block.add_int32(0)
    return block


cdef tuple text(Block offsets, Block values):
    """Return the column unchanged, or with replacement characters if it is not UTF-8."""
    if values.is_ascii():
        return (offsets, values)
    return wire.repaired(memoryview(offsets), bytes(values))


cdef class Columns:
    """Collects the rows of each batch, one batch after another."""
    def __cinit__(self, object columns, str headers, Py_ssize_t rows_max, Py_ssize_t size_max):
        assert headers in wire.HEADERS
        assert set(columns) <= set(wire.COLUMNS)
        self._columns = tuple(columns)
        self._kind = NO_HEADERS
        if "headers" in self._columns:
            self._kind = {"map": MAP, "raw": RAW, "false": NO_HEADERS}[headers]
        self._wants_seq = "seq" in self._columns
        self._wants_ts = "ts_ns" in self._columns
        self._wants_subject = "subject" in self._columns
        self._wants_data = "data" in self._columns
        self._wants_size = "size" in self._columns
        self._rows_max = rows_max
        self._size_max = size_max
        self._begin()

    def take(self):
        """Return the rows as columns, and start a new batch."""
        cdef dict columns = {}
        cdef Py_ssize_t rows = self.rows, headed = self._headed
        for name in self._columns:
            if name == "seq":
                columns[name] = (self._seqs,)
            elif name == "ts_ns":
                columns[name] = (self._times,)
            elif name == "size":
                columns[name] = (self._sizes,)
            elif name == "subject":
                columns[name] = text(self._subject_at, self._subjects)
            elif name == "data":
                columns[name] = (self._data_at, self._data)
            elif self._kind == RAW:
                columns[name] = (self._valid, self._head_at, self._heads)
            elif self._kind == MAP:
                names = text(self._name_at, self._names)
                values = text(self._value_at, self._values)
                columns[name] = (self._valid, self._entry_at, *names, self._list_at, *values)
        self._begin()
        return wire.Taken(rows, rows - headed, columns)

    cdef void _begin(self):
        """Start a batch with new blocks: the previous ones belong to the arrays of their batch."""
        self.rows = 0
        self.size = 0
        self._headed = 0
        self._seqs = begun(self._seqs)
        self._times = begun(self._times)
        self._sizes = begun(self._sizes)
        self._subject_at = offsets_begun(self._subject_at)
        self._subjects = begun(self._subjects)
        self._data_at = offsets_begun(self._data_at)
        self._data = begun(self._data)
        self._valid = begun(self._valid)
        self._head_at = offsets_begun(self._head_at)
        self._heads = begun(self._heads)
        self._entry_at = offsets_begun(self._entry_at)
        self._name_at = offsets_begun(self._name_at)
        self._names = begun(self._names)
        self._list_at = offsets_begun(self._list_at)
        self._value_at = offsets_begun(self._value_at)
        self._values = begun(self._values)

    cdef int _headers(self, const char* block, Py_ssize_t size) except -1 nogil:
        """Add the headers of the row with the number `rows`, or null if `size` is 0."""
        if self.rows % 8 == 0:
            self._valid.need(1)
            self._valid.data[self._valid.size] = 0
            self._valid.size += 1
        if size:
            self._valid.set_bit(self.rows)
            self._headed += 1
        if self._kind == RAW:
            self._heads.add(block, size)
            self._head_at.add_int32(<int32_t>self._heads.size)
            return 0
        if size:
            self._map(block, size)
        self._entry_at.add_int32(self._list_at.count())
        return 0

    cdef int _map(self, const char* block, Py_ssize_t size) except -1 nogil:
        """Add the names of a block of headers in their order, each with its values in their order."""
        cdef Line lines[LINES_MAX]
        cdef int count = header_lines(block, size, lines), one, other
        if count < 0:
            with gil:
                self._many(block[:size])
            return 0
        for one in range(count):
            if lines[one].name.size == 0:
                continue  # an earlier line of that name has its values
            self._names.add(lines[one].name.start, lines[one].name.size)
            self._name_at.add_int32(<int32_t>self._names.size)
            self._value(&lines[one].value)
            for other in range(one + 1, count):
                if is_same(&lines[one].name, &lines[other].name):
                    self._value(&lines[other].value)
                    lines[other].name.size = 0
            self._list_at.add_int32(self._value_at.count())
        return 0

    cdef inline int _value(self, Span* value) except -1 nogil:
        self._values.add(value.start, value.size)
        self._value_at.add_int32(<int32_t>self._values.size)
        return 0

    cdef int _many(self, bytes block) except -1:
        """Add a block with more than LINES_MAX lines."""
        cdef Span span
        cdef bytes name, value
        for name, values in wire.header_pairs(block).items():
            self._names.add(name, len(name))
            self._name_at.add_int32(<int32_t>self._names.size)
            for value in values:
                span.start = value
                span.size = len(value)
                self._value(&span)
            self._list_at.add_int32(self._value_at.count())
        return 0


cdef class Decoder(Columns):
    """Decodes the deliveries of several consumers, one after another, into the rows of several batches."""
    cdef readonly int64_t sid
    cdef readonly int state
    cdef readonly Py_ssize_t need
    cdef readonly int64_t last_seq
    cdef readonly int64_t delivered
    cdef readonly int64_t pending
    cdef int64_t _high, _enough
    cdef bytes _sid_text  # followed by a space
    cdef bytes _prefix  # prefix of the reply subjects, up to its dot; b"" before the first delivery
    cdef const char* _sid_chars  # points into _sid_text, which keeps it valid
    cdef const char* _prefix_chars  # points into _prefix
    cdef Py_ssize_t _sid_size, _prefix_size

    def __cinit__(self, object columns, str headers, Py_ssize_t rows_max, Py_ssize_t size_max):
        self._sid_text = b""
        self._prefix = b""
        self.need = 1

    def listen(self, int64_t sid, int64_t high, int64_t next_seq):
        """Continue with a new consumer's deliveries from `next_seq` on; rows at `high` and above are dropped."""
        self.sid = sid
        self.delivered = 0
        self.last_seq = next_seq - 1
        self._high = high
        self._enough = 0
        self._sid_text = b"%d " % sid
        self._sid_chars = self._sid_text
        self._sid_size = len(self._sid_text)
        self._prefix = b""

    def expect(self, int64_t count):
        """Stop with ENOUGH after `count` more deliveries."""
        self._enough = self.delivered + count

    def decode(self, data, Py_ssize_t start, Py_ssize_t end):
        """Decode deliveries in `data[start:end]`; return the offset of the first unread byte.

        `state` is then the reason why decoding ended.
        """
        cdef View view = View(data)
        cdef const char* base = view.data()
        cdef Py_ssize_t used
        assert 0 <= start <= end <= view.buffer.len
        if start == end:
            self._stop(NEED_MORE, 1)
            return start
        if not self._prefix and not self._learn(base + start, end - start):
            return start
        with nogil:
            used = self._decode(base + start, end - start)
        return start + used

    cdef bint _learn(self, const char* at, Py_ssize_t size):
        """Store the constant part of the consumer's reply subjects, taken from its first delivery.

        If there is no complete delivery, return False, and set `state` to the reason.
        """
        cdef Py_ssize_t line = line_size(at, size)
        if line == 0:
            self._stop(NEED_MORE, size + 1)
            return False
        self._prefix = wire.first_prefix(at[:line], self.sid)
        self._prefix_chars = self._prefix
        self._prefix_size = len(self._prefix)
        if not self._prefix:
            self._stop(OTHER, 1)
        return bool(self._prefix)

    cdef inline void _stop(self, int state, Py_ssize_t need) noexcept nogil:
        self.state = state
        self.need = need

    cdef Py_ssize_t _decode(self, const char* data, Py_ssize_t size) except -1 nogil:
        """Decode one frame after another; return the number of bytes used."""
        cdef Frame frame
        cdef Py_ssize_t at = 0, whole
        while True:
            if self.rows >= self._rows_max:
                self._stop(FULL, 1)
                return at
            if self.delivered == self._enough:
                self._stop(ENOUGH, 1)
                return at
            frame.line_size = line_size(data + at, size - at)
            if frame.line_size == 0:
                self._stop(NEED_MORE, size - at + 1)
                return at
            if not self._scan(data + at, &frame) or frame.head_size > frame.size:
                self._stop(OTHER, 1)
                return at
            whole = frame.line_size + frame.size + 2
            if whole > size - at:
                self._stop(NEED_MORE, whole)
                return at
            if self.rows and self.size + frame.size + frame.subject_size > self._size_max:
                self._stop(FULL, 1)
                return at
            if frame.seq_digits > SEQ_DIGITS_MAX or frame.seq > SEQ_MAX:
                self._stop(TOO_LARGE, 1)
                return at
            if <int64_t>frame.seq <= self.last_seq or frame.consumer_seq != self.delivered + 1:
                self._stop(GAP, 1)
                return at
            self.delivered += 1
            self.pending = frame.pending
            if <int64_t>frame.seq < self._high:
                self._row(&frame, data + at + frame.line_size)
            at += whole
            if <int64_t>frame.seq >= self._high - 1 or frame.pending == 0:
                self._stop(DONE, 1)
                return at

    cdef bint _scan(self, const char* at, Frame* frame) noexcept nogil:
        """Parse the line of a delivery; return False if the line is of another kind."""
        cdef const char* end = at + frame.line_size - 2
        cdef int64_t number = 0
        if at[0] == b"H":
            at += 1
        if end - at < 4 or memcmp(at, b"MSG ", 4) != 0:
            return False
        at += 4
        frame.subject = at
        while at < end and at[0] != b" " and at[0] != b"\r" and at[0] != b"\n":
            at += 1
        frame.subject_size = at - frame.subject
        if frame.subject_size == 0 or at == end or at[0] != b" ":
            return False
        at += 1
        if end - at < self._sid_size + self._prefix_size or memcmp(at, self._sid_chars, self._sid_size) != 0:
            return False
        at += self._sid_size
        if memcmp(at, self._prefix_chars, self._prefix_size) != 0:
            return False
        # the delivery count comes first: always 1, since nothing is acknowledged
        at = digits(at + self._prefix_size, end, 18, &number)
        if at == NULL or at == end or at[0] != b".":
            return False
        return self._numbers(at + 1, end, frame)

    cdef bint _numbers(self, const char* at, const char* end, Frame* frame) noexcept nogil:
        """Parse the rest of the line, which is `seq.consumer_seq.time.pending[.random] [headers-size] size`."""
        cdef const char* start = at
        cdef int64_t number = 0
        frame.seq = 0
        while at < end and b"0" <= at[0] <= b"9":
            frame.seq = 10 * frame.seq + <uint64_t>(at[0] - ZERO)
            at += 1
        frame.seq_digits = <int>min(at - start, 100)
        if frame.seq_digits == 0 or frame.seq_digits > 20 or at == end or at[0] != b".":
            return False
        at = digits(at + 1, end, 18, &frame.consumer_seq)
        if at == NULL or at == end or at[0] != b".":
            return False
        start = at + 1
        at = digits(start, end, 19, &frame.ts_ns)
        if at == NULL or at == end or at[0] != b"." or (at - start == 19 and start[0] == b"9"):
            return False
        at = digits(at + 1, end, 18, &frame.pending)
        if at == NULL:
            return False
        if at < end and at[0] == b".":
            while at < end and at[0] != b" " and at[0] != b"\r" and at[0] != b"\n":
                at += 1
        if at == end or at[0] != b" ":
            return False
        at = digits(at + 1, end, 9, &number)
        frame.head_size = 0
        if at != NULL and at < end and at[0] == b" ":
            frame.head_size = number
            at = digits(at + 1, end, 9, &number)
        frame.size = number
        return at == end

    cdef int _row(self, Frame* frame, const char* body) except -1 nogil:
        """Add one row to every requested column."""
        self.last_seq = <int64_t>frame.seq
        if self._wants_seq:
            self._seqs.add_int64(self.last_seq)
        if self._wants_ts:
            self._times.add_int64(frame.ts_ns)
        if self._wants_size:
            self._sizes.add_int32(<int32_t>(frame.size - frame.head_size))
        if self._wants_subject:
            self._subjects.add(frame.subject, frame.subject_size)
            self._subject_at.add_int32(<int32_t>self._subjects.size)
        if self._kind != NO_HEADERS:
            self._headers(body, frame.head_size)
        if self._wants_data:
            self._data.add(body + frame.head_size, frame.size - frame.head_size)
            self._data_at.add_int32(<int32_t>self._data.size)
        self.size += frame.size + frame.subject_size
        self.rows += 1
        return 0


cdef inline Py_ssize_t line_size(const char* at, Py_ssize_t size) noexcept nogil:
    """Return the size of the line at `at` with its CRLF, or 0 if the line is incomplete."""
    cdef const char* found = at
    while size > 0:
        found = <const char*>memchr(found, b"\n", size - (found - at))
        if found == NULL:
            return 0
        found += 1
        if found - at >= 2 and found[-2] == b"\r":
            return found - at
        if found - at >= size:
            return 0
    return 0


cdef inline const char* digits(const char* at, const char* end, int count_max, int64_t* value) noexcept nogil:
    """Read up to `count_max` digits; return the position after them, or NULL if there are none or too many."""
    cdef const char* start = at
    cdef int64_t number = 0
    while at < end and b"0" <= at[0] <= b"9" and at - start < count_max:
        number = 10 * number + (at[0] - ZERO)
        at += 1
    if at == start or (at < end and b"0" <= at[0] <= b"9"):
        return NULL
    value[0] = number
    return at


cdef int header_lines(const char* block, Py_ssize_t size, Line* lines) noexcept nogil:
    """Parse a block; return the number of lines with a name, or -1 if there are too many."""
    cdef const char* end = block + size
    cdef const char* at = block + line_size(block, size)
    cdef const char* colon
    cdef Py_ssize_t length
    cdef int count = 0
    if at == block:
        return 0
    while at < end:
        length = line_size(at, end - at)
        length = length - 2 if length else end - at  # the last line may lack its CRLF
        colon = <const char*>memchr(at, b":", length)
        if colon != NULL and colon > at:
            if count == LINES_MAX:
                return -1
            lines[count].name.start = at
            lines[count].name.size = colon - at
            colon += 1
            while colon < at + length and (colon[0] == b" " or colon[0] == b"\t"):
                colon += 1
            lines[count].value.start = colon
            lines[count].value.size = at + length - colon
            count += 1
        at += length + 2
    return count


cdef inline bint is_same(Span* one, Span* other) noexcept nogil:
    return one.size == other.size and memcmp(one.start, other.start, one.size) == 0
