"""Answers to direct gets of the last message of a subject."""
from libc.stdint cimport int64_t

cdef class DirectAnswers:
    cdef bytes name_line                # "Nats-Stream: <name>\r\nNats-Subject: "
    cdef char* buffer                   # one answer: headers, then payload
    cdef size_t capacity
    cdef int64_t day                    # since 1970, of `date`
    cdef char[10] date                  # 2026-11-21

    cdef size_t compose_time(self, char* out, int64_t ts) except 0
    cdef int make_room(self, size_t size) except -1
