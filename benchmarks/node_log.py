"""The cost of the node log: writing entries of 100 messages, and reading a log at a start.

    python benchmarks/node_log.py [--entries 20000] [--size 256] [--directory DIR] [--json FILE]

The figures are the processor time of this process, including the kernel's; for the start also the wall time. An entry
represents 100 messages of 168 bytes. Without --sync nothing is synced.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from pyjs.base.disk import OsDisk
from pyjs.base.log import Log
from pyjs.consensus.log.node_log import NodeLog
from pyjs.consensus.log.records import Membership

MESSAGES, MESSAGE_SIZE = 100, 168
CONF = Membership((1, 2, 3))
COMPACT_EVERY = 256  # number of entries


@dataclass
class Write:
    """The data that the engine gives the log in a turn."""

    group: int
    hard: tuple[int, int, int] | None
    first: int
    entries: list[tuple[int, int, bytes]]


class NoSyncDisk(OsDisk):
    """A disk without syncs: only the processor's work is measured."""

    def sync_file(self, fd: int) -> None:
        """Do nothing."""


def opened(disk: OsDisk, directory: str) -> NodeLog:
    """Return a log that has recovered."""
    log = NodeLog(disk, directory, Log(), time.time_ns())
    for _ in log.recover_steps():
        pass
    return log


def turn(log: NodeLog, writes: list[Write], payload: bytes) -> None:
    """Write and sync the writes of one turn."""
    for write in writes:
        log.write(write, [payload] * len(write.entries))
    log.flush()
    job = log.begin_sync()
    if job is not None:
        log.finish_sync(job, job())


def entries(disk: OsDisk, directory: str, count: int, groups: int, per_group: int) -> float:
    """Return the microseconds per entry, in turns with `per_group` entries of each of `groups` groups."""
    log, payload, body = opened(disk, directory), bytes(MESSAGES * MESSAGE_SIZE), bytes(40)
    for group in range(1, groups + 1):
        log.create(group, f"S{group}", 1 << 32 | 1, CONF, 1, 1)
    log.flush()
    fresh = log.begin_fresh_file()
    if fresh is not None:
        log.finish_fresh_file(fresh, fresh())
    began = time.process_time()
    index = 2
    for _ in range(count // groups // per_group):
        batch = [(1, 1, body)] * per_group
        writes = [Write(group, (1, 0, index - 1), index, batch) for group in range(1, groups + 1)]
        turn(log, writes, payload)
        index += per_group
        if index // COMPACT_EVERY != (index - per_group) // COMPACT_EVERY:
            for group in range(1, groups + 1):
                log.point(group, index - 1, 1, CONF, b"")
    used = time.process_time() - began
    log.close()
    return used * 1e6 / (count // groups // per_group * groups * per_group)


def recovery(disk: OsDisk, directory: str, size: int) -> tuple[float, float]:
    """Return the seconds of wall time and of processor time that reading a log of `size` bytes takes."""
    log, payload, body = opened(disk, directory), bytes(MESSAGES * MESSAGE_SIZE), bytes(40)
    log.create(1, "S", 1 << 32 | 1, CONF, 1, 1)
    for index in range(2, size // len(payload) + 2):
        turn(log, [Write(1, (1, 0, index - 1), index, [(1, 1, body)])], payload)
    log.close()
    wall, used = time.perf_counter(), time.process_time()
    log = opened(disk, directory)
    found = time.perf_counter() - wall, time.process_time() - used
    assert log.groups[1].last == size // len(payload) + 1
    log.close()
    return found


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=20_000)
    parser.add_argument("--size", type=int, default=256, help="MiB of the log that is read")
    parser.add_argument("--directory", type=Path, help="where to write; default: a temporary directory")
    parser.add_argument("--sync", action="store_true", help="sync really")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    disk = OsDisk() if given.sync else NoSyncDisk()
    root = Path(tempfile.mkdtemp(dir=given.directory))
    found: dict[str, float] = {}
    try:
        for groups, per_group in ((1, 1), (1, 16), (16, 1), (100, 1)):
            name = f"{groups}_groups_{per_group}_entries"
            found[f"entry_us_{name}"] = entries(disk, f"{root}/{name}", given.entries, groups, per_group)
            found[f"message_us_{name}"] = found[f"entry_us_{name}"] / MESSAGES
            shutil.rmtree(root / name)
        wall, used = recovery(disk, f"{root}/read", given.size << 20)
        found |= {"start_wall_s": wall, "start_cpu_s": used, "start_MiB_per_s": given.size / wall}
    finally:
        shutil.rmtree(root)
    for name, value in found.items():
        print(f"{name:36} {value:10.3f}")
    if given.json:
        given.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
