"""The payload of an entry of a replicated stream, version 1. All numbers are little-endian.

    payload = version u8 (1)  spare u8, u16 (0)  items u32  item*
    item    = size u32  kind u8  spare u8 (0)  subject_len u16  header_len u32  subject  body

`size` is the size of the whole item; the body is the rest of the item and begins with header_len bytes of headers.

| kind | subject | body |
|---|---|---|
| 1 message | its subject | headers, payload |
| 2 atomic batch | id of the batch | items of kind 1 |
| 3 purge | filter; empty: all | before_seq u64, keep u64 |
| 4 delete | | seq u64, erase u8 |
| 5 configuration | | JSON |
| 6 expiry | | |
| 7 removal | | seq u64, one or more |
| 8 skip | | last used sequence u64 |
| 9 schedules | | (seq u64, due at i64), one or more |
| 10 consumer created | its name | created i64, size of JSON u32, configuration as JSON, first state |
| 11 consumer configured | its name | created i64, configuration as JSON |
| 12 consumer deleted | its name | created i64 |
| 13 consumer changes | its name | created i64, changes (jetstream/consumer/acks/log.pyx) |
| 14 consumer state | its name | created i64, state (jetstream/consumer/record.py) |
| 15 mirrored | its subject | headers, payload, seq u64, time i64 |
| 16 sourced | its subject | headers, payload |
| 17 positions | | msgpack list: name of a source, sequence in its origin, identity of the origin; and so on |
| 18 clock step | | ns i64, > 0: the advance of the clock since the previous entry, minus the elapsed time |

`created` distinguishes a consumer from an earlier one of the same name. A payload may be empty, or have any number of
items of the kinds 1, 2 and 13 to 17. An item of another kind is alone in its payload. A payload has no reply
subjects, since only the leader that proposed it answers.

The whole payload is checked before any part of it is applied. This module knows nothing of streams. Compiled because
it handles every message of a replicated stream (benchmarks/replica.py).
"""
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from pyjs.base.grow cimport grow, grow_to

from pyjs.base.errors import PyjsError
from pyjs.jetstream import errcodes

cdef enum:
    ROOMY = 1048576             # bytes; a larger buffer is freed by `take`
    BATCH_ID_MAX = 64
    SUBJECT_SIZE_MAX = 65535
    CREATED_SIZE = 8            # bytes of `created`, which precede the rest of an item about a consumer
cdef uint64_t SEQ_MAX = 0xfffffffffffffffeu     # no message has a higher sequence
ITEM_NAMES = {
    ITEM_MESSAGE: "message", ITEM_BATCH: "batch", ITEM_PURGE: "purge", ITEM_DELETE: "delete",
    ITEM_CONFIG: "configuration", ITEM_EXPIRE: "expiry", ITEM_REMOVE: "removal", ITEM_SKIP: "skip",
    ITEM_FIRE: "schedules", ITEM_CONSUMER_CREATE: "consumer created", ITEM_CONSUMER_CONFIG: "consumer configured",
    ITEM_CONSUMER_DELETE: "consumer deleted", ITEM_CONSUMER_CHANGES: "consumer changes",
    ITEM_CONSUMER_STATE: "consumer state", ITEM_MIRRORED: "mirrored", ITEM_SOURCED: "sourced",
    ITEM_POSITIONS: "positions", ITEM_CLOCK_STEP: "clock step",
}
KINDS = {name: kind for kind, name in ITEM_NAMES.items()}


class BrokenEntry(PyjsError):
    """Raised if a committed entry cannot be applied. The exception's message names the invalid place."""

    def __init__(self, str stream, uint64_t index, reason) -> None:
        super().__init__(f"{stream}: entry {index} cannot be applied: {reason}")
        self.index = index
        self.reason = reason


