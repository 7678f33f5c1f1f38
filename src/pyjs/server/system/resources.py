"""Memory and disk space of this machine, from which the defaults of JetStream's limits are derived."""

from __future__ import annotations

import os
from dataclasses import replace

from pyjs.config.options import Options
from pyjs.store.format.workers import worker_directory

SHARE_PERCENT = 75
MEMORY_FALLBACK = 256 * 1024 * 1024
STORAGE_FALLBACK = 1024**4
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_for_streams() -> int:
    """Return three quarters of the memory that this process may use, in bytes.

    If the size of the machine's memory is unknown, return `MEMORY_FALLBACK`.
    """
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return MEMORY_FALLBACK
    return min([size, *_cgroup_limits()]) * SHARE_PERCENT // 100


def _cgroup_limits() -> list[int]:
    limits = []
    for path in CGROUP_LIMITS:
        try:
            with open(path) as file:
                text = file.read().strip()
        except OSError:
            continue
        if text.isdigit():  # otherwise the text is "max": no limit
            limits.append(int(text))
    return limits


def storage_for_streams(directory: str) -> int:
    """Return three quarters of the free disk space at `directory`, or at its nearest existing parent, in bytes.

    If the free space is unknown, return `STORAGE_FALLBACK`.
    """
    while not os.path.isdir(directory):
        parent = os.path.dirname(directory)
        if parent == directory:
            return STORAGE_FALLBACK
        directory = parent
    try:
        disk = os.statvfs(directory)
    except OSError:
        return STORAGE_FALLBACK
    return disk.f_bavail * disk.f_frsize * SHARE_PERCENT // 100


def effective_options(options: Options, running: Options | None = None) -> Options:
    """Return `options` with JetStream's default directory and limits filled in for this machine.

    `options` itself is not changed; it is returned if JetStream is off. If JetStream is on in `running` (the options
    in effect), the default limits are those of `running`, even if less memory or space is free now.
    """
    if not options.jetstream.enabled:
        return options
    jetstream = replace(options.jetstream)
    effective = replace(options, jetstream=jetstream)
    base = jetstream.store_dir or os.path.join(os.environ.get("TMPDIR") or "/tmp", "nats")
    jetstream.store_dir = os.path.join(os.path.abspath(base), "jetstream")
    if options.worker is not None and options.worker.number > 1:
        jetstream.store_dir = worker_directory(jetstream.store_dir, options.worker.number)
    chosen = running.jetstream if running is not None and running.jetstream.enabled else None
    if jetstream.max_memory < 0:
        jetstream.max_memory = memory_for_streams() if chosen is None else chosen.max_memory
    if jetstream.max_storage < 0:
        directory = jetstream.store_dir
        jetstream.max_storage = storage_for_streams(directory) if chosen is None else chosen.max_storage
    return effective
