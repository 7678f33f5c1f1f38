"""Batches: the messages between two nodes."""

cdef class Frames:
    cdef readonly bytes frames
    cdef readonly list payloads         # of (key, payload)

cpdef read(bytes data, node=?)
cpdef list of_frames(bytes frames, payloads)
