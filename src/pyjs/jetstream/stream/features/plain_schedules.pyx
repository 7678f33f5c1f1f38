"""Schedules in their usual form, read without Python objects: `@at` with a time in UTC, and a target.

    block = "NATS/1.0" CRLF { line CRLF } CRLF
    line  = "Nats-Schedule: @at " time | "Nats-Schedule-Target: " subject | "Nats-Rollup: sub" | "Nats-Msg-Id:" id
            | a header whose name does not begin with "Nats-"
    time  = "20YY-MM-DDThh:mm:ss" [ "." 1 to 9 digits ] "Z"

All other forms, valid or not, are left to schedule.py; a form accepted here has the same meaning there.

Compiled, because each publish of a schedule is checked here, and a recovery reads all stored ones (measured by
benchmarks/expiry.py).
Source: ADR-51, see schedule.py; tests/unit/jetstream/stream/features/test_plain_schedules.py compares both.
"""
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memchr, memcmp

from pyjs.jetstream.stream.limits cimport SCHEDULES, StreamLimits
from pyjs.jetstream.stream.pub_headers cimport Value
from pyjs.subjects.tokens cimport overlaps, valid_literal
from pyjs.wire.ops cimport Msg

cdef enum:
    FIRST_SIZE = 10             # bytes of "NATS/1.0\r\n"
    DATE_SIZE = 19              # bytes of "20YY-MM-DDThh:mm:ss"
    DIGITS_MAX = 9              # digits of a fraction of a second
    DAYS_TO_2000 = 10957        # days from 1970 to 2000
    DAY_S = 86400
cdef int64_t NS_PER_S = 1000000000
# days before each month of a common year
cdef int[12] DAYS_BEFORE = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334]
cdef int[12] MONTH_DAYS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]


cdef int two_digits(const char* p) noexcept nogil:
    """Return the number that the two digits at `p` form, or -1 if they are not digits."""
    if not (c'0' <= p[0] <= c'9' and c'0' <= p[1] <= c'9'):
        return -1
    return 10 * (p[0] - c'0') + (p[1] - c'0')


cdef int64_t seconds_of(const char* p) noexcept nogil:
    """Return the seconds since 1970 of "20YY-MM-DDThh:mm:ss", or -1 if it is invalid."""
    cdef int year, month, day, hour, minute, second, days
    if p[0] != c'2' or p[1] != c'0' or p[4] != c'-' or p[7] != c'-':
        return -1
    if p[10] != c'T' or p[13] != c':' or p[16] != c':':
        return -1
    year, month, day = two_digits(p + 2), two_digits(p + 5), two_digits(p + 8)
    hour, minute, second = two_digits(p + 11), two_digits(p + 14), two_digits(p + 17)
    if year < 0 or not 1 <= month <= 12 or not 0 <= hour < 24 or not 0 <= minute < 60 or not 0 <= second < 60:
        return -1
    if not 1 <= day <= MONTH_DAYS[month - 1] + (month == 2 and year % 4 == 0):
        return -1
    days = DAYS_TO_2000 + 365 * year + (year + 3) // 4 + DAYS_BEFORE[month - 1] + day - 1
    if month > 2 and year % 4 == 0:
        days += 1
    return <int64_t> days * DAY_S + hour * 3600 + minute * 60 + second


cdef int64_t time_of(const char* p, size_t n) noexcept nogil:
    """Return the UTC time in a string of `n` bytes, which must end in "Z", in ns since 1970; -1 if it is invalid."""
    cdef int64_t second, ns = 0
    cdef size_t i
    if n < DATE_SIZE + 1 or p[n - 1] != c'Z':
        return -1
    second = seconds_of(p)
    if second < 0:
        return -1
    if n == DATE_SIZE + 1:
        return second * NS_PER_S
    if p[DATE_SIZE] != c'.' or not DATE_SIZE + 3 <= n <= DATE_SIZE + 2 + DIGITS_MAX:
        return -1
    for i in range(DATE_SIZE + 1, DATE_SIZE + 1 + DIGITS_MAX):
        if i >= n - 1:
            ns *= 10
        elif c'0' <= p[i] <= c'9':
            ns = 10 * ns + (p[i] - c'0')
        else:
            return -1
    return second * NS_PER_S + ns


cdef bint is_named(const char* line, size_t n, const char* name, size_t m) noexcept nogil:
    """Return whether a header line has this name; `name` includes the colon."""
    return n >= m and memcmp(line, name, m) == 0


cdef Value value_after(const char* line, size_t n, size_t at) noexcept nogil:
    """Return the value of a line whose colon is just before `at`, without leading blanks."""
    cdef Value value
    while at < n and line[at] == c' ':
        at += 1
    value.p, value.n = line + at, <uint32_t> (n - at)
    return value


cdef bint read_line(const char* line, size_t n, PlainSchedule* out) noexcept nogil:
    """Read one header line into `out`; return False if no schedule in the usual form has this line."""
    cdef Value value
    if not is_named(line, n, b"Nats-", 5) or is_named(line, n, b"Nats-Msg-Id:", 12):
        return True
    if is_named(line, n, b"Nats-Schedule:", 14):
        value = value_after(line, n, 14)
        if out.at_ns >= 0 or value.n < 4 or memcmp(value.p, b"@at ", 4) != 0:
            return False
        out.at_ns = time_of(value.p + 4, value.n - 4)
        return out.at_ns >= 0
    if is_named(line, n, b"Nats-Schedule-Target:", 21):
        if out.target.p != NULL:
            return False
        out.target = value_after(line, n, 21)
        return True
    if not is_named(line, n, b"Nats-Rollup:", 12):
        return False
    value = value_after(line, n, 12)
    out.rolls_up = True
    return value.n == 3 and memcmp(value.p, b"sub", 3) == 0


cdef bint read_plain(const char* h, size_t n, PlainSchedule* out) noexcept nogil:
    cdef const char* line = h + FIRST_SIZE
    cdef const char* end = h + n
    cdef const char* cr
    out.at_ns, out.target.p, out.target.n, out.rolls_up = -1, NULL, 0, False
    if n < FIRST_SIZE + 2 or memcmp(h, b"NATS/1.0\r\n", FIRST_SIZE) != 0 or memcmp(end - 4, b"\r\n\r\n", 4) != 0:
        return False
    while line < end - 2:
        cr = <const char*> memchr(line, c'\r', end - line)
        if cr == line or cr[1] != c'\n' or memchr(line, c'\n', cr - line) != NULL:
            return False
        if not read_line(line, cr - line, out):
            return False
        line = cr + 2
    return out.at_ns >= 0


cdef bint is_valid_plain(StreamLimits limits, Msg* m) noexcept nogil:
    cdef PlainSchedule plain
    if not limits.features & SCHEDULES or not read_plain(m.body, m.header_len, &plain):
        return False
    if not valid_literal(plain.target.p, plain.target.n):
        return False
    if plain.target.n == m.subject_len and memcmp(plain.target.p, m.subject, m.subject_len) == 0:
        return False
    with gil:
        return is_own(limits.scheduled_subjects, plain.target)


cdef bint is_own(tuple subjects, Value target) noexcept:
    """Return whether one of the stream's subjects matches the target."""
    cdef bytes each
    for each in subjects:
        if overlaps(target.p, target.n, each, len(each)):
            return True
    return False


def read(bytes headers not None) -> tuple | None:
    """Return (time in ns, target, whether the message rolls up), or None for another form; for tests."""
    cdef PlainSchedule found
    if not read_plain(headers, len(headers), &found):
        return None
    return found.at_ns, found.target.p[:found.target.n], found.rolls_up
