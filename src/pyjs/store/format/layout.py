"""Names of files and directories below a store directory.

    <store>/.lock
    <store>/.workers/N/                a store of the same layout: that of worker N, from 2
    <store>/<account>/streams/<stream>/meta.{a,b} consumers.{a,b}
                                       msgs/NNNNNNNN.seg
                                       consumers/<consumer>.<id>/snap.G log.G

Account, stream and consumer names are escaped, so that no name can leave its directory or collide with a file of the
server. A directory to remove is first renamed to `.deleting-...`; if a crash interrupts the removal, the next start
finishes it. An unreadable directory is renamed to `.damaged-...` and left to the operator.
"""

from __future__ import annotations

import errno

from pyjs.base.disk import Disk
from pyjs.base.errors import PyjsError

SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-$=+,@")
NAME_SIZE_MAX = 180  # bytes of an escaped name; file systems allow 255
NO_DIRECTORY_LOCK = (
    errno.EBADF,
    errno.EINVAL,
    errno.ENOLCK,
    errno.EOPNOTSUPP,
    errno.EISDIR,
)  # NFS and others
WORKERS = ".workers"  # the stores of workers other than the first
DELETING = ".deleting-"
# in the directory of messages: this replica lacked messages; has the entry as of which it has them again, or is empty
HEALING = ".healing"
# beside it: has the number of the first segment with messages that this replica has copied, but no mark covers
COPIED = ".copied"
# beside it: a sync of the segments failed, and no start has written them again
UNSYNCED = ".unsynced"
DAMAGED = ".damaged-"


class StoreLocked(PyjsError):
    """Raised if another server uses the store directory."""


class StoreForeign(PyjsError):
    """Raised if the store directory is that of a nats-server."""


def file_name(name: str) -> str:
    """Return the file name for `name`: characters outside SAFE become %XX.

    A long name is truncated, with a digest added.
    """
    # Longer names are cut before they are escaped: a damaged file may claim a consumer name of a megabyte.
    kept = name[: NAME_SIZE_MAX + 1]
    escaped = kept if SAFE.issuperset(kept) else "".join(map(_escaped, kept))
    if len(escaped) <= NAME_SIZE_MAX:
        return escaped
    import xxhash  # imported lazily: few names are that long

    return f"{escaped[: NAME_SIZE_MAX - 20]}%-{xxhash.xxh64_hexdigest(name.encode())}"


def _escaped(char: str) -> str:
    return char if char in SAFE else "".join(f"%{byte:02X}" for byte in char.encode())


def streams_directory(root: str, account: str) -> str:
    """Return the directory of an account's streams."""
    return f"{root}/{file_name(account)}/streams"


def make_directory(disk: Disk, directory: str) -> None:
    """Create a directory and its parents, and make their names durable."""
    missing = []
    while directory and not disk.exists(directory):
        missing.append(directory)
        directory = directory.rpartition("/")[0]
    if missing:
        disk.make_dirs(missing[0])
    for path in missing:
        disk.sync_dir(path.rpartition("/")[0] or ("/" if path.startswith("/") else "."))


class StoreLock:
    """The two locks of a store directory: one on its file `.lock`, and one on the directory itself.

    Other programs may test the lock on the file. If that file is deleted, the lock on the directory still
    excludes a second server, on file systems that support such locks.
    """

    def __init__(self, disk: Disk, directory: str, *, shared: bool = False) -> None:
        """Take both locks. Raises BlockingIOError if another process holds one of them, OSError if locking fails.

        With `shared`, take shared locks, and do not create the file.
        """
        self._disk = disk
        self._fds: list[int] = []
        path = f"{directory}/.lock"
        try:
            self._fds.append(disk.lock_directory(directory, shared=shared))
        except BlockingIOError:
            raise
        except OSError as error:
            if error.errno not in NO_DIRECTORY_LOCK:
                raise
        try:
            if not shared or disk.exists(path):
                self._fds.append(disk.lock_shared(path) if shared else disk.lock(path))
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        """Release both locks."""
        fds, self._fds = self._fds, []
        for fd in fds:
            self._disk.unlock(fd)


def refuse_foreign(disk: Disk, root: str) -> None:
    """Refuse the store directory of a nats-server; `root` need not exist.

    One stream of each account shows which server wrote the store.

    Raises:
        StoreForeign: the store is that of a nats-server, whose files must not be touched.
    """
    for account in disk.list_dir(root):
        directory = f"{root}/{account}/streams"
        names = [] if account.startswith(".") else disk.list_dir(directory)
        first = next((f"{directory}/{name}" for name in names if not name.startswith(".")), "")
        theirs = first and disk.exists(f"{first}/meta.inf") and disk.exists(f"{first}/meta.sum")
        if theirs and not disk.exists(f"{first}/meta.a"):
            raise StoreForeign(
                f"store directory {root} is that of a nats-server; choose another store_dir, "
                f"and copy the streams with: pyjs-server import -sd STORE_DIR {root}"
            )


def lock_store(disk: Disk, directory: str) -> StoreLock:
    """Lock a store directory; create it if it is missing.

    Raises:
        StoreLocked: another process has the lock.
        OSError: the directory cannot be created or written.
    """
    make_directory(disk, directory)
    if not disk.exists(f"{directory}/.lock"):
        _sync_above(disk, directory)
    try:
        return StoreLock(disk, directory)
    except BlockingIOError:
        raise StoreLocked(
            f"store directory {directory} is in use by another server; stop it or choose another store_dir"
        ) from None


def _sync_above(disk: Disk, directory: str) -> None:
    """Sync the names of a directory and of its parents, since a killed process may not have synced them."""
    while directory not in ("", "/"):
        directory = directory.rpartition("/")[0] or ("/" if directory.startswith("/") else ".")
        try:
            disk.sync_dir(directory)
        except OSError:
            return  # not readable, so this server has not created it
        if directory == ".":
            return


def hide_directory(disk: Disk, directory: str, number: int = 0, sync: bool = True) -> str:
    """Hide a directory that is to be removed: give it a name that no start reads, and return the new path.

    The name has the first free number >= `number`. Without `sync`, the caller must sync the parent directory.
    """
    return _rename_aside(disk, directory, DELETING, number, sync)


def set_aside(disk: Disk, directory: str) -> str:
    """Rename an unreadable file or directory to a name that no start reads; return its new path."""
    return _rename_aside(disk, directory, DAMAGED)


def finish_removals(disk: Disk, parent: str) -> list[str]:
    """Finish the removals in `parent` that an earlier process began; return an error message for each that failed."""
    problems = []
    for name in disk.list_dir(parent):
        if name.startswith(DELETING):
            try:
                disk.remove_tree(f"{parent}/{name}")
            except OSError as error:
                problems.append(f"{parent}/{name} cannot be removed: {error}")
    return problems


def free_name(disk: Disk, directory: str, prefix: str, number: int = 0) -> str:
    """Return the first free path `<prefix><n>-<name>` beside `directory`; n starts at `number`."""
    parent, _, name = directory.rpartition("/")
    while disk.exists(aside := f"{parent}/{prefix}{number}-{name}"):
        number += 1
    return aside


def _rename_aside(disk: Disk, directory: str, prefix: str, number: int = 0, sync: bool = True) -> str:
    aside = free_name(disk, directory, prefix, number)
    disk.rename(directory, aside)
    if sync:
        disk.sync_dir(directory.rpartition("/")[0])
    return aside
