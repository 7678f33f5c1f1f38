"""Random histories of mirrors and sources on three servers: at the end each copy has its origin's messages once.

Origins have deletes, purges and roll-ups, or are work queues; sources have filters and transforms; messages of the
copies are deleted. Meanwhile leaders change and servers end, also during a write.

`python -m tests.unit.jetstream.member.test_copy_histories FIRST LAST` plays more of them.
"""

from __future__ import annotations

import base64
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from raft.tests.conftest import is_here

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

from tests.support.disk import Crash
from tests.support.jetnet import LOG_FILE_SIZE, TRIO, JetNet, JetServer
from tests.unit.jetstream.stream.replicated.test_crash import DyingDisk

from pyjs.base.clock import NS_PER_MS
from pyjs.jetstream.member.member_node import MemberNode
from pyjs.store.store import StoredMessage, StreamStore

STEPS = 40
REST_S = 90  # seconds of virtual time
SAMPLE = range(3)
Copied = tuple[str, int]  # source stream and sequence in it


class MortalServer(JetServer):
    """A server whose process ends when its disk fails."""

    def wake(self) -> None:
        """Run turns; the disk may end the server in any of them."""
        with suppress(Crash):
            super().wake()
        disk = self.node.disk
        if isinstance(disk, DyingDisk) and disk.dead and self.alive and self.name in self.net.servers:
            self.net.crash(self.name)  # type: ignore[attr-defined]

    turn = wake


class MortalNet(JetNet):
    """A network of such servers."""

    server = MortalServer

    def disk(self) -> DyingDisk:
        """Return a disk for a server that is being started."""
        return DyingDisk()


