"""Steps of the clock that gives entries of a replicated stream their times."""
from libc.stdint cimport int64_t

cdef enum:
    CLOCK_STEPS_MAX = 8         # maximum number of steps; if there are more, the oldest two are joined
    CLOCK_STEP_SIZE = 16        # bytes of one encoded step

cdef struct ClockStep:
    int64_t at                  # ns, time of the first entry after the step
    int64_t by                  # ns of the time before `at` that did not elapse; > 0

cdef class ClockSteps:
    """The steps that matter for the duplicate window of one stream, oldest first."""
    cdef ClockStep[CLOCK_STEPS_MAX] steps
    cdef readonly int count

    cdef void drop_first(self, int n) noexcept
    # Return the time (ns) `window` ns of elapsed time before `now`.
    cdef int64_t before(self, int64_t now, int64_t window) noexcept nogil
