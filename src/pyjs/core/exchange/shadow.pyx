"""The shadow of a subscription: a subscription in the exporting account that forwards to the importing account.

Each subscription that matches the local subject of a stream import has a shadow, in the same queue group and with the
same sid. Its messages reach the subscriber under the local subject. As in nats-server, imported messages do not count
towards UNSUB max, messages of a service import are not forwarded, and a stream import does not forward messages of
another stream import.

Compiled, because it runs for every imported message (measured in benchmarks/: 1-1 across a stream import).
"""
from libc.stdint cimport uint32_t
from libc.stdlib cimport free

from pyjs.core.sink cimport Sink
from pyjs.subjects.rewrite cimport Rewrite
from pyjs.subjects.routes cimport Target
from pyjs.subjects.sublist cimport Subscription
from pyjs.wire.ops cimport Msg


cdef class Shadow(Sink):
    """A sink that forwards messages to the receiver of a subscription in another account."""

    def __cinit__(self, Subscription real not None, Rewrite rewrite, bytes local not None, str importer not None,
                  bint allow_trace):
        self.real = real
        self.importer = importer
        self.allow_trace = allow_trace
        self.rewrite = rewrite
        self.local = local
        self.text = <const char*> local if local else NULL
        self.text_len = <uint32_t> len(local)

    cdef int deliver_traced(self, Msg* m, Target* t, object trace) except -1:
        cdef Target target = t[0]
        cdef Msg renamed = m[0]
        cdef bytes subject = m.subject[:m.subject_len]
        if m.via != NULL or t.sub.closed or self.real.state.closed:
            return 0
        subject = self.local or (subject if self.rewrite is None else self.rewrite.subject(subject))
        if subject is None:
            return 0
        trace.exported(self.importer, subject)
        if not self.allow_trace:
            return 1 if trace.only else self.deliver(m, t)      # the trace does not include the importing account
        target.sink = self.real.state.sink
        target.head, target.head_len = NULL, 0
        renamed.subject, renamed.subject_len = subject, <uint32_t> len(subject)
        return (<Sink> target.sink).deliver_traced(&renamed, &target, trace)

    cdef int deliver(self, Msg* m, Target* t) noexcept nogil:
        cdef Target target
        cdef char* made
        cdef uint32_t n = 0
        cdef int taken
        if m.via != NULL or t.sub.closed or self.real.state.closed:
            return 0
        if m.aliased or (self.rewrite is None and self.text == NULL):
            target = t[0]
            target.sink = self.real.state.sink
            return (<Sink> target.sink).deliver(m, &target)
        if self.rewrite is None:
            return self.pass_on(m, t, self.text, self.text_len)
        made = self.rewrite.apply(m.subject, m.subject_len, &n)
        if made == NULL:
            return 0
        taken = self.pass_on(m, t, made, n)
        free(made)
        return taken

    cdef int pass_on(self, Msg* m, Target* t, const char* subject, uint32_t n) noexcept nogil:
        """Deliver the message under the local subject `subject`; the protocol line is composed, not prebuilt."""
        cdef Target target = t[0]
        cdef Msg renamed = m[0]
        target.sink = self.real.state.sink
        target.head = NULL
        target.head_len = 0
        renamed.subject = subject
        renamed.subject_len = n
        return (<Sink> target.sink).deliver(&renamed, &target)

    def accepts(self, bytes subject, bytes queue) -> bool:
        """Return whether the receiver accepts a message whose subject in the exporting account is `subject`."""
        if self.rewrite is not None:
            subject = self.rewrite.subject(subject)
        return subject is not None and self.real.sink.accepts(self.local or subject, queue)
