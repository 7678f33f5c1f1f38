"""Plain C pointers into objects that lend their memory: bytes, maps, memoryviews.

These pointers replace typed memoryviews, because a module with typed memoryviews takes as long to compile as three
modules of average size, and creates six types when it is loaded.
"""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

cdef inline const char* borrowed(object owner, size_t* size) except? NULL:
    """Return a pointer to the bytes of `owner`; set `size` to their number.

    The caller must hold a reference to `owner` while it uses the pointer. A bytearray may move its bytes when it is
    resized, so no other code may have a reference to a bytearray passed here.

    Raises:
        TypeError: `owner` has no buffer.
        BufferError: the bytes are not contiguous.
    """
    cdef Py_buffer lent
    PyObject_GetBuffer(owner, &lent, PyBUF_SIMPLE)
    cdef const char* data = <const char*> lent.buf
    size[0] = lent.len
    PyBuffer_Release(&lent)
    return data
