"""Store directories of nats-server, made from archives that nats-server 2.12.8 wrote, and imports of them."""

from __future__ import annotations

import base64
import io
import json
import struct
import tarfile
from pathlib import Path

from tests.support.node import options_with_store

from pyjs.archive.frames import FrameReader
from pyjs.archive.highway import highway_hash
from pyjs.base.clock import VirtualClock
from pyjs.base.disk import Disk, OsDisk
from pyjs.base.rng import SeededRng
from pyjs.config.options import Options
from pyjs.importing.command import Surroundings, run

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden" / "archives" / "nats-server-2.12.8.json").read_bytes()
)
NAMES = ("PURGED", "EMPTY", "QUEUE", "KV_bakery")


def files_of(name: str) -> dict[str, bytes]:
    """Return the files of a stream, by their path below its directory."""
    data = b"".join(FrameReader().add(base64.b64decode(GOLDEN[name]["archive"])))
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        found = {each.name: tar.extractfile(each) for each in tar}
    return {path: file.read() for path, file in found.items() if file is not None}


def block_record(stream: str, number: int, seq: int, payload: bytes, headers: bytes = b"") -> bytes:
    """Return a record of block `number` as nats-server writes it; the subject is `jobs.<seq>`."""
    subject = b"jobs.%d" % seq
    body = (struct.pack("<I", len(headers)) + headers if headers else b"") + payload
    size = 22 + len(subject) + len(body) + 8
    middle = struct.pack("<Qq", seq, 1_700_000_000_000_000_000 + seq)
    check = highway_hash(f"{stream}-{number}".encode(), middle + subject + headers + payload)
    head = struct.pack("<I", size | (1 << 31 if headers else 0)) + middle + struct.pack("<H", len(subject))
    return head + subject + body + check


def write_stream(directory: Path, files: dict[str, bytes]) -> None:
    """Write the files of a stream."""
    for path, data in files.items():
        place = directory / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)


def make_source(root: Path, account: str = "$G", names: tuple[str, ...] = NAMES) -> Path:
    """Write a store directory with these streams; return it."""
    for name in names:
        write_stream(root / "jetstream" / account / "streams" / name, files_of(name))
    return root


class Imports:
    """Runs the command; `out` and `err` are the output of the last run."""

    def __init__(self, directory: Path) -> None:
        self.store = directory / "ours"
        self.options = options_with_store(self.store)
        self.disk: Disk = OsDisk()
        self.holders: list[int] = []
        self.out = self.err = ""

    def load(self, config: str, store_dir: str) -> Options:
        return self.options

    def run(self, *words: str) -> int:
        out, err = io.StringIO(), io.StringIO()
        world = Surroundings(
            self.disk, VirtualClock(), SeededRng(1), out, err, self.load, lambda directory: self.holders
        )
        code = run(["-sd", str(self.store), *words], world)
        self.out, self.err = out.getvalue(), err.getvalue()
        return code

    def left(self) -> list[str]:
        """Return the names of files that an unfinished import leaves."""
        return [path.name for path in self.store.rglob(".deleting-*")]