cdef class PayloadBuffer:
    def __cinit__(self):
        self.size_max = PAYLOAD_SIZE_MAX

    def __dealloc__(self):
        free(self.data)

    @property
    def size(self) -> int:
        """The bytes collected so far."""
        return self.used

    cdef int add(self, int kind, const char* subject, size_t subject_len, const char* body, size_t header_len,
                 size_t size) noexcept nogil:
        cdef size_t whole = ITEM_HEADER_SIZE + subject_len + size
        cdef ItemHeader* h
        cdef char* p
        if self.reserve(whole) != 0:
            return -1
        p = self.data + self.used
        h = <ItemHeader*> p
        h.size, h.kind, h.spare = <uint32_t> whole, <uint8_t> kind, 0
        h.subject_len, h.header_len = <uint16_t> subject_len, <uint32_t> header_len
        memcpy(p + ITEM_HEADER_SIZE, subject, subject_len)
        memcpy(p + ITEM_HEADER_SIZE + subject_len, body, size)
        self.used += whole
        self.items += 1
        return 0

    cdef int add_mirrored(self, const char* subject, size_t subject_len, const char* body, size_t header_len,
                          size_t size, uint64_t seq, int64_t ts) noexcept nogil:
        cdef size_t whole = ITEM_HEADER_SIZE + subject_len + size
        if self.reserve(whole + COPY_TAIL_SIZE) != 0 \
                or self.add(ITEM_MIRRORED, subject, subject_len, body, header_len, size) != 0:
            return -1
        (<ItemHeader*> (self.data + self.used - whole)).size = <uint32_t> (whole + COPY_TAIL_SIZE)
        memcpy(self.data + self.used, &seq, 8)
        memcpy(self.data + self.used + 8, &ts, 8)
        self.used += COPY_TAIL_SIZE
        return 0

    cdef int reserve(self, size_t size) noexcept nogil:
        """Make room for `size` more bytes, and begin the payload if it is empty; return -1 if there is no room."""
        if self.used + PAYLOAD_HEADER_SIZE + size > self.size_max \
                or grow(<void**> &self.data, &self.room, self.used + PAYLOAD_HEADER_SIZE + size, 1) != 0:
            return -1
        if self.used == 0:
            memset(self.data, 0, PAYLOAD_HEADER_SIZE)
            self.data[0] = PAYLOAD_VERSION
            self.used = PAYLOAD_HEADER_SIZE
        return 0

    cdef int begin_batch(self, const char* id, size_t n, size_t* at) noexcept nogil:
        """Add an empty batch, and set `at` to its offset; return -1 if there is no room.

        Messages added until `end_batch` belong to the batch.
        """
        if self.add(ITEM_BATCH, id, n, NULL, 0, 0) != 0:
            return -1
        at[0] = self.used - ITEM_HEADER_SIZE - n
        return 0

    cdef void end_batch(self, size_t at) noexcept nogil:
        cdef ItemHeader* h = <ItemHeader*> (self.data + at)
        h.size = <uint32_t> (self.used - at)
        self.items = self.items_of(at)

    cdef uint32_t items_of(self, size_t batch_at) noexcept nogil:
        """Return the number of items in the payload, of which the batch at `batch_at` is the last."""
        cdef size_t at = PAYLOAD_HEADER_SIZE
        cdef uint32_t n = 1, size = 0
        while at < batch_at:
            memcpy(&size, self.data + at, 4)
            at += size
            n += 1
        return n

    cdef bytes take(self):
        """Return the payload, or b"" if nothing was collected, and begin a new one."""
        cdef bytes out
        if self.used == 0:
            return b""
        memcpy(self.data + 4, &self.items, 4)
        out = self.data[:self.used]
        self.used = self.items = 0
        if self.room > ROOMY:
            grow_to(<void**> &self.data, &self.room, ROOMY, 1)
        return out

    def clear(self) -> None:
        """Drop the collected items."""
        self.used = self.items = 0


def operation(str kind, bytes body=b"", bytes subject=b"") -> bytes:
    """Return a payload that has one operation, or one message without headers.

    Raises:
        ApiError: the subject is longer than the subject of an item may be.
        MemoryError: the payload is too large, or there is no memory for it.
    """
    if len(subject) > SUBJECT_SIZE_MAX:
        raise errcodes.BAD_REQUEST.detailed(f"a subject of {len(subject)} bytes, at most {SUBJECT_SIZE_MAX}")
    cdef PayloadBuffer buffer = PayloadBuffer()
    cdef const char* text = body
    if buffer.add(KINDS[kind], subject, len(subject), text, 0, len(body)) != 0:
        raise MemoryError
    return buffer.take()


# -- reading -----------------------------------------------------------------------------------------------------

