"""A restore: a stream is built from an archive that a client sends in chunks.

Each chunk is acknowledged when it has been processed, which limits the number of chunks in flight. After an error,
five seconds without a chunk, or a stop of the server, the partial stream is deleted.

Source: ADR-63, nats-server's source; tests/conformance/test_archives.py restores on both servers.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING

import orjson

from pyjs.archive.entries import MAGIC
from pyjs.archive.frames import BadArchive, FrameReader
from pyjs.base.clock import NS_PER_S
from pyjs.base.errors import NONSENSE, StoreFailed
from pyjs.base.gotext import time_text
from pyjs.base.nuid import nuid
from pyjs.jetstream import advisories, errcodes
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.manage.stream_info import stream_info
from pyjs.jetstream.transfer.building import StreamBuild
from pyjs.jetstream.transfer.old_reading import TarBuilder
from pyjs.jetstream.transfer.reading import ArchiveBuilder

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from pyjs.base.timers import Timer
    from pyjs.core.chore import Chore, Step
    from pyjs.core.sink import Request
    from pyjs.jetstream.config.stream import StreamConfig
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.stream.stream import Stream
    from pyjs.jetstream.transfer.building import Join

STALL_NS = 5 * NS_PER_S
QUEUED_MAX = 64 << 20  # bytes of waiting chunks; a client that waits for answers sends much less
CHUNK_SIZE = 256  # bytes that a waiting chunk occupies in addition to its payload
RESPONSE = "io.nats.jetstream.api.v1.stream_create_response"


class Input(Enum):
    """The state of the client's chunks."""

    OPEN = "open"
    ENDED = "ended"  # the empty chunk has arrived
    STALLED = "stalled"  # no chunk has arrived for five seconds
    CLOSED = "closed"  # the restore has ended


