"""Keys chosen by clients: clients cannot know which of them collide in the server's hash tables."""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance.harness.process import ServerProcess, our_command
from tests.support.raw import RawClient

from pyjs.base.log import ListLog
from pyjs.base.table import HASH_SEED_SIZE
from pyjs.config.options import Options
from pyjs.node import Node
from pyjs.server import server as server_module
from pyjs.server.server import Server

COUNT = 12_000
TIMES_MAX = (
    8  # how much slower colliding keys may be than others; without a seed they are a hundred times slower
)
SECRETS = (
    0xC6668D9433DF0338,
    0xC2B2AE3D27D4EB4F,
)  # secrets of a process without a seed, as in base/table.pyx

# Prints the ratio of the times that messages of chosen and of other subjects take, with a seed and without.
SCRIPT = """
import sys, time
from pyjs.base.table import set_hash_seed
from pyjs.store.memory import MemStore
seed, front, behind, count = bytes.fromhex(sys.argv[1]), *map(bytes.fromhex, sys.argv[2:4]), int(sys.argv[4])
assert not seed or set_hash_seed(seed)
def seconds(front, behind):
    store, began = MemStore(), time.process_time()
    for number in range(count):
        store.store(front + b"%08d" % number + behind, b"", b"", 1)
    return time.process_time() - began
seconds(b"", b"-warm-up")
print(seconds(front, behind) / seconds(b"", b"-another"))
"""


def colliding(secrets: tuple[int, int]) -> list[tuple[bytes, bytes]]:
    """Return bytes before and after a number that make a factor of the hash zero with `secrets`."""
    return [(b"", struct.pack("<Q", secrets[0])), (struct.pack("<Q", secrets[1]), b"")]


def times_longer(seed: bytes, front: bytes, behind: bytes) -> float:
    """Return how many times longer chosen subjects take than others, in a process with that seed."""
    args = [sys.executable, "-c", SCRIPT, seed.hex(), front.hex(), behind.hex(), str(COUNT)]
    return float(subprocess.run(args, check=True, capture_output=True, timeout=100).stdout)


@pytest.mark.parametrize("which", [0, 1])
def test_subjects_that_collide_under_one_seed_are_as_fast_as_others_under_another(which: int) -> None:
    known = bytes(range(0x41, 0x51))
    front, behind = colliding(struct.unpack("<QQ", known))[which]

    assert times_longer(known, front, behind) > TIMES_MAX
    assert times_longer(bytes(reversed(known)), front, behind) < TIMES_MAX


@pytest.mark.parametrize("which", [0, 1])
def test_no_part_of_the_hash_is_known_that_is_not_of_the_seed(which: int) -> None:
    front, behind = colliding(SECRETS)[which]

    assert times_longer(b"", front, behind) > TIMES_MAX
    assert times_longer(b"another seed 16b", front, behind) < TIMES_MAX


async def test_each_server_takes_a_seed_of_its_own_before_its_node_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[bytes | str] = []
    monkeypatch.setattr(server_module, "set_hash_seed", seen.append)
    monkeypatch.setattr(server_module, "Node", lambda *given: seen.append("a node") or Node(*given))
    for _ in range(2):
        server = Server(Options(host="127.0.0.1", port=-1), ListLog())
        await server.start()
        await server.stop()

    first, _, second, _ = seen
    assert seen[1::2] == ["a node", "a node"]
    assert len(first) == len(second) == HASH_SEED_SIZE
    assert first != second


@pytest.fixture
def client(tmp_path: Path) -> Iterator[RawClient]:
    server = ServerProcess(our_command(), 'jetstream: {store_dir: "<<store>>"}', tmp_path, with_http=False)
    server.start()
    client = RawClient(server.port)
    yield client
    client.close()
    server.stop()


@pytest.mark.parametrize("which", [0, 1])
def test_a_server_stores_subjects_that_collide_without_a_seed_as_fast_as_others(
    client: RawClient, which: int
) -> None:
    client.api("STREAM.CREATE.S", name="S", subjects=["*"], storage="memory")
    seconds = []
    for front, behind in (b"", b"-warm-up"), (b"", b"-another"), colliding(SECRETS)[which]:
        began = time.perf_counter()
        client.send(b"".join(b"PUB %b%08d%b 0\r\n\r\n" % (front, number, behind) for number in range(COUNT)))
        client.fence()
        seconds.append(time.perf_counter() - began)

    assert client.api("STREAM.INFO.S")["state"]["num_subjects"] == 3 * COUNT
    assert seconds[2] < TIMES_MAX * seconds[1]
