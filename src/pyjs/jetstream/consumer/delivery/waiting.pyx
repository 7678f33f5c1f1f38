"""The pull requests of a consumer that wait for messages, first in, first served, in turns.

A request that got a message and wants more goes to the end, or behind those of its priority, so that all are served
evenly. Knows nothing of subjects' interest or of statuses: pull_requests.pyx decides who leaves and what they are
told.

Compiled: looked at for every message of a pull consumer (benchmarks/: pull 500).

Source: nats.docs "Pull consumers"; order probed on nats-server 2.15.1.
"""
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy


cdef class WaitingQueue:
    """A bounded queue of pull requests."""

    def __cinit__(self, int64_t limit):
        self.max = limit

    def __dealloc__(self):
        while self.head != NULL:
            self.drop_head()

    def add(self, bytes reply, int64_t batch, int64_t max_bytes, bint no_wait, int64_t now, int64_t expires_ns,
            int64_t heartbeat_ns, int64_t priority=0) -> bool:
        """Queue a request; False when there are `max` already."""
        cdef Waiting* w
        if self.count >= self.max:
            return False
        w = <Waiting*> calloc(1, sizeof(Waiting))
        if w == NULL:
            raise MemoryError
        w.reply = <char*> malloc(len(reply) + 1)
        if w.reply == NULL:
            free(w)
            raise MemoryError
        memcpy(w.reply, <const char*> reply, len(reply))
        w.reply_len = <uint32_t> len(reply)
        w.left = batch
        w.bytes_left = max_bytes
        w.no_wait = no_wait
        w.expires_at = now + expires_ns if expires_ns else 0
        w.heartbeat_ns = heartbeat_ns
        w.heartbeat_at = now + heartbeat_ns if heartbeat_ns else 0
        w.priority = priority
        self.insert(w)
        self.count += 1
        self.no_wait += no_wait
        self.note_time(w)
        return True

    cdef void insert(self, Waiting* w) noexcept nogil:
        """Put `w` to the end, or behind the last of its priority."""
        cdef Waiting* before = self.tail
        if self.by_priority and before != NULL and before.priority > w.priority:
            before = NULL
            while (self.head if before == NULL else before.next).priority <= w.priority:
                before = self.head if before == NULL else before.next
        if before == NULL:
            w.next = self.head
            self.head = w
        else:
            w.next = before.next
            before.next = w
        if w.next == NULL:
            self.tail = w

    cdef void note_time(self, Waiting* w) noexcept nogil:
        """Let `wake_at` be no later than what `w` waits for."""
        if w.expires_at and (self.wake_at == 0 or w.expires_at < self.wake_at):
            self.wake_at = w.expires_at
        if w.heartbeat_at and (self.wake_at == 0 or w.heartbeat_at < self.wake_at):
            self.wake_at = w.heartbeat_at

    cdef void rotate(self) noexcept nogil:
        """Let the first wait for its next turn."""
        cdef Waiting* w = self.head
        if w == self.tail:
            return
        self.head = w.next
        self.insert(w)

    cdef void drop_head(self) noexcept nogil:
        self.remove(NULL, self.head)

    cdef void remove(self, Waiting* before, Waiting* w) noexcept nogil:
        """Free `w`, which follows `before` (NULL: it is the first)."""
        if before == NULL:
            self.head = w.next
        else:
            before.next = w.next
        if self.tail == w:
            self.tail = before
        self.count -= 1
        self.no_wait -= w.no_wait
        free(w.reply)
        free(w)

    cdef bint served(self, int64_t size, int64_t now) noexcept nogil:
        """Count a message of `size` bytes for the first, and let the next one be first.

        True: the first has all the messages that it may have, but not all bytes: it is to be ended with a status.
        """
        cdef Waiting* w = self.head
        w.delivered += 1
        w.left -= 1
        if w.bytes_left > 0:
            w.bytes_left -= size
            if w.bytes_left == 0:
                w.left = 0
        if w.left > 0:
            if w.heartbeat_ns:
                w.heartbeat_at = now + w.heartbeat_ns
            self.rotate()
        elif w.bytes_left > 0:
            return True
        else:
            self.drop_head()
        return False

    def replies(self) -> list:
        """Return the reply subjects, next served first."""
        cdef list out = []
        cdef Waiting* w = self.head
        while w != NULL:
            out.append(w.reply[:w.reply_len])
            w = w.next
        return out

    def wanted(self) -> int:
        """Return how many messages the requests want together."""
        cdef int64_t total = 0
        cdef Waiting* w = self.head
        while w != NULL:
            total += w.left
            w = w.next
        return total

    def __len__(self) -> int:
        return self.count