cdef bint next_item(const char* p, size_t n, size_t* at, Item* out) noexcept nogil:
    cdef ItemHeader h
    if at[0] >= n:
        return False
    memcpy(&h, p + at[0], ITEM_HEADER_SIZE)
    out.kind, out.subject_len, out.header_len = h.kind, h.subject_len, h.header_len
    out.subject = p + at[0] + ITEM_HEADER_SIZE
    out.body = out.subject + h.subject_len
    out.size = h.size - ITEM_HEADER_SIZE - h.subject_len
    at[0] += h.size
    return True


cdef const char* item_fault(const char* p, size_t left) noexcept nogil:
    """Return the fault in the sizes of the item at `p`, or NULL."""
    cdef ItemHeader h
    if left < ITEM_HEADER_SIZE:
        return b"it is cut off"
    memcpy(&h, p, ITEM_HEADER_SIZE)
    if h.size > left or h.size < ITEM_HEADER_SIZE:
        return b"its size is wrong"
    if h.size - ITEM_HEADER_SIZE < h.subject_len or h.size - ITEM_HEADER_SIZE - h.subject_len < h.header_len:
        return b"its parts are larger than it is"
    if h.spare:
        return b"a spare byte is used"
    return NULL


cdef const char* message_fault(Item* item) noexcept nogil:
    """Return the fault of a message, or NULL; only messages that a client could have sent are valid."""
    cdef uint32_t i
    cdef char c
    if item.subject_len == 0:
        return b"a message without subject"
    for i in range(item.subject_len):
        c = item.subject[i]
        if c == c' ' or c == c'\t' or c == c'\r' or c == c'\n':
            return b"a separator in a subject"
    return NULL


cdef const char* operation_fault(Item* item) noexcept nogil:
    """Return the fault of an item that is not a message, or NULL."""
    cdef bint fits = False
    cdef uint64_t seq = 0
    cdef int64_t ns = 0
    if item.kind == ITEM_PURGE:
        fits = item.size == 16
    elif item.kind == ITEM_DELETE:
        fits = item.size == 9 and item.body[8] in (0, 1)
    elif item.kind == ITEM_CONFIG:
        fits = item.size > 0
    elif item.kind == ITEM_EXPIRE:
        fits = item.size == 0
    elif item.kind == ITEM_REMOVE:
        fits = item.size > 0 and item.size % 8 == 0
    elif item.kind == ITEM_SKIP:
        fits = item.size == 8
        if fits:
            memcpy(&seq, item.body, 8)
            fits = seq <= SEQ_MAX
    elif item.kind == ITEM_FIRE:
        fits = item.size > 0 and item.size % 16 == 0
    elif ITEM_CONSUMER_CREATE <= item.kind <= ITEM_CONSUMER_STATE:
        return consumer_fault(item)
    elif item.kind == ITEM_MIRRORED:
        return mirrored_fault(item)
    elif item.kind == ITEM_SOURCED:
        return message_fault(item)
    elif item.kind == ITEM_POSITIONS:
        fits = item.size > 0
    elif item.kind == ITEM_CLOCK_STEP:
        fits = item.size == 8
        if fits:
            memcpy(&ns, item.body, 8)
            fits = ns > 0
    else:
        return b"an unknown kind"
    if not fits or item.header_len or (item.subject_len and item.kind != ITEM_PURGE):
        return b"an operation of a wrong size"
    return NULL


cdef const char* mirrored_fault(Item* item) noexcept nogil:
    """Return the fault of a mirrored message, or NULL."""
    cdef uint64_t seq = 0
    cdef int64_t ts = 0
    if item.size < COPY_TAIL_SIZE or item.size - COPY_TAIL_SIZE < item.header_len:
        return b"a mirrored message of a wrong size"
    memcpy(&seq, item.body + item.size - COPY_TAIL_SIZE, 8)
    memcpy(&ts, item.body + item.size - 8, 8)
    if not 0 < seq <= SEQ_MAX or ts <= 0:
        return b"a mirrored message without sequence or time"
    return message_fault(item)


