"""A store directory that the server itself made, its contents, and ways to damage it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.unit.jetstream.jsfixture import JetStreamFixture
from tests.unit.store.segment_files import DELETES, records

from pyjs.base.disk import OsDisk
from pyjs.config.options import JetStreamOptions, Options
from pyjs.fsck.check import StoreCheck
from pyjs.fsck.findings import StoreReport
from pyjs.fsck.progress import Progress
from pyjs.store.crypt.keys import CHACHA, KeyRing
from pyjs.store.file.store import FileStore

STREAM = "jetstream/$G/streams/S"
MESSAGES = 90
KEY = "the key of the tests"
CIPHERS = {"plain": "", "s2": "", "chacha": "chacha", "aes": "aes", "s2 and chacha": "chacha"}
Damage = Callable[[Path], None]


def start(root: Path, encoding: str = "plain") -> JetStreamFixture:
    """Start a server on `root`, which is its store_dir; it encrypts if `encoding` says so."""
    options = Options()
    options.jetstream = JetStreamOptions(enabled=True, store_dir=str(root / "jetstream"))
    if CIPHERS[encoding]:
        options.jetstream.key, options.jetstream.cipher = KEY, CIPHERS[encoding]
    return JetStreamFixture(options)


def fill(root: Path, encoding: str = "plain") -> None:
    """Create a stream of several segments with removed messages, a source, and two consumers with state."""
    js = start(root, encoding)
    compression = "s2" if "s2" in encoding else "none"
    js.add("ORIGIN", subjects=["o.>"], storage="file")
    js.add(
        "S",
        subjects=["s.>"],
        storage="file",
        max_bytes=250_000,
        sources=[{"name": "ORIGIN"}],
        max_msgs=MESSAGES,
        duplicate_window=120_000_000_000,
        compression=compression,
    )
    for name in ("first", "second"):
        config = {"durable_name": name, "ack_policy": "explicit"}
        js.api(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})
    js.publish("o.1", b"copied")
    js.turn()
    for number in range(MESSAGES + 2):
        js.publish(f"s.{number % 3}", b"%03d" % number + b"x" * 1500, Nats_Msg_Id=f"id-{number}")
    for seq in (7, 50, 80):
        js.api("STREAM.MSG.DELETE.S", {"seq": seq})
    js.api("STREAM.MSG.DELETE.S", {"seq": 9, "no_erase": True})
    for name in ("first", "second"):
        js.user.send(b"SUB _INBOX.d d\r\n")
        js.user.send(f"PUB $JS.API.CONSUMER.MSG.NEXT.S.{name} _INBOX.d 2\r\n12\r\n".encode())
        replies = [frame.reply for frame in js.user.frames()]
        for reply in replies[:8]:
            js.user.send(b"PUB %b 4\r\n+ACK\r\n" % reply)
        js.user.send(b"UNSUB d\r\n")
    keep_up(js)
    js.node.stop()


def keep_up(js: JetStreamFixture) -> None:
    """Convert sealed segments to the encoding of their stream."""
    store = js.stream("S").store
    assert isinstance(store, FileStore)
    store.sync_now()
    while (job := store.begin_upkeep()) is not None:
        store.finish_upkeep(job())
    store.sync_now()


def without_indexes(root: Path) -> Path:
    """Remove the index files, so that the next start reads every record."""
    for path in root.rglob("*.idx"):
        path.unlink()
    return root


def served(root: Path, encoding: str = "plain") -> dict[str, Any]:
    """Start a server on a copy of `root` and return what it serves."""
    copy = root.with_name("served")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(root, copy)
    js = start(without_indexes(copy), encoding)
    out: dict[str, Any] = {}
    for name, stream in js.engine.streams.items():
        state = js.state(name)
        out[name] = {
            "config": stream.config,
            "state": {key: value for key, value in state.items() if key != "lost"},
            "lost": stream.store.lost,
            "payloads": js.payloads(name),
            "consumers": {each: consumer_of(js, name, each) for each in sorted(stream.consumers)},
        }
    js.node.stop()
    shutil.rmtree(copy)
    return out


def consumer_of(js: JetStreamFixture, stream: str, name: str) -> dict[str, Any]:
    info = js.api(f"CONSUMER.INFO.{stream}.{name}")
    return {key: info[key] for key in ("delivered", "ack_floor", "num_ack_pending", "num_pending", "config")}


def check(root: Path, encoding: str = "plain", *, repair: bool = False, key: str = KEY) -> StoreReport:
    """Run the check; for an encrypted encoding, with `key`, or without one if it is ""."""
    key_ring = KeyRing(key, CHACHA, os.urandom) if CIPHERS[encoding] and key else None
    return StoreCheck(OsDisk(), str(root), Progress(), repair=repair, key_ring=key_ring).run()


def tree(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return every file and directory with its mode, modification time and contents."""
    found = {}
    for path in sorted(root.rglob("*")):
        stat = path.stat()
        found[str(path.relative_to(root))] = (
            stat.st_mode,
            stat.st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
    return found


# -- damage ----------------------------------------------------------------------------------------------------
def flipped(name: str, at: int) -> Damage:
    """Flip a bit of a file; a negative offset counts from its end."""

    def damage(root: Path) -> None:
        path = root / STREAM / name
        data = bytearray(path.read_bytes())
        data[at] ^= 0x10
        path.write_bytes(data)

    return damage


def flipped_in_removals(name: str, at: int) -> Damage:
    """Flip a bit in the first record of removals in a plain segment."""

    def damage(root: Path) -> None:
        found = [place for place, kind, _ in records((root / STREAM / name).read_bytes()) if kind == DELETES]
        flipped(name, found[0] + at)(root)

    return damage


def overwritten(name: str, at: int, size: int, byte: bytes = b"\0") -> Damage:
    """Overwrite a part of a file."""

    def damage(root: Path) -> None:
        path = root / STREAM / name
        data = path.read_bytes()
        path.write_bytes(data[:at] + byte * size + data[at + size :])

    return damage


def cut(name: str, size: int) -> Damage:
    """Cut `size` bytes off the end of a file."""

    def damage(root: Path) -> None:
        path = root / STREAM / name
        path.write_bytes(path.read_bytes()[:-size])

    return damage


def extended(name: str, data: bytes) -> Damage:
    """Add bytes to the end of a file."""

    def damage(root: Path) -> None:
        path = root / STREAM / name
        path.write_bytes(path.read_bytes() + data)

    return damage


def unwitnessed(damage: Damage) -> Damage:
    """Return the same damage, followed by the removal of all index files."""

    def both(root: Path) -> None:
        damage(root)
        without_indexes(root)

    return both


def removed(*names: str) -> Damage:
    """Remove files."""

    def damage(root: Path) -> None:
        for name in names:
            (root / STREAM / name).unlink()

    return damage


def renamed(old: str, new: str) -> Damage:
    """Rename a file."""

    def damage(root: Path) -> None:
        (root / STREAM / old).rename(root / STREAM / new)

    return damage
