"""Plain pointers into objects that lend their memory: bytes, maps, memoryviews.

In place of typed memoryviews: the C code that these add to each module that names one takes the compiler as long as
two middle-sized modules, and creates six types whenever the module is loaded.
"""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

cdef inline const char* borrowed(object owner, size_t* size) except? NULL:
    """Return where the bytes of `owner` begin, and put their number into `size`.

    The caller holds `owner` as long as it uses the pointer. Only a bytearray could move its bytes meanwhile: nobody
    else may know it.

    Raises:
        TypeError: it lends no memory.
        BufferError: its bytes are not in one piece.
    """
    cdef Py_buffer lent
    PyObject_GetBuffer(owner, &lent, PyBUF_SIMPLE)
    cdef const char* data = <const char*> lent.buf
    size[0] = lent.len
    PyBuffer_Release(&lent)
    return data
