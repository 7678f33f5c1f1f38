"""Repair after faults: a stream or consumer with an unexpected exception is reopened from its files.

An exception may leave an object in a half changed state, so the object must not be used again. A stream is closed at
once, without a write, and reopened in steps while its requests wait; a consumer is replaced with one that is read
from its files. A memory stream, or a consumer without files, is deleted. A stream that fails again within a minute
stays closed until the next start.

This module does not depend on the code that reports faults, or on the kinds of exceptions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_S
from pyjs.base.errors import StoreFailed
from pyjs.jetstream.config.choices import FILE
from pyjs.jetstream.consumer.consumer import Consumer
from pyjs.jetstream.files.metadata import Barrier
from pyjs.jetstream.manage import consumers, streams
from pyjs.jetstream.manage.engine import JetStream, consumer_gate
from pyjs.jetstream.mirror.copier import Copier
from pyjs.jetstream.stream.stream import Stream
from pyjs.store.file.store import FileStore

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from pyjs.core.chore import Step

AGAIN_NS = 60 * NS_PER_S


class Mender:
    """The repair of the streams and consumers of all accounts after faults."""

    def __init__(self, engines: Mapping[str, JetStream]) -> None:
        self._engines = engines
        # (account, stream) -> time at which it was last reopened
        self._mended_at: dict[tuple[str, str], int] = {}

    def mend(self, owner: object) -> None:
        """Close and reopen a stream or consumer after a fault; a copier stands for its target stream.

        Objects of other kinds are ignored.
        """
        if isinstance(owner, Copier):
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
            if not consumers.abandon(js, stream, consumer):
                return
            if js.shared.metadata.pending:
                js.account.turn.go_on(self._reopen_later(js, stream, consumer.name))
            else:
                consumers.reopen(js, stream, consumer.name)
        except Exception as error:
            self._not_reopened(js, stream, f"{consumer}", error)

    def _reopen_later(self, js: JetStream, stream: Stream, name: str) -> Iterator[Step]:
        """Reopen a consumer when no thread writes its files."""

        def steps() -> Generator[Step, None, None]:
            yield from _written(js)
            if js.streams.get(stream.name) is not stream or name in stream.consumers:
                return
            try:
                consumers.reopen(js, stream, name)
            except Exception as error:
                self._not_reopened(js, stream, f"consumer '{name}' of {stream}", error)

        gate = consumer_gate(stream.name, name)
        yield from js.gates.within(stream.name, False, lambda: js.gates.within(gate, True, steps))

    def _not_reopened(self, js: JetStream, stream: Stream, consumer: str, error: Exception) -> None:
        """Report `error`, and reopen the whole stream, since one of its consumers could not be reopened."""
        js.shared.faults.report("mending", f"the reopening of {consumer}", error, js.shared.clock.now_ns())
        self._mend_stream(js, stream)

    def _mend_stream(self, js: JetStream, stream: Stream) -> None:
        """Close a stream after a fault, and open it again from its files in steps.

        A memory stream is deleted. A stream that failed again within AGAIN_NS stays closed until the next start.
        """
        replicated = js.shared.replicated
        if replicated is not None and replicated.is_replica(stream):
            replicated.fail(stream)
            return
        log, key = js.shared.log, (js.account.name, stream.name)
        is_mistaken = isinstance(stream.store, FileStore) and stream.store.mistaken
        streams.abandon(js, stream, StoreFailed(str(stream), "internal error"))
        if stream.config.storage != FILE:
            log.error(f"JetStream {stream} is deleted: its state is not to be trusted, and it has no files")
            streams.tell(js, stream.name, "delete")
            return
        now_ns = js.shared.clock.now_ns()
        # The loop ends, since each attempt removes at least one wrong index file.
        if not is_mistaken and key in self._mended_at and now_ns < self._mended_at[key] + AGAIN_NS:
            log.error(f"JetStream {stream} failed again and stays closed until the next start")
            js.files.close_for_good(stream.name)
            return
        self._mended_at[key] = now_ns
        log.warn(f"JetStream {stream} is opened again from its files")
        js.account.turn.go_on(_reopen(js, stream.name))


def _reopen(js: JetStream, name: str) -> Iterator[Step]:
    yield from js.gates.enter(name, alone=True)
    try:
        yield from _written(js)
        if name not in js.streams:
            yield from streams.reopen_steps(js, name)
    finally:
        js.gates.leave(name)


def _written(js: JetStream) -> Generator[Step, None, None]:
    """Wait until all earlier changes of metadata are finished."""
    if js.shared.metadata.pending:
        try:
            yield from js.shared.metadata.commit(Barrier())
        except StoreFailed:
            pass  # a failed change is finished as well
