"""The input of the views of the dashboard, and the lookups that they share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyjs.base.gotext import quoted
from pyjs.jetstream.consumer.consumer import Consumer
from pyjs.monitor.arguments import BadArgument

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.base.clock import Clock
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.stream.stream import Stream
    from pyjs.monitor.arguments import Arguments
    from pyjs.monitor.dashboard.survey import Survey
    from pyjs.monitor.state import Monitored

    Fields = dict[str, Any]
    Steps = Generator[None, None, Fields]


@dataclass(frozen=True, slots=True)
class Site:
    """The input of the dashboard's views: one server, its clock and its survey."""

    monitored: Monitored
    clock: Clock
    survey: Survey

    def engine(self, account: str) -> JetStream | None:
        """Return the JetStream of an account, or None if JetStream is off there."""
        jetstream = self.monitored.node.jetstream
        return None if jetstream is None else jetstream.accounts.get(account)

    def stream(self, account: str, name: str) -> tuple[JetStream, Stream] | None:
        """Return a stream with the JetStream of its account, or None if the stream is not open on this server."""
        js = self.engine(account)
        stream = None if js is None else js.streams.get(name)
        return None if js is None or stream is None else (js, stream)

    def consumer(self, account: str, stream: str, name: str) -> tuple[JetStream, Stream, Consumer] | None:
        """Return a consumer with its JetStream and stream, or None if the consumer is not open on this server."""
        found = self.stream(account, stream)
        consumer = None if found is None else found[1].consumers.get(name)
        if found is None or not isinstance(consumer, Consumer) or consumer.closed:
            return None
        return *found, consumer

    def stream_in(self, arguments: Arguments) -> tuple[JetStream, Stream]:
        """Return (JetStream of the account, stream) for the names `acc` and `stream` in a request.

        Raises:
            BadArgument: the stream is not open on this server.
        """
        account, name = arguments.text("acc"), arguments.text("stream")
        found = self.stream(account, name)
        if found is None:
            raise BadArgument(
                f"stream {quoted(name)} of account {quoted(account)} is not open on this server"
            )
        return found

    def consumer_in(self, arguments: Arguments) -> tuple[JetStream, Stream, Consumer]:
        """Return (JetStream, stream, consumer) for the names `acc`, `stream` and `consumer` in a request.

        Raises:
            BadArgument: the stream or the consumer is not open on this server.
        """
        self.stream_in(arguments)
        account, stream, name = (arguments.text(each) for each in ("acc", "stream", "consumer"))
        found = self.consumer(account, stream, name)
        if found is None:
            raise BadArgument(
                f"consumer {quoted(name)} of stream {quoted(stream)} is not open on this server"
            )
        return found
