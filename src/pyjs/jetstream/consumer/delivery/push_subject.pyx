"""The deliver subject of a push consumer: whether anybody listens to it, and since when nothing was sent.

Knows nothing of messages. Compiled because every message of a push consumer asks it (benchmarks/: push).
Source: nats.docs "Push consumers"; interest probed on nats-server 2.15.1.
"""
from libc.stdint cimport int64_t, uint32_t

from pyjs.core.account cimport Account


cdef class PushSubject:
    """Where one push consumer delivers to."""

    def configure(self, bytes subject, bytes group, int64_t heartbeat_ns) -> None:
        """Deliver to `subject` from now on."""
        self.subject = subject
        self.text = subject
        self.length = <uint32_t> len(subject)
        self.group = group
        self.heartbeat_ns = heartbeat_ns

    def look(self, Account account not None, int64_t now) -> None:
        """Find out whether anybody listens: a wildcard that matches the subject does not count."""
        self.changed = False
        was, self.bound = self.bound, False
        for subscription in account.subs.match(self.subject):
            if subscription.subject == self.subject and subscription.queue == self.group:
                self.bound = True
        if was and not self.bound:
            self.unbound_at = now
        elif self.bound and not was:
            self.sent_at = now
