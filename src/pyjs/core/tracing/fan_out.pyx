"""The delivery of a traced message, subscription by subscription.

The prebuilt routes leave out subscriptions whose deny list refuses the message; a trace names them. So a traced
message does not use a route: it is rare, and the route stays fast for all other messages.

Compiled because receivers take a Msg; the untraced publish is the one that benchmarks/ measures.
"""
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t

from pyjs.core.account cimport Account
from pyjs.core.sink cimport Sink
from pyjs.subjects.routes cimport Target
from pyjs.subjects.sublist cimport Subscription
from pyjs.wire.ops cimport Msg


cdef int fan_out(Account account, Msg* m, object trace) except -1:
    cdef Subscription sub
    cdef int receivers = 0
    cdef dict groups = {}
    cdef list members
    cdef size_t at, i
    for sub in account.subs.match(m.subject[:m.subject_len]):
        if sub.queue:
            groups.setdefault(sub.queue, []).append(sub)
        else:
            receivers += deliver(sub, m, trace)
    for members in groups.values():
        at = account.chance(<uint32_t> len(members))
        for i in range(<size_t> len(members)):
            if deliver(members[(at + i) % len(members)], m, trace):
                receivers += 1
                break
    return receivers


cdef int deliver(Subscription sub, Msg* m, object trace) except -1:
    """Deliver to one subscription; 0: it did not take the message."""
    cdef Target target
    cdef bytes subject = m.subject[:m.subject_len]
    if sub.state.filtered and not sub.sink.accepts(subject, sub.queue):
        sub.sink.trace_refusal(trace, sub, subject)
        return 0
    target.sink = <PyObject*> sub.sink
    target.sub = &sub.state
    target.head = NULL
    target.head_len = 0
    return (<Sink> sub.sink).deliver_traced(m, &target, trace)
