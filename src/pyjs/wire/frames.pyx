"""The bytes of the NATS protocol in WebSocket frames of a client: RFC 6455, and RFC 7692 for compressed messages.

The reader parses one read of the connection at a time and returns events. Consecutive uncompressed
frames are one PLAIN event: clients send a frame for each PUB, and a Python object per frame would cost more than the
message itself. The parts of an uncompressed frame are returned as they arrive, so the reader does not limit its size.
The parts of a compressed message are collected up to a limit. The reader neither inflates nor answers.

    frame:  FIN RSV1 RSV2 RSV3 opcode(4) | MASK length(7) | [length(16 or 64)] | [key(32)] | payload

Error texts and the order of the checks follow nats-server 2.15: tests/conformance/test_websocket.py.
Compiled, because a Python library takes 8 us per frame (docs/dependencies.md); benchmarks/websocket.py.
"""
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

cdef enum:
    FIN = 0x80
    RSV1 = 0x40                 # the message is compressed
    RSV_OTHER = 0x30
    MASK = 0x80
    LENGTH = 0x7f
    LENGTH_16 = 126             # the length is in the next two bytes
    LENGTH_64 = 127             # the length is in the next eight bytes
    OP_CONTINUATION = 0
    OP_TEXT = 1
    OP_BINARY = 2
    OP_CLOSE = 8
    OP_PING = 9
    OP_PONG = 10
    # events
    E_NEED = 0
    E_PLAIN = 1
    E_PACKED = 2
    E_CLOSE = 3                 # E_CLOSE, E_PING and E_PONG have the order of their opcodes
    E_FAULT = 6
    E_TOO_LARGE = 7

NEED, PLAIN, PACKED, CLOSE, PING, PONG, FAULT, TOO_LARGE = range(8)


cdef inline void unmask(unsigned char* out, const unsigned char* data, size_t n, const unsigned char* key,
                        unsigned int at) noexcept nogil:
    """Write `n` unmasked bytes of `data` to `out`; `at` is the index in the key for the first byte."""
    cdef unsigned char turned[8]
    cdef uint64_t word = 0
    cdef uint64_t mask = 0
    cdef size_t i
    for i in range(8):
        turned[i] = key[(at + i) & 3]
    memcpy(&mask, turned, 8)
    i = 0
    while i + 8 <= n:
        memcpy(&word, data + i, 8)
        word ^= mask
        memcpy(out + i, &word, 8)
        i += 8
    while i < n:
        out[i] = data[i] ^ turned[i & 7]
        i += 1


