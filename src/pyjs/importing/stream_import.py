"""The import of one stream: its configuration, its blocks, its index and its consumers.

Damaged messages, and consumers that cannot be stored, are left out and reported. After any other problem the
stream is refused, and all files that the import wrote for it are removed.

Source: rules of a restore (pyjs.jetstream.transfer); `loadMsgs` and `recoverMsgBlock` of nats-server.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import orjson

from pyjs.archive.frames import BadArchive
from pyjs.base.errors import NONSENSE, PyjsError, StoreFailed
from pyjs.config.options import AccountJetStreamOptions, JetStreamOptions
from pyjs.jetstream.config import stream_requests
from pyjs.jetstream.config.choices import FILE
from pyjs.jetstream.config.level import level_problem
from pyjs.jetstream.config.stream import StreamConfig
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.rules import stream as stream_rules
from pyjs.jetstream.transfer.block_files import BlockFiles, check_sum, created_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pyjs.core.chore import Step
    from pyjs.importing.report import StreamReport
    from pyjs.importing.source import SourceStream
    from pyjs.importing.target import Build, TargetAccount

# Errors of reading and writing; after any of them, a stream or a consumer is refused.
REFUSALS = (BadArchive, ApiError, StoreFailed, PyjsError, OSError, MemoryError, RecursionError, *NONSENSE)


class Refused(PyjsError):
    """Raised when a stream cannot be imported; the exception's message states the reason."""


class StreamImport:
    """The import of one stream."""

    def __init__(
        self,
        source: SourceStream,
        account: TargetAccount,
        report: StreamReport,
        advance: Callable[[int], None],
    ) -> None:
        self._source = source
        self._account = account
        self._report = report
        self._advance = advance  # called with the number of bytes read from blocks

    def run(self) -> None:
        """Import the stream.

        Afterwards, the report has the imported parts, or the reason why the stream was refused.
        """
        try:
            self._take()
        except REFUSALS as error:
            self._report.refusal = str(error) or type(error).__name__

    def _take(self) -> None:
        source, account = self._source, self._account
        if source.is_encrypted:
            raise Refused("it is encrypted: decrypt it with nats-server, or copy it over NATS")
        config, made_ns = self._configuration()
        if conflict := account.conflict(config):
            raise Refused(conflict)
        before, build = source.sizes(), account.begin(config, made_ns)
        try:
            account.target.run(self._fill(build))
            if source.sizes() != before:
                raise Refused("its files changed meanwhile: stop nats-server first")
            self._count(build)
            account.publish(build)
        finally:
            build.close()

    def _configuration(self) -> tuple[StreamConfig, int]:
        """Return the configuration to store, and the creation time of the stream in ns.

        Raises:
            One of REFUSALS: the configuration is missing or invalid, or not allowed here.
        """
        meta, name = self._source.file("meta.inf"), self._source.name
        if meta is None:
            raise Refused("it has no meta.inf")
        check_sum(meta, self._source.file("meta.sum"), name)
        values = orjson.loads(meta)
        if not isinstance(values, dict):
            raise BadArchive("meta.inf is no configuration")
        values.pop("Created", None)
        if problem := level_problem(values.get("metadata") or {}):
            raise Refused(problem)
        request = stream_requests.read_restore(orjson.dumps({"config": values}), name, True)
        if request.config.name != name:
            raise Refused(f"its meta.inf is of the stream {request.config.name!r}")
        if request.config.storage != FILE:
            raise Refused("it is a stream in memory")
        config = request.config
        if config.num_replicas > 1:
            self._report.notes.append(f"it had {config.num_replicas} replicas and has one here")
            config = replace(config, num_replicas=1)
        return self._checked(config), created_ns(meta)

    def _checked(self, config: StreamConfig) -> StreamConfig:
        options, limits = JetStreamOptions(), AccountJetStreamOptions()
        find = self._account.configs.get
        return stream_rules.check(config.with_required_level(), options, limits, False, find)

    def _fill(self, build: Build) -> Generator[Step, None, None]:
        """Write the messages and the consumers of the source to `build`."""
        source, blocks = self._source, BlockFiles(build, self._source.name, self._report.damage.append)
        for number in source.blocks:
            blocks.begin_block(number, source.block_index(number))
            yield from self._read_block(blocks, number)
            yield from blocks.end_block()
        yield from blocks.use_index(source.index())
        blocks.finish()
        self._report.missing, self._report.lost = blocks.missing, blocks.lost
        build.writer.skip_to(blocks.last_seq)
        build.commit()
        yield from self._consumers(build)

    def _read_block(self, blocks: BlockFiles, number: int) -> Generator[Step, None, None]:
        try:
            for piece in self._source.block(number):
                self._advance(len(piece))
                yield from blocks.add(piece)
                if blocks.skips_rest:
                    return
        except OSError as error:
            self._report.damage.append(f"message block {number} cannot be read: {error.strerror or error}")

    def _consumers(self, build: Build) -> Generator[Step, None, None]:
        for name in self._source.consumers():
            try:
                yield from self._source.consumer(name).add_to(build)
            except StoreFailed:
                raise
            except REFUSALS as error:
                self._report.damage.append(f"consumer {name!r} is not taken: {error}")

    def _count(self, build: Build) -> None:
        store = build.writer.store
        self._report.messages, self._report.bytes = store.msgs, store.bytes
        self._report.consumers = len(build.writer.consumers)
