"""A JSON scanner with nats-server's messages for syntax errors; it can also return the raw text of a value.

The scanner is slow and rarely used. Readers (jetstream/config/json_strict, core/auth/handshake) need it only for
invalid text, for text that the JSON library refuses, or for the raw form of a number in an error message. The scanner
reads several documents one after another. An array holds the open containers, so a deeply nested body does not use
the C stack. A value nested deeper than VALUES_DEPTH is checked but not built, since the tables of fields are less
deep. Memory is therefore at most a few times the size of the body.

This module knows nothing of fields or kinds. Compiled: a megabyte with an error in its last byte must not block other
clients (benchmarks/hostile.py; 2 to 20 ms). Source: error messages probed on nats-server 2.15.1, see
tests/unit/jetstream/config/test_json_strict.py.
"""
from libc.stdint cimport int64_t

import re

from pyjs.base.bounds import JSON_DEPTH_MAX

cdef enum:
    VALUES_DEPTH = 8            # maximum depth of a value that is built
    DEPTH_MAX = 10000           # JSON_DEPTH_MAX
    SMALL_DIGITS = 18           # a number with at most this many digits fits in 64 bits
    DIGITS_MAX = 20             # a number with more digits than this does not fit in 64 bits

assert DEPTH_MAX == JSON_DEPTH_MAX
BEYOND = 10**DIGITS_MAX         # the value returned for a whole number too large for any kind of field
REAL = 0.5  # the value returned for a number with a fraction or an exponent, which no kind of field accepts
_OFFSET = re.compile(r" at offset [0-9]+$")
_BAD_BYTE = re.compile("[\udc80-\udcff]")
_ESCAPES = {34: '"', 92: "\\", 47: "/", 98: "\b", 102: "\f", 110: "\n", 114: "\r", 116: "\t"}
_NAMES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\v": "\\v"}


class JsonFault(Exception):
    """Raised if a body is invalid JSON; its message lacks the prefix "invalid JSON: "."""

    def lenient_text(self) -> str:
        """Return the error message for pull and unpin requests, which nats-server decodes leniently."""
        return _OFFSET.sub("", str(self)).replace("unexpected EOF", "unexpected end of JSON input")


def documents(bytes body):
    """Yield the documents in `body`, one after another; containers nested deeper than VALUES_DEPTH are empty.

    Raises:
        JsonFault: the next document is not JSON.
    """
    cdef Scanner scanner = Scanner(body, None)
    cdef size_t start
    while scanner.skip_blanks():
        start = scanner.at
        scanner.built = -1      # no container is built: the values are not needed
        scanner.document()
        scanner.at = start
        scanner.built = VALUES_DEPTH
        yield scanner.document()


def raw_text(bytes body, tuple path) -> str:
    """Return the raw text of the last value at `path` (names in lower case), or "" if there is none."""
    scanner = Scanner(body, list(path))
    try:
        while scanner.skip_blanks():
            scanner.document()
    except JsonFault:
        pass                    # an error after the value is reported elsewhere
    return body[scanner.found_start:scanner.found_end].decode("utf-8", "replace")


