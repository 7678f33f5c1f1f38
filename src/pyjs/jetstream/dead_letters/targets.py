"""The assignment of dead-letter senders to consumers, according to the metadata of each consumer and its stream.

The assignment is made when a consumer is opened and when a configuration changes. Where there are no dead letters,
the assignment imports no other module of this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.jetstream.config.dead_letters import target_of
from pyjs.jetstream.consumer.consumer import Consumer

if TYPE_CHECKING:
    from pyjs.jetstream.config.stream import StreamConfig
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.stream.stream import Stream


def direct_all(js: JetStream, stream: Stream, old: StreamConfig) -> None:
    """Apply the metadata of a stream to all its consumers, if the metadata differ from those of `old`."""
    if stream.config.metadata == old.metadata:
        return
    for consumer in stream.consumers.values():
        if isinstance(consumer, Consumer):
            direct(js, stream, consumer)


def direct(js: JetStream, stream: Stream, consumer: Consumer) -> None:
    """Start, redirect or stop the sending of dead letters, according to the metadata of consumer and stream."""
    target = target_of(stream.config.metadata, consumer.config.metadata)
    if target is not None or consumer.letters is not None or consumer.acks.terms:
        from pyjs.jetstream.dead_letters import sender  # imported lazily: most streams have no dead letters

        sender.direct(js, stream, consumer, target)
