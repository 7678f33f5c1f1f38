"""Gives up deliveries for the sender of dead letters, and acknowledges them when their dead letters are stored.

A delivery that reached max_deliver, or was terminated, stays unacknowledged in `AckState.exhausted` until its dead
letter is stored.

This module knows nothing of letters and their streams. Compiled only because it changes fields of compiled objects
(benchmarks/: pull 500).
"""
from libc.stdint cimport uint64_t

from pyjs.jetstream.consumer.consumer cimport ACK_ALL, Consumer


def term(Consumer consumer not None, uint64_t seq, uint64_t cseq, bytes reason) -> bool:
    """Give up a delivery that a client terminated; with ack policy all, also acknowledge all earlier deliveries.

    Return False if the delivery is neither pending nor given up. The term then counts as an ack.
    """
    if not consumer.acks.pending.find(seq):
        return seq in consumer.acks.exhausted
    if consumer.ack_policy == ACK_ALL and seq > 1 and cseq > 1:
        consumer.ack_all(seq - 1, min(cseq - 1, consumer.acks.delivered_cseq))
    consumer.acks.term(seq, reason)
    return True


def settle(Consumer consumer not None, seqs) -> None:
    """Acknowledge deliveries that were given up; the stream may then remove their messages."""
    cdef uint64_t seq
    for seq in seqs:
        if consumer.acks.settle(seq):
            consumer.note_acknowledged(seq)
            consumer.acked_at = consumer.turn.now
    consumer.mark_dirty()
