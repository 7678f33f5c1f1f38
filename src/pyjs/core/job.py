"""Jobs: work that is too long for a turn and runs in a thread; a later turn handles the result.

A Job owns everything that `run` reads or writes; `run` must not touch the node. Node.turn calls `finish`, so
the effects of a job happen at a defined place in that turn. server/threads/workers.py runs jobs. The
simulation may run a job at any later time, and may return its result in any later turn.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyjs.core.fair_queue import Owner


class JobQueue(Enum):
    """The queue in which a job waits for its thread.

    FILES, LOG, REMOVALS and ACCOUNTS run one job at a time, in order. COMPUTE runs one at a time, in fair
    order over the owners, so that many jobs of one owner delay only that owner. NETWORK runs several at the
    same time.
    """

    FILES = "files"  # metadata: the job waits for the disk, and a client waits for the job
    LOG = "log"  # syncs of the log of replicated groups: every publish to such a stream waits for it
    REMOVALS = "removals"  # retired files and unused memory: no client waits for it
    COMPUTE = "compute"  # uses a processor and releases the GIL: bcrypt, signatures
    ACCOUNTS = "accounts"  # tokens of accounts in a directory
    NETWORK = "network"  # waits for another server, which may be slow for one job and fast for the next


class Job:
    """One piece of work; subclasses hold its input and its result."""

    queue = JobQueue.COMPUTE
    owner: Owner = (None, None)  # for fair order: an address, and one of its connections

    def run(self) -> None:
        """Do the work, in a thread. An exception raised here is passed to `finish`."""
        raise NotImplementedError("a Job subclass does the work")

    def finish(self, failure: Exception | None) -> None:
        """Apply the result to the node, in a turn. `failure` is the exception raised by `run`, if any."""
        raise NotImplementedError("a Job subclass takes the result")
