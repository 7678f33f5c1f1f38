"""Statistics of this process from the operating system."""

from __future__ import annotations

import os
import resource
import sys

from pyjs.monitor.state import ProcessStats

PAGE_SIZE = resource.getpagesize()
NS_PER_S = 1_000_000_000
CPU_WINDOW_NS = NS_PER_S  # minimum time over which the share of the processor is measured


class SystemProcess(ProcessStats):
    """Statistics of the running process."""

    def __init__(self, now_ns: int) -> None:
        self.cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.command = tuple(sys.argv)
        self._measured_at_ns = now_ns
        self._measured_cpu_s = cpu_seconds()
        self._percent = 0.0

    def memory_size(self) -> int:
        """Return the resident memory in bytes."""
        return memory_size()

    def cpu_percent(self, now_ns: int) -> float:
        """Return the last measured CPU usage of this process, as a percentage of one core.

        The usage is measured again if `CPU_WINDOW_NS` have passed since the last measurement.
        """
        passed_ns = now_ns - self._measured_at_ns
        if passed_ns >= CPU_WINDOW_NS:
            cpu_s = cpu_seconds()
            self._percent = round((cpu_s - self._measured_cpu_s) * 100 * NS_PER_S / passed_ns, 1)
            self._measured_at_ns, self._measured_cpu_s = now_ns, cpu_s
        return self._percent


def cpu_seconds() -> float:
    """Return the processor time that this process has used, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def memory_size() -> int:
    """Return the resident memory of this process in bytes, or its peak if there is no /proc."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * PAGE_SIZE
    except OSError:  # there is no /proc: use the peak instead
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
