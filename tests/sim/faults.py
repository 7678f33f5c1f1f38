"""The failures of a simulated disk that a world plans."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

    from tests.sim.disk import SimDisk

CHANGES = ("write", "sync", "open", "allocate", "sync_dir", "rename", "unlink", "")
SYNCS = ("sync", "sync_dir")
# kinds of calls that fail less often, and the error of each; 0: one of those of changes
OTHERS = {
    "truncate": 0,
    "mkdir": 0,
    "rmdir": 0,
    "read": errno.EIO,
    "read_file": errno.EIO,
    "map": errno.ENOMEM,
    "open_read_only": errno.EMFILE,
}


def plan_failure(disk: SimDisk, rng: Random, nasty: Random) -> None:
    """Let some of the next calls of a kind fail; `rng` makes the choices that it would make without `nasty`."""
    disk.failure = rng.choice((errno.EIO, errno.ENOSPC, errno.EMFILE))
    disk.failing = rng.choice(CHANGES)
    disk.fail_in = rng.randrange(20)
    disk.fail_more = nasty.choice((0, 0, 0, 1, 3, 20))
    if disk.failing in SYNCS:
        disk.failure = errno.EIO
        return
    disk.failure = nasty.choice((disk.failure, errno.EDQUOT, errno.EROFS))
    if nasty.random() < 0.3:
        disk.failing = nasty.choice(list(OTHERS))
        disk.failure = OTHERS[disk.failing] or disk.failure