class History:
    """One random history."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.net = MortalNet(directory, seed)
        self.rng = Random(seed)
        self.net.trio()
        self.sent = 0
        self.deaths = 0
        self.gone: set[Copied] = set()  # copies of S that were deleted and must not reappear
        self.doubtful: set[Copied] = set()  # copies of S that may have been deleted
        rng = self.rng
        self.create("A", subjects=["a.>"], num_replicas=rng.choice((1, 3)))
        self.create("B", subjects=["b.>"], num_replicas=3, allow_rollup_hdrs=True)
        self.create("W", subjects=["w.>"], num_replicas=rng.choice((1, 3)), retention="workqueue")
        transforms = [{"src": "a.*", "dest": "moved.{{wildcard(1)}}"}]
        sources = [
            {"name": "A", "subject_transforms": transforms},
            {"name": "B", "filter_subject": "b.1"},
            {"name": "W"},
        ]
        self.create("S", num_replicas=3, sources=sources)
        self.create("M", num_replicas=rng.choice((2, 3)), mirror={"name": "B"})

    def create(self, name: str, **options: Any) -> None:
        """Create a stream."""
        body = {"name": name, **options}
        (answer,) = self.net.answers(self.client(), f"STREAM.CREATE.{name}", body, wait_ms=2000)
        assert "config" in answer, answer

    def client(self) -> Any:
        """Return a client of a running server."""
        return self.rng.choice(self.net.living()).client()

    def ask(self, subject: str, body: object = None) -> dict[str, Any]:
        """Return the answer to a request, or {} if there is none."""
        found = self.net.answers(self.client(), subject, body, wait_ms=60)
        return found[0] if found else {}

    def step(self) -> None:
        """Do a random operation."""
        choices: list[tuple[float, Callable[[], object]]] = [
            (0.45, self.publish),
            (0.55, self.delete),
            (0.6, self.purge),
            (0.75, lambda: self.ask(f"STREAM.LEADER.STEPDOWN.{self.rng.choice('ABSMW')}")),
            (0.85, self.end_one),
            (1, self.begin_one),
        ]
        roll = self.rng.random()
        next(do for most, do in choices if roll <= most)()
        self.net.run(self.rng.choice((0, 1, 5, 50, 300, 1500)) * NS_PER_MS)

    def publish(self) -> None:
        """Publish some messages without waiting for the answers."""
        lines = []
        for _ in range(self.rng.choice((1, 5, 60))):
            self.sent += 1
            subject = b"%b.%d" % (self.rng.choice((b"a", b"b", b"w")), self.rng.randrange(3))
            text = b"%d" % self.sent
            if subject[:1] == b"b" and self.rng.random() < 0.02:
                block = b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n"
                size = len(block)
                lines.append(b"HPUB %b %d %d\r\n%b%b\r\n" % (subject, size, size + len(text), block, text))
            else:
                lines.append(b"PUB %b %d\r\n%b\r\n" % (subject, len(text), text))
        self.client().send(b"".join(lines))

    def delete(self) -> None:
        """Delete a message from a source stream or from the copies."""
        name = self.rng.choice("ABS")
        state = self.ask(f"STREAM.INFO.{name}").get("state", {})
        if not state.get("messages"):
            return
        seq = self.rng.randint(state["first_seq"], state["last_seq"])
        found = self.ask(f"STREAM.MSG.GET.{name}", {"seq": seq}).get("message")
        if found is None:
            return
        answer = self.ask(f"STREAM.MSG.DELETE.{name}", {"seq": seq})
        if name == "S":
            copied = source_of(base64.b64decode(found["hdrs"]))
            (self.gone if answer.get("success") else self.doubtful).add(copied)

    def purge(self) -> None:
        """Purge all but some messages of a subject from a source stream."""
        name = self.rng.choice("AB")
        self.ask(f"STREAM.PURGE.{name}", {"filter": f"{name.lower()}.1", "keep": 5})

    def end_one(self) -> None:
        """Kill a server, now or at one of its next writes."""
        if len(self.net.living()) < 3:
            return
        server = self.rng.choice(self.net.living())
        self.deaths += 1
        if self.rng.random() < 0.3:
            self.net.crash(server.name)
            return
        disk = server.node.disk
        assert isinstance(disk, DyingDisk)
        disk.at, disk.calls = self.rng.randrange(60), 0
        self.publish()

    def begin_one(self) -> None:
        """Restart a server that was killed."""
        for name in TRIO:
            if name not in self.net.servers:
                self.net.begin(name)

    def rest(self) -> None:
        """Run all servers until no message is missing and none arrives any more."""
        self.begin_one()
        for server in self.net.living():
            assert isinstance(server.node.disk, DyingDisk)
            server.node.disk.at = -1
        self.net.ready()
        for _ in range(REST_S):
            self.net.run(1000 * NS_PER_MS)
            if self.is_whole():
                break
        self.net.run(3000 * NS_PER_MS)

    def is_whole(self) -> bool:
        """Return whether all replicas of all copies have all messages."""
        origins = {name: self.messages(name)[0] for name in "AB"}
        wanted = {(name, each.seq) for name in "AB" for each in origins[name] if is_sourced(each)}
        there = [{source_of(each.headers) for each in found} for found in self.messages("S")]
        mirrored = [{each.seq for each in found} for found in self.messages("M")]
        queues = self.stores("W")
        wanted |= {("W", seq) for seq in range(1, queues[0].last_seq + 1)}
        if any(queue.msgs or queue.last_seq != queues[0].last_seq for queue in queues):
            return False
        return all(wanted - self.gone - self.doubtful <= found for found in there) and all(
            {each.seq for each in origins["B"]} <= found for found in mirrored
        )

    def messages(self, name: str) -> list[list[StoredMessage]]:
        """Return the messages of each replica."""
        return [stored(store) for store in self.stores(name)]

    def stores(self, name: str) -> list[StreamStore]:
        """Return the stores of a stream."""
        found = []
        for server in self.net.living():
            assert server.node.jetstream is not None
            streams = server.node.jetstream.accounts["$G"].streams
            if name in streams:
                found.append(streams[name].store)
        return found

    def check(self) -> None:
        """Check that each copy has each message of its origin once, in order, and that its replicas are equal."""
        assert self.is_whole()
        for name in "ABSM":
            texts = [[shown(each) for each in found] for found in self.messages(name)]
            assert all(each == texts[0] for each in texts[1:]), name
        originals = {(name, each.seq): each for name in "AB" for each in self.messages(name)[0]}
        last = {"A": 0, "B": 0, "W": 0}
        for copy in self.messages("S")[0]:
            name, seq = source = source_of(copy.headers)
            assert seq > last[name], source
            assert source not in self.gone
            last[name] = seq
            original = originals.get(source)
            if original is not None:
                moved = b"moved." + original.subject[2:] if name == "A" else original.subject
                assert (copy.subject, copy.payload) == (moved, original.payload)
        mirrored = {each.seq: each for each in self.messages("M")[0]}
        for original in self.messages("B")[0]:
            assert shown(mirrored[original.seq]) == shown(original)


def stored(store: StreamStore) -> list[StoredMessage]:
    """Return the messages of a store."""
    found = [store.get(seq) for seq in range(max(store.first_seq, 1), store.last_seq + 1)]
    return [each for each in found if each is not None]


def shown(message: StoredMessage) -> tuple[int, int, bytes, bytes, bytes]:
    """Return all fields of a message."""
    return message.seq, message.ts, message.subject, message.headers, message.payload


def is_sourced(message: StoredMessage) -> bool:
    """Return whether the sources take a message of an origin."""
    return message.subject != b"b.0" and message.subject != b"b.2"


def source_of(headers: bytes) -> Copied:
    """Return the source stream of a copy, and its sequence there."""
    name, seq, *_ = headers.partition(b"Nats-Stream-Source: ")[2].split(b"\r\n")[0].split(b" ")
    return name.decode(), int(seq)


def play(seed: int, directory: Path) -> History:
    """Play one history."""
    history = History(directory, seed)
    for _ in range(STEPS):
        history.step()
    history.rest()
    history.check()
    history.net.stop()
    return history


def test_copies_are_whole_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemberNode, "log_file_size", LOG_FILE_SIZE)
    deaths = 0
    for seed in SAMPLE:
        try:
            deaths += play(seed, tmp_path / f"{seed}").deaths
        except Exception as error:
            pytest.fail(f"seed {seed}: {error!r}")
    assert deaths > len(SAMPLE)


if __name__ == "__main__":
    MemberNode.log_file_size = LOG_FILE_SIZE
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        with tempfile.TemporaryDirectory() as scratch:
            try:
                play(number, Path(scratch))
            except BaseException:
                print(f"seed {number}", flush=True)
                raise
