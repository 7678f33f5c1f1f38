"""The return of free memory to the operating system after a burst.

The allocator keeps freed memory: hundreds of megabytes after a burst of clients. A trim returns it, but holds the
allocator's lock while it visits all free memory, some ms for each 100 MB. Therefore, trims run in a thread. A trim
begins when the server becomes idle after work; a server that is never idle is trimmed every BUSY_S. As long as the
process uses more memory than its former minimum, an idle server is also trimmed, since the last clients of a burst
may leave without causing work. Each useless trim doubles the time until the next one.

Only the command uses this, since an embedding program owns its allocator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from pyjs.server.threads.io_thread import IoThread

LOOK_S = 1.0  # seconds between two checks while there are turns
QUIET_LOOK_S = (
    5.0  # the same after a check that found nothing to return, and hardly any work since the last one
)
QUIET_SHARE = 0.01  # share of one core: less is hardly any work, such as the heartbeats of an idle cluster
IDLE_SHARE = 0.25  # share of one core since the last check below which the server counts as idle
WORK_S = 0.05  # seconds of processor time since the last trim that justify another one
BUSY_S = 30.0  # seconds between two trims of a server that is never idle
VAIN_S_MAX = 60.0  # seconds: the longest wait after useless trims
ABOVE = 1.2  # a trim may help if memory exceeds the smallest size seen by this factor
GAIN_SIZE = 1 << 20  # bytes; a trim that returns less counts as useless


class MemoryReturn:
    """A periodic task that returns unused memory of this process to the operating system."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        after_next_turn: Callable[[Callable[[], None]], None],
        thread: IoThread,
        collect: Callable[[], object],
        trim: Callable[[], object],
        cpu_s: Callable[[], float],
        memory_size: Callable[[], int],
    ) -> None:
        self._loop = loop
        self._after_next_turn = after_next_turn
        self._thread = thread
        # Empties Python's free lists; called on the loop, where it is safe to free objects.
        self._collect = collect
        self._trim = trim  # runs in the thread
        self._cpu_s = cpu_s  # the processor time of this process
        self._memory_size = memory_size
        self._looked_at = self._trimmed_at = loop.time()
        self._looked_cpu_s = self._trimmed_cpu_s = cpu_s()
        self._least_size = memory_size()  # lowest memory size, measured at the start and after trims
        self._vain_s = LOOK_S  # seconds to wait after a trim that no work preceded
        self._look_s = LOOK_S  # seconds from the next turn to the next check
        after_next_turn(self.after_turn)

    def after_turn(self) -> None:
        """Schedule a check for memory that can be returned.

        The driver calls this after the first turn of a busy period.
        """
        self._loop.call_later(self._look_s, self._look)

    def _look(self) -> None:
        now, cpu_s = self._loop.time(), self._cpu_s()
        elapsed, used = now - self._looked_at, cpu_s - self._looked_cpu_s
        idle = used < IDLE_SHARE * elapsed
        self._look_s = LOOK_S
        since = now - self._trimmed_at
        worked = cpu_s - self._trimmed_cpu_s >= WORK_S
        self._looked_at, self._looked_cpu_s = now, cpu_s
        if not worked and self._memory_size() <= ABOVE * self._least_size:
            self._look_s = QUIET_LOOK_S if used < QUIET_SHARE * elapsed else LOOK_S
            self._after_next_turn(self.after_turn)
        elif since < (self._vain_s if idle and not worked else LOOK_S if idle else BUSY_S):
            self._loop.call_later(LOOK_S, self._look)
        else:
            if worked:
                self._vain_s = LOOK_S
            self._collect()
            self._thread.submit(self._run(self._memory_size()), self._done)

    def _run(self, before_size: int) -> Callable[[], None]:
        def run() -> None:
            self._trim()
            gained = before_size - self._memory_size()
            self._vain_s = LOOK_S if gained >= GAIN_SIZE else min(2 * self._vain_s, VAIN_S_MAX)

        return run

    def _done(self, _: Exception | None) -> None:
        self._trimmed_at, self._trimmed_cpu_s = self._loop.time(), self._cpu_s()
        size = self._memory_size()
        self._least_size = min(self._least_size, size)
        # Memory freed during the trim may be left, and an idle server has no turn that would check again.
        if size > ABOVE * self._least_size and self._vain_s < VAIN_S_MAX:
            self._loop.call_later(LOOK_S, self._look)
        else:
            self._after_next_turn(self.after_turn)
