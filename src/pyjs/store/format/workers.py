"""The store directories of workers other than the first, which are below the store of the server.

    <store>/.workers/N/    the store of worker N, from 2

If a worker with streams is not started any more, the server refuses to start, or the first worker takes over the
streams. A stream is a directory, so a rename moves it. The next start continues an interrupted move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.errors import PyjsError
from pyjs.store.format.layout import WORKERS, lock_store, make_directory

if TYPE_CHECKING:
    from pyjs.base.disk import Disk


class StoreShared(PyjsError):
    """Raised if a worker with streams is not started, or if two workers have a stream of the same name."""


def worker_directory(root: str, number: int) -> str:
    """Return the store directory of a worker; `number` is at least 2, and `root` is the server's store directory."""
    return f"{root}/{WORKERS}/{number}"


def worker_roots(disk: Disk, root: str, above: int = 1) -> list[str]:
    """Return the store directories of workers whose numbers are higher than `above`, in the order of numbers."""
    names = [name for name in disk.list_dir(f"{root}/{WORKERS}") if name.isdecimal()]
    return [worker_directory(root, number) for number in sorted(map(int, names)) if number > above]


def check_workers(disk: Disk, root: str, most: int) -> None:
    """Refuse a store with streams of a worker whose number is higher than `most`.

    Raises:
        StoreShared: there are such streams.
    """
    counts = {store: len(_streams(disk, store)) for store in worker_roots(disk, root, most)}
    used = [store for store, count in counts.items() if count]
    if used:
        needed = used[-1].rpartition("/")[2]
        raise StoreShared(
            f"{sum(counts.values())} streams are in {', '.join(used)}, stores of workers above {most}: start with"
            f" spread_workers and at least {needed} workers; with spread_workers and fewer, they move to the first"
            " worker for good"
        )


def take_over(disk: Disk, root: str, most: int) -> int:
    """Move the streams of workers with numbers above `most` to the first worker; return the number of streams.

    Raises:
        StoreLocked: such a worker is running.
        StoreShared: the first worker has a stream of the same name; no stream of the other worker was moved.
        OSError: a directory cannot be moved; the next start continues the move.
    """
    count = 0
    for store in worker_roots(disk, root, most):
        streams = _streams(disk, store)
        if not streams:
            continue
        lock = lock_store(disk, store)
        try:
            _move(disk, store, root, streams)
        finally:
            lock.release()
        count += len(streams)
    return count


def check_names(disk: Disk, root: str) -> None:
    """Refuse stores in which two workers have a stream of the same name, since both would answer its clients.

    Raises:
        StoreShared: there is such a stream.
    """
    homes: dict[str, str] = {}
    for store in [root, *worker_roots(disk, root)]:
        for path in _streams(disk, store):
            if path in homes:
                raise _shared_name(homes[path], store, path)
            homes[path] = store


def _shared_name(one: str, other: str, path: str) -> StoreShared:
    return StoreShared(f"{one}/{path} and {other}/{path} are two streams of one name: move one away")


def _move(disk: Disk, store: str, root: str, streams: list[str]) -> None:
    taken = [path for path in streams if disk.exists(f"{root}/{path}")]
    if taken:
        raise _shared_name(root, store, taken[0])
    for path in streams:
        parent = path.rpartition("/")[0]
        make_directory(disk, f"{root}/{parent}")
        disk.rename(f"{store}/{path}", f"{root}/{path}")
        disk.sync_dir(f"{root}/{parent}")
        disk.sync_dir(f"{store}/{parent}")


def _streams(disk: Disk, root: str) -> list[str]:
    """Return the paths of the stream directories in a store, relative to the store."""
    parents = [f"{account}/streams" for account in disk.list_dir(root) if not account.startswith(".")]
    found = [
        (each, disk.list_dir(f"{root}/{each}")) for each in parents if disk.is_directory(f"{root}/{each}")
    ]
    return [f"{parent}/{name}" for parent, names in found for name in names if not name.startswith(".")]
