"""What becomes of a stream or consumer whose work failed unexpectedly: it begins again with what its files say.

An exception in the middle of a change leaves memory half changed, and nothing may go on from there. So the stream is
closed at once, without a write, and opened again from its files, in steps, while requests for it wait; a consumer is
replaced by one that is read from its files. What is not in files cannot be trusted: a memory stream, or a consumer
without files, is deleted. A stream that fails again within a minute stays closed until the next start.

Knows nothing of who found the fault, and which exceptions there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_S
from pyjs.base.errors import StoreFailed
from pyjs.jetstream import consumers, streams
from pyjs.jetstream.config import FILE
from pyjs.jetstream.consumer import Consumer
from pyjs.jetstream.cursor import Cursor
from pyjs.jetstream.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyjs.core.chore import Step
    from pyjs.jetstream.engine import JetStream

AGAIN_NS = 60 * NS_PER_S


class Mender:
    """Mends the streams and consumers of one server."""

    def __init__(self, engines: Mapping[str, JetStream]) -> None:
        self._engines = engines
        self._mended_at: dict[tuple[str, str], int] = {}  # by account and stream

    def mend(self, owner: object) -> None:
        """Let `owner`, whose work failed, begin again; anything but streams and consumers is left alone."""
        if isinstance(owner, Cursor):
            owner = owner.target
        if isinstance(owner, Consumer):
            self._mend_consumer(owner)
        elif isinstance(owner, Stream):
            js = self._engines.get(owner.account.name)
            if js is not None and js.streams.get(owner.name) is owner:
                self._mend_stream(js, owner)

    def _mend_consumer(self, consumer: Consumer) -> None:
        js = self._engines.get(consumer.account.name)
        stream = None if js is None else js.streams.get(consumer.stream_name)
        if js is None or stream is None or stream.consumers.get(consumer.name) is not consumer:
            return
        js.shared.log.warn(f"JetStream {consumer} begins again with what its files say")
        try:
            consumers.reopen(js, stream, consumer)
        except Exception as error:
            now_ns = js.shared.clock.now_ns()
            js.shared.faults.report("mending", f"the reopening of {consumer}", error, now_ns)
            self._mend_stream(js, stream)

    def _mend_stream(self, js: JetStream, stream: Stream) -> None:
        """Close a stream, and open it again in the steps of a chore."""
        log, key = js.shared.log, (js.account.name, stream.name)
        streams.abandon(js, stream, StoreFailed(str(stream), "internal error"))
        if stream.config.storage != FILE:
            log.error(f"JetStream {stream} is deleted: its state is not to be trusted, and it has no files")
            streams.tell(js, stream.name, "delete")
            return
        now_ns = js.shared.clock.now_ns()
        if key in self._mended_at and now_ns < self._mended_at[key] + AGAIN_NS:
            log.error(f"JetStream {stream} failed again and stays closed until the next start")
            js.files.close_for_good(stream.name)
            return
        self._mended_at[key] = now_ns
        log.warn(f"JetStream {stream} is opened again from its files")
        js.account.turn.go_on(_reopen(js, stream.name))


def _reopen(js: JetStream, name: str) -> Iterator[Step]:
    yield from js.gates.enter(name, alone=True)
    try:
        if name not in js.streams:
            yield from streams.reopen_steps(js, name)
    finally:
        js.gates.leave(name)