cdef class Scanner:
    """The position in a body, and the containers that are open at this position."""

    cdef bytes body
    cdef const unsigned char* p
    cdef size_t n, at
    cdef list wanted                        # path of the value whose raw text is searched; None: none
    cdef readonly size_t found_start, found_end
    cdef int built                          # number of containers that are built; -1: build nothing, only check
    cdef int depth                          # number of open containers
    cdef unsigned char[DEPTH_MAX] kinds     # of the open containers: { or [
    cdef list made                          # the open containers that are being built
    cdef list path                          # key or index of the current value in each built container
    cdef size_t[VALUES_DEPTH + 1] starts    # offsets of the values on the path

    def __init__(self, bytes body, wanted):
        self.body = body
        self.p = body
        self.n = len(body)
        self.wanted = wanted
        self.built = VALUES_DEPTH
        self.made = []
        self.path = []

    def skip_blanks(self) -> bool:
        """Move to the next character that is not blank; return False at the end."""
        while self.at < self.n and (self.p[self.at] == c' ' or self.p[self.at] == c'\t'
                                    or self.p[self.at] == c'\r' or self.p[self.at] == c'\n'):
            self.at += 1
        return self.at < self.n

    def document(self):
        """Read and return the next value; containers nested deeper than `built` levels are empty.

        Raises:
            JsonFault: the value is not JSON.
        """
        cdef unsigned char c
        cdef object value
        self.depth = 0
        self.made.clear()
        self.path.clear()
        while True:
            c = self.need()
            if self.wanted is not None and self.depth <= VALUES_DEPTH:
                self.starts[self.depth] = self.at
            if c == c'{' or c == c'[':
                self.open(c)
                if self.need() != c + 2:            # the codes of ] and } are those of [ and { plus 2
                    self.begin_item()
                    continue
                value = self.close()
            else:
                value = self.scalar(c)
            while True:                             # a value is complete
                self.put(value)
                if self.depth == 0:
                    return value
                c = self.need()
                if c == c',':
                    self.at += 1
                    self.begin_item()
                    break
                if c != self.kinds[self.depth - 1] + 2:
                    raise self.bad("after array element" if self.kinds[self.depth - 1] == c'[' else
                                   "after object key:value pair")
                value = self.close()

    # -- containers --------------------------------------------------------------------------------------------

    cdef int open(self, unsigned char kind) except -1:
        if self.depth == DEPTH_MAX:
            raise JsonFault(f"exceeded max depth at offset {self.at + 1}")
        self.kinds[self.depth] = kind
        self.depth += 1
        self.at += 1
        if self.depth <= self.built:
            self.made.append({} if kind == c'{' else [])
            self.path.append(None)
        return 0

    cdef int begin_item(self) except -1:
        """Begin the next item of the innermost container; in an object, read the key of the item."""
        cdef bint built = self.depth <= self.built
        cdef object key
        if self.kinds[self.depth - 1] == c'[':
            if built and self.wanted is not None:
                self.path[-1] = len(<list> self.made[-1])
            return 0
        if self.need() != c'"':
            raise self.bad("looking for beginning of object key string")
        key = self.string(built)
        if self.need() != c':':
            raise self.bad("after object key")
        self.at += 1
        if built:
            self.path[-1] = key
        return 0

    cdef object close(self):
        """Close the innermost container and return it, or an empty one if it was not built."""
        self.at += 1
        self.depth -= 1
        if self.depth < self.built:
            self.path.pop()
            return self.made.pop()
        return {} if self.kinds[self.depth] == c'{' else []

    cdef int put(self, value) except -1:
        """Add a complete value to the innermost container, and store its position if it is the wanted value."""
        if self.depth > self.built:
            return 0
        if self.wanted is not None and len(self.wanted) == self.depth and self.is_wanted():
            self.found_start, self.found_end = self.starts[self.depth], self.at
        if self.depth:
            if self.kinds[self.depth - 1] == c'{':
                (<dict> self.made[-1])[self.path[-1]] = value
            else:
                (<list> self.made[-1]).append(value)
        return 0

    cdef bint is_wanted(self) except -1:
        return [each.lower() if type(each) is str else each for each in self.path] == self.wanted

    # -- scalars -----------------------------------------------------------------------------------------------

    cdef object scalar(self, unsigned char c):
        if c == c'"':
            return self.string(self.depth <= self.built)
        if c == c't':
            return self.literal(b"true", True)
        if c == c'f':
            return self.literal(b"false", False)
        if c == c'n':
            return self.literal(b"null", None)
        if c == c'-' or c'0' <= c <= c'9':
            return self.number()
        raise self.bad("looking for beginning of value")

    cdef object literal(self, bytes word, value):
        for expected in word:
            if self.here() != expected:
                raise self.bad(f"in literal {word.decode()} (expecting {_quoted(chr(expected))})")
            self.at += 1
        return value

    cdef object string(self, bint built):
        """Read a string and return it; if not `built`, only check it and return None."""
        cdef list parts = [] if built else None
        cdef size_t start = self.at + 1
        cdef unsigned char c
        self.at += 1
        while True:
            c = self.here()
            if c == c'"' or c == c'\\':
                if built and self.at > start:
                    parts.append(_text(self.body[start:self.at]))
                if c == c'"':
                    self.at += 1
                    return _joined(parts) if built else None
                escaped = self.escape(built)
                if built:
                    parts.append(escaped)
                start = self.at + 1
            elif c < 32:
                raise self.bad("in string")
            self.at += 1

    cdef str escape(self, bint built):
        """Move to the last byte of the escape at the current position; return its character if `built`."""
        cdef size_t start = self.at
        cdef unsigned char c
        self.at += 1
        c = self.here()
        if c in _ESCAPES:
            return _ESCAPES[c]
        if c == c'u':
            for _ in range(4):
                self.at += 1
                c = self.here()
                if not (c'0' <= c <= c'9' or c'a' <= c <= c'f' or c'A' <= c <= c'F'):
                    break
            else:
                return chr(int(self.body[start + 2:start + 6], 16)) if built else ""
        end = self.at + len(_first_character(self.body[self.at:self.at + 4]))
        raise JsonFault(f"invalid escape sequence {_sequence(self.body[start:end])} in string at offset {end}")

    cdef object number(self):
        """Read a number and return it, or BEYOND or REAL if no kind of field accepts it."""
        cdef size_t start = self.at, digits
        cdef int64_t value = 0
        cdef bint real = False
        if self.p[self.at] == c'-':
            self.at += 1
            self.here()
        digits = self.at
        if self.p[self.at] == c'0':
            self.at += 1
        else:
            self.digits()
        digits = self.at - digits
        if self.at < self.n and self.p[self.at] == c'.':
            real = True
            self.at += 1
            self.digits()
        if self.at < self.n and (self.p[self.at] == c'e' or self.p[self.at] == c'E'):
            real = True
            self.at += 1
            if self.here() == c'+' or self.p[self.at] == c'-':
                self.at += 1
            self.digits()
        if real:
            return REAL
        if digits > DIGITS_MAX:
            return BEYOND
        if digits > SMALL_DIGITS:
            return int(self.body[start:self.at])
        for k in range(self.at - digits, self.at):
            value = value * 10 + self.p[k] - c'0'
        return -value if self.p[start] == c'-' else value

    cdef int digits(self) except -1:
        """Skip one or more digits."""
        if not c'0' <= self.here() <= c'9':
            raise self.bad("in numeric literal")
        while self.at < self.n and c'0' <= self.p[self.at] <= c'9':
            self.at += 1
        return 0

    # -- faults ------------------------------------------------------------------------------------------------

    cdef int need(self) except -1:
        """Return the next character that is not blank; raise JsonFault at the end."""
        if not self.skip_blanks():
            raise JsonFault("unexpected EOF")
        return self.p[self.at]

    cdef int here(self) except -1:
        """Return the character at the current position; raise JsonFault at the end."""
        if self.at >= self.n:
            raise JsonFault("unexpected EOF")
        return self.p[self.at]

    cdef object bad(self, str where):
        first = _first_character(self.body[self.at:self.at + 4])
        shown = _quoted(first.decode()) if _is_text(first) else f"'\\x{first[0]:02x}'"
        return JsonFault(f"invalid character {shown} {where} at offset {self.at + len(first)}")


