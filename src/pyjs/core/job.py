"""Work too long for a turn: it leaves the node as a value, runs in a thread, and returns as an input of a later turn.

A Job owns everything that `run` reads or writes; `run` may not touch the node. `finish` is called by Node.turn, so
its effects take part in the order of that turn. The shell runs jobs (server/threads/workers.py); the simulation
runs each one at any later moment and returns its result at any later turn.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyjs.core.fair_queue import Owner


class Lane(Enum):
    """Which thread runs a job. Jobs of one lane run one after another, in the order in which they were queued.

    Those of COMPUTE run in fair order over their owners: whoever asks for much waits for himself.
    """

    FILES = "files"  # metadata: what blocks on a disk, and somebody waits for
    REMOVALS = "removals"  # files and memory that nothing needs any more: nobody waits for it
    COMPUTE = "compute"  # what blocks on a processor without the GIL: bcrypt


class Job:
    """One piece of work; subclasses hold its input and its result."""

    lane = Lane.COMPUTE
    owner: Owner = (None, None)  # who takes turns with others: an address, and a connection of it

    def run(self) -> None:
        """Do the work, in a thread. An exception reaches `finish`."""
        raise NotImplementedError("a Job subclass does the work")

    def finish(self, failure: Exception | None) -> None:
        """Take the result into the node, in a turn. `failure`: what `run` raised."""
        raise NotImplementedError("a Job subclass takes the result")