class Restore:
    """One restore: the chunks of an archive from a client, and the stream that is built from them."""

    def __init__(
        self, js: JetStream, config: StreamConfig, client: dict[str, object] | None, join: Join | None = None
    ) -> None:
        """Prepare a restore; in a cluster, `join` adds the complete stream to the cluster."""
        self._js = js
        self._join = join
        self._config = config
        self._client = client
        self._subject = f"$JS.SNAPSHOT.RESTORE.{config.name}.{nuid(js.shared.rng)}"
        self._start_ns = js.shared.clock.wall_ns()
        self._input = Input.OPEN
        self._queue: deque[tuple[bytes, bytes]] = deque()  # (payload, reply) of each chunk
        self._queued = 0  # bytes in the queue
        self._total = 0  # bytes received
        self._heard_ns = js.shared.clock.now_ns()
        self._reply = b""  # reply subject of the chunk that is being processed
        self._parked: Chore | None = None
        self._timer: Timer | None = None

    def begin(self) -> str:
        """Begin to receive chunks of the archive; return the subject to which the client publishes them."""
        self._subscription = self._js.account.subscribe_handler(self._subject.encode(), self._on_chunk)
        self._log("Starting restore")
        self._tell("create", {})
        self._arm()
        self._js.account.turn.go_on(self._steps())
        return self._subject

    def _steps(self) -> Iterator[Step]:
        """Build the stream, answer, and publish the advisory; after an error, remove everything."""
        build = StreamBuild(self._js, self._config, self._join)
        try:
            stream = yield from self._build(build)
        except (BadArchive, StoreFailed, ApiError, OSError, MemoryError, *NONSENSE) as error:
            self._close(build)
            if self._input is not Input.STALLED:
                self._refuse(error)
            return
        except Exception:  # an error in this program, which the scheduler logs
            self._close(build)
            raise
        self._close(build)
        self._log(f"Completed restore of {self._total} bytes")
        self._finish(stream_info(self._js, stream, domain=False))

    def _close(self, build: StreamBuild) -> None:
        build.close()
        self._js.account.unsubscribe(self._subscription)
        if self._timer is not None:
            self._timer.cancel()
        if self._input is not Input.STALLED:
            self._input = Input.CLOSED
        self._queue.clear()

    def _build(self, build: StreamBuild) -> Generator[Step, None, Stream]:
        frames, head = FrameReader(), b""
        builder: ArchiveBuilder | TarBuilder | None = None  # None: too few bytes to know the version
        while (payload := (yield from self._next_chunk())) is not None:
            for data in frames.add(payload):
                if builder is None:
                    data = head = head + data
                    builder = _builder_for(head, build)
                if builder is not None:
                    yield from builder.take(data)
                yield None
            self._js.account.send(self._reply, b"")
            self._reply = b""
        if builder is None or not frames.is_between:
            raise BadArchive("the archive ends within a frame")
        return (yield from builder.finish())

    def _next_chunk(self) -> Generator[Step, None, bytes | None]:
        """Wait for a chunk; return its payload, or None at the end of the archive.

        Raises:
            BadArchive: the client is stalled, did not name a reply subject, or did not wait for answers.
        """
        while not self._queue:
            if self._input is Input.STALLED:
                raise BadArchive("the restore is stalled")

            def park(chore: Chore) -> None:
                self._parked = chore

            yield park
        payload, self._reply = self._queue.popleft()
        self._queued -= len(payload) + CHUNK_SIZE
        if not self._reply:
            raise BadArchive(f"restore for stream '{self._path()}' requires reply subject for each chunk")
        if self._queued > QUEUED_MAX:
            raise BadArchive(f"{self._queued} bytes of chunks were sent before their answers")
        return payload or None

    def _on_chunk(self, request: Request) -> None:
        if self._input is not Input.OPEN:
            return
        self._queue.append((request.payload, request.reply))
        self._queued += len(request.payload) + CHUNK_SIZE
        self._total += len(request.payload)
        self._heard_ns = self._js.shared.clock.now_ns()
        if not request.payload or self._queued > QUEUED_MAX:
            self._input = Input.ENDED
        self._wake()

    def _wake(self) -> None:
        chore, self._parked = self._parked, None
        if chore is not None:
            self._js.account.turn.chores.append(chore)

    # -- the timeout of a silent client --------------------------------------------------------------------

    def _arm(self) -> None:
        self._timer = self._js.shared.timers.at(self._heard_ns + STALL_NS, self._look)

    def _look(self) -> None:
        """End a restore whose client sent no chunk in time; time for processing earlier chunks does not count."""
        if self._input is not Input.OPEN:
            return
        if self._parked is None:
            self._heard_ns = self._js.shared.clock.now_ns()
        if self._js.shared.clock.now_ns() < self._heard_ns + STALL_NS:
            self._arm()
            return
        self._js.shared.log.warn(f"restore for stream '{self._path()}' is stalled")
        self._input = Input.STALLED
        self._wake()

    # -- answers -------------------------------------------------------------------------------------------

    def _refuse(self, error: Exception) -> None:
        self._js.shared.log.warn(f"Restore failed for stream '{self._path()}': {error}")
        refusal = error if isinstance(error, ApiError) else errcodes.STREAM_RESTORE.error(err=error)
        self._finish({"error": refusal.as_json()})

    def _finish(self, fields: dict[str, object]) -> None:
        start, end = time_text(self._start_ns), time_text(self._js.shared.clock.wall_ns())
        self._tell("complete", {"start": start, "end": end, "bytes": self._total})
        if self._reply:
            self._js.account.send(self._reply, orjson.dumps({"type": RESPONSE} | fields))

    def _path(self) -> str:
        return f"{self._js.account.name} > {self._config.name}"

    def _log(self, text: str) -> None:
        self._js.shared.log.info(f"{text} for stream '{self._path()}'")

    def _tell(self, what: str, fields: dict[str, object]) -> None:
        """Publish an advisory, if it has a subscriber."""
        js, name = self._js, self._config.name
        subject = f"$JS.EVENT.ADVISORY.STREAM.RESTORE_{what.upper()}.{name}".encode()
        if js.account.has_interest(subject):
            client: dict[str, object] = {"client": self._client} if self._client else {}
            kind, now_ns = f"advisory.v1.restore_{what}", js.shared.clock.wall_ns()
            fields = {"stream": name} | fields | client
            advisories.publish(js.account, js.shared.rng, subject, kind, now_ns, fields, js.options.domain)


def _builder_for(head: bytes, build: StreamBuild) -> ArchiveBuilder | TarBuilder | None:
    """Return the builder for an archive that begins with `head`, or None if more bytes are needed to choose."""
    if len(head) < len(MAGIC):
        return None
    return ArchiveBuilder(build) if head.startswith(MAGIC) else TarBuilder(build)
