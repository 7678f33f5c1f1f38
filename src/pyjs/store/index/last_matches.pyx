"""The last match of a filter with wildcards, remembered so that the same search is not repeated for each publish.

A publish may require that the last message of a filter has a certain sequence. If many subjects match and their
messages are old, the search examines all newer messages: tens of milliseconds in a stream of a million messages
(catalogue.pyx). The next search of the same filter needs to examine only the messages stored since. A message in the
examined part can only be removed, and never changes its subject. So while the remembered match is stored, it is the
last match of that part, and after its removal the last match of that part is an older message. If sequences are used
again, this is not true, so the results are then forgotten (`Catalogue.falls`).

Results are those of a search without this memory, so they are equal on all replicas. This module knows nothing of
streams and turns; callers limit the searches by the returned work.

Compiled, because publishes with expectations call it (measured by benchmarks/hostile.py expected-wildcard).
"""
from pyjs.store.index.sequences cimport index_live

cdef enum:
    REMEMBERED_MAX = 16         # number of filters
    FEW = 4096                  # messages and subjects that a search examines without being remembered
    UNIT_BITS = 1               # one unit of a turn's input is the time that it takes to examine 2^1 messages


cdef class LastMatches:
    def __cinit__(self):
        self.results = {}

    cpdef uint64_t last_match(self, Catalogue catalogue, bytes subject):
        """Return the sequence of the last message whose subject matches `subject`, or 0 if there is none.

        All calls must be for the same store.
        """
        cdef StoreFilter wanted = StoreFilter((subject,))
        cdef uint64_t before = catalogue.work_back, seq
        if self.falls != catalogue.falls:
            self.results.clear()
            self.falls = catalogue.falls
        known = self.results.pop(subject, None)
        if known is not None:
            seq = self.find_since(catalogue, wanted, known[0], known[1])
        else:
            seq = catalogue.prev_of_filter(catalogue.last_seq, wanted)
            if catalogue.work_back - before <= FEW:
                return seq
        self.results[subject] = seq, catalogue.last_seq
        if len(self.results) > REMEMBERED_MAX:
            del self.results[next(iter(self.results))]
        return seq

    cdef uint64_t find(self, Catalogue catalogue, bytes subject, int64_t* work) noexcept:
        """Return the result of `last_match`; add the work of the search to `work`, in units of a turn's input."""
        cdef uint64_t before = catalogue.work_back
        cdef uint64_t seq = self.last_match(catalogue, subject)
        work[0] += (catalogue.work_back - before) >> UNIT_BITS
        return seq

    cdef uint64_t find_since(self, Catalogue catalogue, StoreFilter wanted, uint64_t match,
                             uint64_t up_to) noexcept nogil:
        """Return the last match, or 0 if there is none; `match` was the last one up to the sequence `up_to`."""
        cdef uint64_t seq = catalogue.last_seq, newer = catalogue.last_seq - up_to, found = 0
        if newer <= FEW:
            found = catalogue.scan_back(&seq, newer, wanted)    # it may go below `up_to`, but skips no message
        while newer > FEW and found == 0 and seq > up_to:
            found = catalogue.prev_some(&seq, wanted)
        if found or match == 0:
            return found
        return match if index_live(&catalogue.index, match) != NULL else catalogue.prev_of_filter(match - 1, wanted)