cdef class FrameReader:
    """The frame parser of one connection: `begin` takes the bytes of a read, `next` returns the next event."""

    def __cinit__(self, bint masked, bint deflates, size_t packed_max):
        self.masked = masked            # the client must mask its frames
        self.deflates = deflates        # compressed messages are allowed
        self.packed_max = packed_max    # maximum bytes of a compressed message; may change between two reads
        self.place = AT_HEAD
        self.packed, self.control = bytearray(), bytearray()
        self.data = self.payload = b""
        self.fault = ""

    def begin(self, bytes data) -> None:
        """Start a read; `next` must have returned NEED for the previous one."""
        assert self.at == self.end
        self.data = data
        self.bytes_in = <const unsigned char*> PyBytes_AS_STRING(data)
        self.at, self.end = 0, len(data)

    def next(self) -> int:
        """Return the next event.

        PLAIN, PACKED, CLOSE, PING and PONG set `payload`. NEED means that the read is parsed completely. FAULT (see
        `fault`) and TOO_LARGE end the input: every later call returns FAULT.
        """
        cdef int event = E_NEED
        while event == E_NEED:
            if self.place == FAULTED:
                self.at = self.end
                return E_FAULT
            if self.place == AT_HEAD:
                if not self.read_head():
                    return self.used_up()
            elif self.opcode >= OP_CLOSE:
                event = self.take_control()
            elif self.compressed:
                event = self.take_packed()
            else:
                event = self.take_plain()
            if event == E_NEED and self.place == IN_FRAME and self.left and self.at == self.end:
                return self.used_up()
        return event

    cdef int used_up(self) except -1:
        """Drop the bytes of the last read and the last payload, to free their memory; return NEED."""
        self.data = self.payload = b""
        self.bytes_in = NULL
        self.at = self.end = 0
        return E_NEED

    # -- heads -----------------------------------------------------------------------------------------------

    cdef bint read_head(self) except -1:
        """Continue to read the head of a frame; return False if more input is needed.

        If the head is invalid, set `fault` and return True.
        """
        cdef str problem = None
        while self.head_len < self.head_size():
            if self.at == self.end:
                return False
            self.head[self.head_len] = self.bytes_in[self.at]
            self.head_len += 1
            self.at += 1
            if self.head_len == 2:
                problem = self.objection()
                if problem is not None:
                    break
        if problem is None:
            problem = self.begin_frame()
        if problem is not None:
            self.fault = problem
            self.place = FAULTED
        return True

    cdef size_t head_size(self) noexcept nogil:
        cdef size_t size = 2
        if self.head_len < 2:
            return size
        if self.head[1] & LENGTH == LENGTH_16:
            size += 2
        elif self.head[1] & LENGTH == LENGTH_64:
            size += 8
        return size + 4 if self.masked else size

    cdef str objection(self):
        """Check the first two bytes of a head; return the protocol error or None."""
        cdef int opcode = self.head[0] & 0xf
        cdef bint compressed = self.head[0] & RSV1 != 0
        if self.head[0] & RSV_OTHER:
            return "RSV2 and RSV3 must be clear"
        if compressed and not self.deflates:
            return "compressed frame received without negotiated permessage-deflate"
        if self.masked and not self.head[1] & MASK:
            return "mask bit missing"
        if OP_CLOSE <= opcode <= OP_PONG:
            if self.head[1] & LENGTH > CONTROL_MAX:
                return "control frame length bigger than maximum allowed of 125 bytes"
            if not self.head[0] & FIN:
                return "control frame does not have final bit set"
            return "control frame must not be compressed" if compressed else None
        if opcode == OP_TEXT or opcode == OP_BINARY:
            return ("new message started before final frame for previous message was received"
                    if self.fragmented else None)
        if opcode == OP_CONTINUATION:
            return "invalid continuation frame" if not self.fragmented or compressed else None
        return f"unknown opcode {opcode}"

    cdef str begin_frame(self):
        """Read length and key of a complete head; return the protocol error or None."""
        cdef size_t i, size = self.head_size()
        cdef size_t length_end = size - 4 if self.masked else size
        self.left = self.head[1] & LENGTH
        if self.left >= LENGTH_16:
            self.left = 0
            for i in range(2, length_end):
                self.left = self.left << 8 | self.head[i]
            if self.left >> 63:
                return "invalid 64-bit payload length"
        if self.masked:
            memcpy(self.key, self.head + length_end, 4)
        self.key_at = 0
        self.opcode = self.head[0] & 0xf
        if self.opcode < OP_CLOSE:
            self.fragmented = not self.head[0] & FIN
            if self.opcode != OP_CONTINUATION:
                self.compressed = self.head[0] & RSV1 != 0
        self.head_len = 0
        self.place = IN_FRAME
        return None

    # -- payloads --------------------------------------------------------------------------------------------

    cdef size_t take(self, unsigned char* out) noexcept nogil:
        """Write to `out` the part of the frame that has arrived; return its size."""
        cdef size_t n = self.end - self.at
        if n > self.left:
            n = self.left
        if self.masked:
            unmask(out, self.bytes_in + self.at, n, self.key, self.key_at)
            self.key_at = (self.key_at + n) & 3
        else:
            memcpy(out, self.bytes_in + self.at, n)
        self.at += n
        self.left -= n
        if self.left == 0:
            self.place = AT_HEAD
        return n

    cdef int take_plain(self) except -1:
        """Join the payloads of uncompressed frames, up to a frame of another kind or the end of the read.

        Return PLAIN, or NEED if there is no payload.
        """
        cdef unsigned char* out = <unsigned char*> malloc(self.end - self.at + 1)
        cdef size_t n = 0
        if out == NULL:
            raise MemoryError
        try:
            while self.place == IN_FRAME and self.opcode < OP_CLOSE and not self.compressed:
                n += self.take(out + n)
                if self.place == IN_FRAME or not self.read_head():
                    break
            if n == 0:
                return E_NEED
            self.payload = PyBytes_FromStringAndSize(<char*> out, n)
            return E_PLAIN
        finally:
            free(out)

    cdef int collect(self, bytearray into) except -1:
        """Append to `into` the part of the frame that has arrived."""
        cdef Py_ssize_t before = len(into)
        cdef size_t n = self.end - self.at
        PyByteArray_Resize(into, before + <Py_ssize_t> min(n, self.left))
        self.take(<unsigned char*> PyByteArray_AS_STRING(into) + before)
        return 0

    cdef int take_packed(self) except -1:
        """Continue to collect a compressed message.

        Return PACKED if the message is complete, TOO_LARGE if it exceeds the limit, otherwise NEED.
        """
        if len(self.packed) + min(<uint64_t> (self.end - self.at), self.left) > self.packed_max:
            self.place = FAULTED
            self.packed.clear()
            return E_TOO_LARGE
        self.collect(self.packed)
        if self.place == IN_FRAME or self.fragmented:
            return E_NEED
        self.payload = bytes(self.packed)
        self.packed.clear()
        return E_PACKED

    cdef int take_control(self) except -1:
        """Continue to collect a control frame; return its event when it is complete, otherwise NEED."""
        self.collect(self.control)
        if self.place == IN_FRAME:
            return E_NEED
        self.payload = bytes(self.control)
        self.control.clear()
        return E_CLOSE + self.opcode - OP_CLOSE