cdef const char* consumer_fault(Item* item) noexcept nogil:
    """Return the fault of an item about a consumer, or NULL."""
    cdef uint32_t least = CREATED_SIZE
    if item.kind == ITEM_CONSUMER_CREATE:
        least = CREATED_SIZE + 4
    elif item.kind == ITEM_CONSUMER_CONFIG or item.kind == ITEM_CONSUMER_STATE:
        least = CREATED_SIZE + 1
    if item.subject_len == 0 or item.header_len:
        return b"a consumer without name, or with headers"
    if item.size < least or (item.kind == ITEM_CONSUMER_DELETE and item.size > least):
        return b"an item about a consumer of a wrong size"
    return NULL


cdef inline bint is_alone(int kind) noexcept nogil:
    """Return whether an item of this kind, which is neither a message nor a batch, must be alone in its payload."""
    return kind < ITEM_CONSUMER_CHANGES or kind == ITEM_CLOCK_STEP


cdef const char* items_fault(const char* p, size_t n, size_t begin, size_t end, bint in_batch, uint32_t* items,
                             size_t* at) noexcept nogil:
    """Return the first fault of the items from offset `begin` to `end`, or NULL.

    Set `at` to the offset of the faulty item, and `items` to the number of items.
    """
    cdef size_t behind = begin
    cdef size_t inner
    cdef uint32_t parts
    cdef const char* fault
    cdef Item item
    items[0] = 0
    while behind < end:
        at[0] = behind
        fault = item_fault(p + behind, end - behind)
        if fault != NULL:
            return fault
        next_item(p, n, &behind, &item)
        items[0] += 1
        if item.kind == ITEM_MESSAGE:
            fault = message_fault(&item)
        elif item.kind == ITEM_BATCH and not in_batch:
            inner = item.body - p
            parts = 0
            if item.subject_len == 0 or item.subject_len > BATCH_ID_MAX or item.header_len:
                fault = b"a batch without id, or with headers"
            else:
                fault = items_fault(p, n, inner, inner + item.size, True, &parts, at)
            if fault == NULL and parts == 0:
                fault = b"an empty batch"
        else:
            fault = operation_fault(&item)
            if fault == NULL and (in_batch or (is_alone(item.kind) and (items[0] > 1 or behind < end))):
                fault = b"an operation that is not alone"
        if fault != NULL:
            return fault
    return NULL


cpdef str payload_fault(bytes payload):
    """Return a text that describes the first fault of a payload, or None if the payload can be applied."""
    cdef const char* p = payload
    cdef size_t n = len(payload), at = 0
    cdef uint32_t items = 0, told = 0
    cdef const char* fault
    if n == 0:
        return None
    if not PAYLOAD_HEADER_SIZE <= n <= PAYLOAD_SIZE_MAX:
        return f"a payload of {n} bytes"
    if p[0] != PAYLOAD_VERSION or p[1] or p[2] or p[3]:
        return f"its payload has version {payload[0]}, and this server knows {PAYLOAD_VERSION}"
    memcpy(&told, p + 4, 4)
    with nogil:
        fault = items_fault(p, n, PAYLOAD_HEADER_SIZE, n, False, &items, &at)
    if fault != NULL:
        return f"byte {at} of its payload: {fault.decode()}"
    return None if items == told else f"its payload has {items} items instead of {told}"


cdef bint is_operation(bytes payload) noexcept:
    """Return whether a checked payload is one operation."""
    return ITEM_BATCH < first_kind(payload) < ITEM_CONSUMER_CHANGES


cdef int first_kind(bytes payload) noexcept:
    """Return the kind of the first item of a checked payload, or 0 if there is none."""
    cdef const char* p = payload
    return p[PAYLOAD_HEADER_SIZE + 4] if len(payload) > PAYLOAD_HEADER_SIZE else 0


cdef size_t payload_items(bytes payload) noexcept:
    """Return the number of items of a checked payload."""
    cdef uint32_t n = 0
    if len(payload) >= PAYLOAD_HEADER_SIZE:
        memcpy(&n, <const char*> payload + 4, 4)
    return n


def items_of(bytes payload) -> list:
    """Return the items of a checked payload as (kind, subject, headers, rest), for operations, tests and tools."""
    cdef const char* p = payload
    cdef size_t at = PAYLOAD_HEADER_SIZE
    cdef Item item
    out = []
    while next_item(p, len(payload), &at, &item):
        out.append((ITEM_NAMES[item.kind], item.subject[:item.subject_len], item.body[:item.header_len],
                    item.body[item.header_len:item.size]))
    return out
