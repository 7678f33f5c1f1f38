"""What of a store's files was found damaged.

Compiled because what finds it is (benchmarks/store_start.py).
"""
cdef enum:
    LISTED_MAX = 1000           # sequences named in `seqs`


cdef class Losses:
    def __init__(self) -> None:
        self.seqs = []

    cdef void note(self, object seqs) except *:
        """Count damaged messages that are gone from the catalogue."""
        self.msgs += len(seqs)
        self.seqs += seqs[:LISTED_MAX - len(self.seqs)]
