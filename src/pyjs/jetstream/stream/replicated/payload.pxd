"""The payload of an entry: messages, or one operation; payload.pyx describes the format."""
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:
    PAYLOAD_VERSION = 1
    PAYLOAD_HEADER_SIZE = 8
    ITEM_HEADER_SIZE = 12
    COPY_TAIL_SIZE = 16             # bytes that follow a mirrored message: its sequence and time
    PAYLOAD_SIZE_MAX = 68091904     # maximum bytes; a message of any size fits; as in consensus/batch.pyx

cdef enum ItemKind:
    ITEM_MESSAGE = 1
    ITEM_BATCH = 2              # the messages of an atomic batch; the subject is the batch's id
    ITEM_PURGE = 3              # an item of kind 3 to 12 is alone in its payload
    ITEM_DELETE = 4
    ITEM_CONFIG = 5
    ITEM_EXPIRE = 6
    ITEM_REMOVE = 7
    ITEM_SKIP = 8
    ITEM_FIRE = 9
    ITEM_CONSUMER_CREATE = 10   # in kinds 10 to 14, the subject is the name of a consumer
    ITEM_CONSUMER_CONFIG = 11
    ITEM_CONSUMER_DELETE = 12
    ITEM_CONSUMER_CHANGES = 13  # items of this and higher kinds may be in a payload together with messages
    ITEM_CONSUMER_STATE = 14
    ITEM_MIRRORED = 15          # a message of a mirror's origin
    ITEM_SOURCED = 16           # a copy of a source, with the header that names its origin
    ITEM_POSITIONS = 17         # positions of sources
    ITEM_CLOCK_STEP = 18        # a step of the leader's clock; alone in its payload

cdef packed struct ItemHeader:
    uint32_t size               # bytes of the whole item
    uint8_t kind
    uint8_t spare               # must be 0
    uint16_t subject_len
    uint32_t header_len         # bytes of headers at the start of the body

cdef struct Item:               # an item; points into the payload
    int kind
    const char* subject
    const char* body
    uint32_t subject_len
    uint32_t header_len
    uint32_t size               # bytes of the body

cdef class PayloadBuffer:
    """A buffer that collects the items of one payload."""
    cdef char* data
    cdef size_t used, room      # used is 0 if the payload is empty
    cdef public size_t size_max
    cdef readonly uint32_t items

    cdef int add(self, int kind, const char* subject, size_t subject_len, const char* body, size_t header_len,
                 size_t size) noexcept nogil                    # -1: no room, and nothing was added
    cdef int add_mirrored(self, const char* subject, size_t subject_len, const char* body, size_t header_len,
                          size_t size, uint64_t seq, int64_t ts) noexcept nogil     # as `add`
    cdef int begin_batch(self, const char* id, size_t n, size_t* at) noexcept nogil
    cdef void end_batch(self, size_t at) noexcept nogil
    cdef int reserve(self, size_t size) noexcept nogil
    cdef uint32_t items_of(self, size_t batch_at) noexcept nogil
    cdef bytes take(self)

# Read the item at `at`, and move `at` to the next one; False: no more items. The payload must have been checked.
cdef bint next_item(const char* p, size_t n, size_t* at, Item* out) noexcept nogil
cpdef str payload_fault(bytes payload)
# The payload of the next three must have been checked.
cdef bint is_operation(bytes payload) noexcept
cdef int first_kind(bytes payload) noexcept
cdef size_t payload_items(bytes payload) noexcept
