"""Jobs: work too long for a turn, run in a thread; the result is taken in a later turn.

A Job owns everything that `run` reads or writes; `run` must not touch the node. Node.turn calls `finish`, so its
effects are ordered in that turn. server/threads/workers.py runs jobs; the simulation runs each job at any later time
and returns its result in any later turn.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyjs.core.fair_queue import Owner


class JobQueue(Enum):
    """The queue in which a job waits for its thread.

    FILES, REMOVALS and ACCOUNTS run one job at a time, in order; COMPUTE one at a time in fair order over the owners,
    so that many jobs of one owner delay only that owner; NETWORK several at the same time.
    """

    FILES = "files"  # metadata: waits for the disk, and a client waits for it
    LOG = "log"  # syncs of the log of replicated groups: every publish to one waits for it
    REMOVALS = "removals"  # retired files and unused memory: no client waits for it
    COMPUTE = "compute"  # uses a processor without the GIL: bcrypt, signatures
    ACCOUNTS = "accounts"  # tokens of accounts in a directory
    NETWORK = "network"  # waits for another server, which may be slow for one job and fast for the next


class Job:
    """One piece of work; subclasses hold its input and its result."""

    queue = JobQueue.COMPUTE
    owner: Owner = (None, None)  # for the fair order: an address, and a connection from it

    def run(self) -> None:
        """Do the work, in a thread. An exception reaches `finish`."""
        raise NotImplementedError("a Job subclass does the work")

    def finish(self, failure: Exception | None) -> None:
        """Apply the result to the node, in a turn. `failure` is the exception raised by `run`, if any."""
        raise NotImplementedError("a Job subclass takes the result")
