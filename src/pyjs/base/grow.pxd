"""Growing C arrays.

An array consists of a pointer, which is NULL at first, and of `room`, the number of items for which it has memory.
The owner of the array counts the items and frees the pointer.
"""
from libc.stdlib cimport realloc

cdef enum:
    ROOM_MIN = 16               # items for which the first allocation has room

cdef inline int grow_to(void** items, size_t* room, size_t count, size_t size) noexcept nogil:
    """Resize an array to exactly `count` items of `size` bytes; if out of memory, return -1 and change nothing."""
    cdef void* grown = realloc(items[0], count * size)
    if grown == NULL:
        return -1
    items[0] = grown
    room[0] = count
    return 0

cdef inline int grow(void** items, size_t* room, size_t count, size_t size) noexcept nogil:
    """Make room for `count` items of `size` bytes by doubling; if out of memory, return -1 and change nothing."""
    if count <= room[0]:
        return 0
    return grow_to(items, room, max(count, room[0] * 2, <size_t> ROOM_MIN), size)

cdef inline int grow_by_half(void** items, size_t* room, size_t count, size_t size) noexcept nogil:
    """Make room as `grow` does, but add only half, since spare room is expensive in arrays of millions of items."""
    if count <= room[0]:
        return 0
    return grow_to(items, room, max(count, room[0] + (room[0] >> 1) + 4), size)
