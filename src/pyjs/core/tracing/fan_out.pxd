"""Delivery of a traced message."""
from pyjs.core.account cimport Account
from pyjs.wire.ops cimport Msg

cdef enum:
    TRACE_WORK = 512  # added to Turn.extra_work for the header scan in Python, the events and the trace message

# Publish like Account.publish, and add the result of each subscription to `trace`; return the number of
# receivers.
cdef int fan_out(Account account, Msg* m, object trace) except -1
# The same, only for plain subscriptions (if `plain`) and for the queue groups in `queues`; None: all groups.
cdef int fan_out_to(Account account, Msg* m, object trace, bint plain, object queues) except -1