cdef str _text(bytes raw):
    """Return the text of a string without escapes; each invalid byte becomes U+FFFD, as in nats-server."""
    if raw.isascii():
        return raw.decode("ascii")
    return _BAD_BYTE.sub("\ufffd", raw.decode("utf-8", "surrogateescape"))


cdef str _joined(list parts):
    """Join the parts; combine escaped surrogate pairs, and replace a lone surrogate with U+FFFD."""
    cdef str text
    if not parts:
        return ""
    if len(parts) == 1 and (<str> parts[0]).isascii():
        return parts[0]
    text = "".join(parts)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


cdef bint _is_text(bytes raw) except -1:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


cdef bytes _first_character(bytes raw):
    """Return the bytes of the first character of `raw`, or a single byte if it is invalid."""
    for size in range(1, len(raw) + 1):
        if _is_text(raw[:size]):
            return raw[:size]
    return raw[:1]


def _quoted(one: str) -> str:
    """Return a character as Go quotes it."""
    if one in "'\\":
        return f"'\\{one}'"
    if one in _NAMES:
        return f"'{_NAMES[one]}'"
    if one < " " or one == "\x7f":
        return f"'\\x{ord(one):02x}'"
    if one.isprintable():
        return f"'{one}'"
    return f"'\\u{ord(one):04x}'" if one < "\U00010000" else f"'\\U{ord(one):08x}'"


def _sequence(raw: bytes) -> str:
    """Return an escape sequence as Go quotes it: between backquotes if possible."""
    text = raw.decode("utf-8", "replace")
    if _is_text(raw) and text.isprintable() and "`" not in text and "\ufeff" not in text:
        return f"`{text}`"
    shown = "".join(_quoted(chr(c))[1:-1] if c < 128 else f"\\x{c:02x}" for c in raw)
    return '"' + shown.replace("\\'", "'").replace('"', '\\"') + '"'
