"""A node on a virtual clock, with clients that exchange bytes with it: no socket, no thread, no waiting.

`RawClient.send` passes one read to the node and runs the node's turns; `take` then returns the answer. Only `advance`
changes the time, so a test of a timeout of one day is as fast as a test of one second.

    with VirtualNode(jetstream={"store_dir": tmp_path}) as node:
        client = node.client()
        client.send(b"SUB greet 1\r\nPUB greet 2\r\nhi\r\n")
        assert client.payloads() == [b"hi"]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyjs.aio.configuration import options_from, wants_scratch
from pyjs.base.clock import NS_PER_MS, VirtualClock
from pyjs.base.disk import OsDisk
from pyjs.base.log import ListLog
from pyjs.base.rng import SeededRng
from pyjs.core.link import Link, Peer
from pyjs.node import Node
from pyjs.server.system.scratch import ScratchStore, UnsyncedDisk
from pyjs.server.threads.io_thread import result_of

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self, Unpack

    from pyjs.aio.configuration import Source
    from pyjs.aio.keys import ConfigKeys

CONNECT = b'{"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"protocol":1}'


class MemoryLink(Link):
    """A link without a socket, which collects the bytes that the session writes."""

    def __init__(self) -> None:
        self.data = b""  # bytes that were written and not taken yet
        self.closed = False
        self.aborted = False
        self.reading = True  # False: the session has paused its input
        self.unsent = 0  # bytes that a slow client has not read yet; set by tests

    def write(self, data: bytes) -> None:
        """Append `data`."""
        self.data += data

    def close(self) -> None:
        """Record that the session closed the link."""
        self.closed = True

    def abort(self) -> None:
        """Record that the session aborted the link; unlike a real link, keep unsent bytes."""
        self.closed = self.aborted = True

    def pending_size(self) -> int:
        """Return `unsent`, the number of bytes that a slow client has not read yet."""
        return self.unsent

    def pause_reading(self) -> None:
        """Record that the session paused its input."""
        self.reading = False

    def resume_reading(self) -> None:
        """Record that the session resumed its input."""
        self.reading = True


@dataclass(frozen=True)
class Frame:
    """One message (MSG or HMSG) that a client received."""

    subject: bytes
    sid: bytes
    reply: bytes
    headers: bytes
    payload: bytes


class RawClient:
    """A client of a VirtualNode that sends and receives raw bytes."""

    def __init__(self, node: VirtualNode, connect: bytes | None) -> None:
        self.node = node
        self.link = MemoryLink()
        self.session = node.node.open_session(Peer("127.0.0.1", 50000), self.link)
        node.turn()
        self.info = self.link.data
        self.link.data = b""
        if connect is not None:
            self.send(b"CONNECT " + connect + b"\r\nPING\r\n")
            self.take()

    def send(self, data: bytes) -> None:
        """Pass `data` to the session as one read, and run the node's turns."""
        buffer = bytearray(data)
        self.session.receive_buffer(buffer, len(data))
        buffer[:] = bytes(len(data))  # as on a real connection, where the next read overwrites the buffer
        self.node.turn()

    def take(self) -> bytes:
        """Return the bytes that the session has written since the last call."""
        data, self.link.data = self.link.data, b""
        return data

    def frames(self) -> list[Frame]:
        """Take the bytes as `take` does, and return the messages in them; other lines are skipped."""
        data, out, at = self.take(), [], 0
        while at < len(data):
            end = data.find(b"\r\n", at)
            words = data[at : end if end >= 0 else len(data)].split()
            at = end + 2 if end >= 0 else len(data)
            if not words or words[0] not in (b"MSG", b"HMSG"):
                continue
            with_headers = words[0] == b"HMSG"
            fixed = 5 if with_headers else 4
            reply = words[3] if len(words) > fixed else b""
            size = int(words[-1])
            split = int(words[-2]) if with_headers else 0
            body = data[at : at + size]
            at += size + 2
            out.append(Frame(words[1], words[2], reply, body[:split], body[split:]))
        return out

    def payloads(self) -> list[bytes]:
        """Take the messages as `frames` does, and return their payloads."""
        return [frame.payload for frame in self.frames()]

    def request(self, subject: bytes, payload: bytes = b"", headers: bytes = b"") -> Frame:
        """Publish a request with an inbox as its reply subject, and return the only answer.

        Raises:
            AssertionError: there is no answer, or more than one.
        """
        self.send(b"SUB _INBOX.rq.* rq\r\n")
        self.take()
        if headers:
            head = b"HPUB %b _INBOX.rq.1 %d %d\r\n" % (subject, len(headers), len(headers) + len(payload))
        else:
            head = b"PUB %b _INBOX.rq.1 %d\r\n" % (subject, len(payload))
        self.send(head + headers + payload + b"\r\n")
        answers = [frame for frame in self.frames() if frame.sid == b"rq"]
        self.send(b"UNSUB rq\r\n")
        assert len(answers) == 1, answers
        return answers[0]


class VirtualNode:
    """A node, its clock, and its log."""

    def __init__(
        self,
        config: Source | None = None,
        *,
        seed: int = 1,
        now_ns: int | None = None,
        **keys: Unpack[ConfigKeys],
    ) -> None:
        """Create the node; `with` starts it.

        `config` and `keys` are those of pyjs.aio.Server; without them the node has no JetStream. All random numbers
        are derived from `seed`, and time begins at `now_ns`.
        """
        self.options = options_from(config, dict(keys), {})
        self.scratch = ScratchStore() if wants_scratch(config, self.options) else None
        if self.scratch is not None:
            self.options.jetstream.store_dir = self.scratch.path
        self.clock = VirtualClock() if now_ns is None else VirtualClock(now_ns)
        self.log = ListLog()
        self.hold_jobs = False  # True: queued jobs do not run, as if their threads were busy
        disk = OsDisk() if self.scratch is None else UnsyncedDisk()
        self.node = Node(self.options, self.clock, SeededRng(seed), disk, self.log)

    def __enter__(self) -> Self:
        if self.node.trust is not None:
            self.node.start_trust()
        self.node.start_jetstream()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.node.stop()
        if self.scratch is not None:
            self.scratch.remove()

    def client(self, connect: bytes | None = CONNECT) -> RawClient:
        """Open a connection, and send `connect` as the arguments of CONNECT unless it is None."""
        return RawClient(self, connect)

    def turn(self) -> None:
        """Run turns and queued jobs until the node has no work left."""
        self.node.turn(self.clock.now_ns())
        while self.run_jobs() or self.node.has_work:  # jobs first: work may be polling for the end of one
            self.node.turn(self.clock.now_ns())

    def run_jobs(self) -> bool:
        """Run the queued jobs, unless `hold_jobs` is set; return whether there were any."""
        state = self.node.turn_state
        if self.hold_jobs or not state.jobs:
            return False
        for job in state.take("jobs"):
            state.finished.append((job, result_of(job.run)))
        return True

    def advance(self, milliseconds: int = 0, seconds: int = 0) -> None:
        """Advance the clock; run a turn at every deadline up to the new time."""
        end_ns = self.clock.now_ns() + (milliseconds + 1000 * seconds) * NS_PER_MS
        while (deadline := self.node.next_deadline_ns()) is not None and deadline <= end_ns:
            self.clock.advance(max(0, deadline - self.clock.now_ns()))
            self.turn()
        self.clock.advance(end_ns - self.clock.now_ns())
        self.turn()
