"""The faults of a cycle: each affects one server, or all, and is repaired later."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from tests.conformance.harness.cluster import NAMES
from tests.conformance.harness.process import ServerFailed
from tests.failover.trio import Trio

HOUR_NS = 3_600 * 10**9
FILLER = "filler"
LEFT = 1 << 20  # bytes left on the disk; written page by page, so that the last write is refused
Act = Callable[[Trio, str, random.Random], Awaitable[None]]


async def kill(trio: Trio, victim: str, _rng: random.Random) -> None:
    """Kill the server with SIGKILL."""
    trio.kill(victim)


async def start(trio: Trio, victim: str, _rng: random.Random) -> None:
    """Start the server again."""
    await trio.start(victim)


async def stop(trio: Trio, victim: str, _rng: random.Random) -> None:
    """Stop the server with SIGTERM."""
    await asyncio.to_thread(trio.servers[victim].stop)


async def pause(trio: Trio, victim: str, _rng: random.Random) -> None:
    """Suspend the process of the server."""
    trio.servers[victim].signal("STOP")


async def resume(trio: Trio, victim: str, _rng: random.Random) -> None:
    """Resume the process of the server."""
    trio.servers[victim].signal("CONT")


async def isolate(trio: Trio, victim: str, _rng: random.Random) -> None:
    """Disconnect the server from the others, but not from clients."""
    assert trio.network is not None
    trio.network.isolate(victim)


async def mute(trio: Trio, victim: str, rng: random.Random) -> None:
    """Drop either all packets that the server sends to the others, or all packets that the others send to it."""
    assert trio.network is not None
    is_deaf = rng.random() < 0.5
    for other in NAMES:
        if other != victim:
            trio.network.cut(*((other, victim) if is_deaf else (victim, other)))


async def split(trio: Trio, victim: str, rng: random.Random) -> None:
    """Cut the connection to one of the others; the third server is still connected to both."""
    assert trio.network is not None
    other = rng.choice([name for name in NAMES if name != victim])
    trio.network.cut(victim, other)
    trio.network.cut(other, victim)


async def mend(trio: Trio, _victim: str, _rng: random.Random) -> None:
    """Repair all connections."""
    assert trio.network is not None
    trio.network.mend()


async def cut_power(trio: Trio, _victim: str, _rng: random.Random) -> None:
    """Kill all servers at once and lose unsynced data."""
    await asyncio.to_thread(trio.cut_power)


async def start_all(trio: Trio, _victim: str, _rng: random.Random) -> None:
    """Start all servers."""
    await trio.start(*NAMES)


async def jump(trio: Trio, victim: str, rng: random.Random) -> None:
    """Change the wall clock of the server by up to an hour."""
    trio.clocks[victim].step_clock(rng.randint(-HOUR_NS, HOUR_NS))


async def stay(_trio: Trio, _victim: str, _rng: random.Random) -> None:
    """Do nothing."""


async def fill(trio: Trio, victim: str, _rng: random.Random) -> None:
    """Fill the disk of the server."""
    disk = trio.disks[victim].path
    free = os.statvfs(disk)
    with (disk / FILLER).open("wb", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, max(1, free.f_bavail * free.f_frsize - LEFT))
        with suppress(OSError):
            file.seek(0, os.SEEK_END)
            while file.write(bytes(4096)):
                pass


async def clear(trio: Trio, victim: str, _rng: random.Random) -> None:
    """Free space on the disk of the server again."""
    (trio.disks[victim].path / FILLER).unlink()


async def flip(trio: Trio, victim: str, rng: random.Random) -> None:
    """Kill the server and flip a bit in one of its files."""
    trio.kill(victim)
    file = rng.choice(_files(trio.store(victim)))
    data = bytearray(file.read_bytes())
    at = rng.randrange(max(1, len(data.rstrip(b"\0"))))  # the unused rest of a file has no effect
    data[at] ^= 1 << rng.randrange(8)
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(data[at : at + 1])
    trio.damages.append(f"{victim}: flip {file.relative_to(trio.store(victim))} at {at} of {len(data)}")


async def remove(trio: Trio, victim: str, rng: random.Random) -> None:
    """Kill the server and remove one of its files."""
    trio.kill(victim)
    file = rng.choice(_files(trio.store(victim)))
    file.unlink()
    trio.damages.append(f"{victim}: remove {file.relative_to(trio.store(victim))}")


async def start_damaged(trio: Trio, victim: str, _rng: random.Random) -> None:
    """Start the server; if it refuses its store, give it an empty one, as an operator would."""
    try:
        await trio.start(victim)
    except ServerFailed as error:
        trio.refused_starts.append(f"{trio.damages[-1]}: {str(error).splitlines()[-8:]}")
        trio.wipe(victim)
        await trio.start(victim)


def _files(store: Path) -> list[Path]:
    """Return the files of a store that are not empty."""
    return sorted(path for path in store.rglob("*") if path.is_file() and path.stat().st_size)


FAULTS: dict[str, tuple[Act, Act]] = {
    "kill": (kill, start),
    "stop": (stop, start),
    "pause": (pause, resume),
    "isolate": (isolate, mend),
    "mute": (mute, mend),
    "split": (split, mend),
    "power": (cut_power, start_all),
    "clock": (jump, stay),
    "full": (fill, clear),
    "flip": (flip, start_damaged),
    "remove": (remove, start_damaged),
}
NETWORK_FAULTS = ("isolate", "mute", "split")
SILENT_FAULTS = ("clock",)  # faults that do not change the leader
DISK_FAULTS = ("power", "full")
EVERYONE = ("power",)


def possible(wanted: list[str], trio: Trio) -> list[str]:
    """Return those of the wanted faults that are possible on this machine."""
    lacks = {
        *(NETWORK_FAULTS if trio.network is None else ()),
        *(DISK_FAULTS if len(trio.disks) < len(NAMES) else ()),
        *(("clock",) if not trio.clocks else ()),
    }
    found = [name for name in wanted if name not in lacks]
    if not found:
        raise SystemExit(
            f"none of {', '.join(wanted)} can be made here: root and network namespaces are needed"
        )
    return found
