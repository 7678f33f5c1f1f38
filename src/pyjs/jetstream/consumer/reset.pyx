"""Resets a consumer: it forgets its deliveries, and continues at another sequence.

Nothing is delivered from the new position until the snapshot that has this position is durable. Otherwise a kill
could restore acknowledgements that the reset has undone. Waiting pull requests, the pin and flow control do not
change.

Compiled only because it changes fields of compiled objects (benchmarks/: pull 500).
Source: rules and texts probed on nats-server 2.15.1 (tests/conformance/scenarios/consumer/reset.txt).
"""
from libc.stdint cimport uint64_t

from pyjs.jetstream.consumer.consumer cimport Consumer

from pyjs.base.bounds import SEQ_MAX, wrapped_ns


def reset_seq(Consumer consumer not None, uint64_t wanted) -> int:
    """Return the sequence at which to continue: `wanted`, or the one after the ack floor if `wanted` is 0.

    Raises:
        ValueError: the deliver policy forbids it; the exception's message states the reason.
    """
    config = consumer.config
    if wanted == 0:
        return consumer.acks.floor_seq + 1
    if wanted > SEQ_MAX:
        raise ValueError("above the highest sequence")
    if config.deliver_policy == "all":
        return wanted
    if config.deliver_policy == "by_start_sequence":
        if wanted < config.opt_start_seq:
            raise ValueError("below start seq")
        return wanted
    if config.deliver_policy == "by_start_time":
        if wanted < consumer.store.catalogue.seq_at(wrapped_ns(config.opt_start_time_ns)):
            raise ValueError("below start time")
        return wanted
    raise ValueError("not allowed")


def reset(Consumer consumer not None, uint64_t seq) -> None:
    """Forget all deliveries, and set the position to sequence `seq`. The caller must write a snapshot."""
    consumer.cursor.reset(seq)
    consumer.acks.reset(seq)
    consumer.delivered_at = consumer.acked_at = 0
    consumer.active_at = consumer.turn.now
    consumer.mark_dirty()
