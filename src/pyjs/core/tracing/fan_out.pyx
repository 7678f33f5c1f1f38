"""Delivery of a traced message, subscription by subscription.

Prebuilt routes leave out subscriptions whose deny list refuses the message, but a trace names those too. A traced
message therefore uses no route; traces are rare, and routes remain fast for all other messages. The members
of queue groups are chosen as in Account.deliver_group.

Compiled because receivers need a Msg; benchmarks/ measures only the untraced publish.
"""
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t

from pyjs.core.account cimport EVERYWHERE, Account
from pyjs.core.sink cimport RemoteSink, Sink
from pyjs.subjects.routes cimport Target
from pyjs.subjects.sublist cimport Subscription
from pyjs.wire.ops cimport Msg

cdef enum:
    SURE, IN_DOUBT, ANY         # which members at other servers to try, by RemoteSink.doubts


cdef int fan_out(Account account, Msg* m, object trace) except -1:
    return fan_out_to(account, m, trace, True, None)


cdef int fan_out_to(Account account, Msg* m, object trace, bint plain, object queues) except -1:
    cdef Subscription sub
    cdef int receivers = 0
    cdef dict groups = {}
    cdef list members
    for sub in account.subs.match(m.found_by[:m.found_by_len] if m.aliased else m.subject[:m.subject_len]):
        if sub.queue and (queues is None or sub.queue in queues):
            groups.setdefault(sub.queue, []).append(sub)
        elif plain and not sub.queue:
            receivers += deliver(sub, m, trace)
    for members in groups.values():
        receivers += deliver_group(account, members, m, trace)
    return receivers


cdef int deliver_group(Account account, list members, Msg* m, object trace) except -1:
    """Deliver to one member of a queue group: a local one if any accepts, otherwise one at another server.

    Return the number of receivers, which is 0 or 1.
    """
    cdef list here = [each for each in members if (<Subscription> each).state.weight == 0]
    cdef list away = [each for each in members if (<Subscription> each).state.weight != 0]
    if here and first_taking(here, account.chance(<uint32_t> len(here)), ANY, m, trace):
        return 1
    if not away or m.told == EVERYWHERE:
        return 0
    at = by_weight(away, account)
    return first_taking(away, at, SURE, m, trace) or first_taking(away, at, IN_DOUBT, m, trace)


cdef size_t by_weight(list away, Account account) except? 0:
    """Return the index of a member at another server, chosen in proportion to the weights."""
    cdef Subscription sub
    cdef uint64_t weights = 0, chosen
    cdef size_t at = 0
    for sub in away:
        weights += sub.state.weight
    chosen = account.chance(<uint32_t> min(weights, <uint64_t> 0xffffffff))
    for sub in away:
        if chosen < sub.state.weight:
            break
        chosen -= sub.state.weight
        at += 1
    return at


cdef int first_taking(list members, size_t at, int doubts, Msg* m, object trace) except -1:
    """Deliver to the first member that accepts the message, starting at `at` and wrapping around.

    Return the number of receivers, which is 0 or 1. Unless `doubts` is ANY, only members with this value are tried.
    """
    cdef Subscription sub
    cdef size_t i
    for i in range(<size_t> len(members)):
        sub = members[(at + i) % <size_t> len(members)]
        if (doubts == ANY or (<RemoteSink> sub.sink).doubts == doubts) and deliver(sub, m, trace):
            return 1
    return 0


cdef int deliver(Subscription sub, Msg* m, object trace) except -1:
    """Deliver to one subscription; return 0 if it did not accept the message."""
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
