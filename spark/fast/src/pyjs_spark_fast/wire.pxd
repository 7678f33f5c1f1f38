"""Columns of the compiled decoders, in memory that they own."""
from libc.stdint cimport int32_t, int64_t

cdef enum Kind:
    NO_HEADERS = 0
    RAW = 1
    MAP = 2

cdef struct Span:
    const char* start
    Py_ssize_t size


cdef class View:
    """The memory of another object, held for as long as the view exists."""
    cdef Py_buffer buffer
    cdef bint is_held
    cdef const char* data(self) noexcept


cdef class Block:
    cdef char* data
    cdef Py_ssize_t size
    cdef Py_ssize_t room
    cdef int need(self, Py_ssize_t more) except -1 nogil
    cdef int add(self, const char* data, Py_ssize_t size) except -1 nogil
    cdef int add_int64(self, int64_t value) except -1 nogil
    cdef int add_int32(self, int32_t value) except -1 nogil
    cdef void set_bit(self, Py_ssize_t at) noexcept nogil
    cdef int32_t count(self) noexcept nogil
    cdef bint is_ascii(self) noexcept nogil


cdef class Columns:
    cdef readonly Py_ssize_t rows
    cdef readonly Py_ssize_t size
    cdef tuple _columns
    cdef int _kind
    cdef bint _wants_seq, _wants_ts, _wants_subject, _wants_data, _wants_size
    cdef int64_t _rows_max, _size_max
    cdef Py_ssize_t _headed  # number of rows with headers
    cdef Block _seqs, _times, _sizes, _subject_at, _subjects, _data_at, _data
    cdef Block _head_at, _heads, _entry_at, _name_at, _names, _list_at, _value_at, _values
    cdef Block _valid
    cdef void _begin(self)
    cdef int _headers(self, const char* block, Py_ssize_t size) except -1 nogil
    cdef int _map(self, const char* block, Py_ssize_t size) except -1 nogil
    cdef int _value(self, Span* value) except -1 nogil
    cdef int _many(self, bytes block) except -1
