"""One publish whose headers request a trace: the decision, the delivery, the trace itself.

The session calls `begin`, checks the permissions, and then calls `deliver` and `end`.
After an unexpected error, which is logged, the message or its trace is lost.

Compiled because it needs a Msg; benchmarks/ measures only the untraced publish.
"""
from libc.stdint cimport uint32_t

from pyjs.core.account cimport Account
from pyjs.core.sink cimport Turn
from pyjs.core.tracing.fan_out cimport TRACE_WORK, fan_out
from pyjs.wire.ops cimport Msg

NO_ECHO = "Not delivered because of no echo"
DENIED = "Not delivered because subscription denies this subject"


cdef class TracedPublish:
    """The publish of one message whose headers request a trace."""

    def __cinit__(self, object session, Turn turn):
        self.session = session
        self.turn = turn

    cdef bint begin(self, Msg* m) noexcept:
        from pyjs.core.tracing.trace import decide  # imported lazily, since it takes 2 ms and few messages need it

        self.turn.extra_work += TRACE_WORK
        self.sent = m[0]
        try:
            decision = decide(self.session, m.subject[:m.subject_len], m.body[:m.header_len], m.size)
            if decision.headers:
                self.replace_headers(m, decision.headers)
            self.turn.trace = self.trace = decision.trace
            return not decision.dropped
        except Exception as error:
            self.failed(error)
            return False

    cdef int deliver(self, Account account) noexcept:
        try:
            return account.publish(&self.sent) if self.trace is None else fan_out(account, &self.sent, self.trace)
        except Exception as error:
            self.failed(error)
            return 0

    cdef void end(self) noexcept:
        self.turn.trace = None
        if self.trace is not None:
            try:
                self.session.host.send_trace(self.trace)
            except Exception as error:
                self.failed(error)

    cdef void failed(self, object error) noexcept:
        self.session.host.log.error(f"{self.session} - trace failed: {error!r}")

    cdef void replace_headers(self, Msg* m, bytes headers) except *:
        cdef bytes reply = m.reply[:m.reply_len] + b" " if m.reply_len else b""
        self.body = headers + m.body[m.header_len:m.size]
        self.tail = b"%b%d %d\r\n" % (reply, len(headers), len(self.body))
        self.sent.body, self.sent.header_len = self.body, <uint32_t> len(headers)
        self.sent.size = <uint32_t> len(self.body)
        self.sent.tail, self.sent.tail_len = self.tail, len(self.tail)
        self.sent.split, self.sent.whole = True, NULL
