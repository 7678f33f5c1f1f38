"""Names of files and directories below a store directory.

    <store>/.lock
    <store>/<account>/streams/<stream>/meta.{a,b} consumers.{a,b}
                                       msgs/NNNNNNNN.seg
                                       consumers/<consumer>.<id>/snap.G log.G

Account, stream and consumer names are escaped, so that none of them can leave its place or meet a file of ours.
What is removed first gets a name that begins with `.deleting-`: a crash in the middle is finished by the next start.
What cannot be read gets one that begins with `.damaged-`, and is left to the operator.
"""

from __future__ import annotations

import errno

from pyjs.base.disk import Disk
from pyjs.base.errors import PyjsError

SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-$=+,@")
NAME_SIZE_MAX = 180  # bytes of an escaped name; file systems take 255
NO_DIRECTORY_LOCK = (
    errno.EBADF,
    errno.EINVAL,
    errno.ENOLCK,
    errno.EOPNOTSUPP,
    errno.EISDIR,
)  # NFS among others
DELETING = ".deleting-"
DAMAGED = ".damaged-"


class StoreLocked(PyjsError):
    """Another server works on the store directory."""


def file_name(name: str) -> str:
    """Return `name` as a file name: other characters than SAFE as %XX; a long one shortened before a digest."""
    escaped = "".join(
        char if char in SAFE else "".join(f"%{byte:02X}" for byte in char.encode()) for char in name
    )
    if len(escaped) <= NAME_SIZE_MAX:
        return escaped
    import xxhash  # few names are that long, and no start waits for it

    return f"{escaped[: NAME_SIZE_MAX - 20]}%-{xxhash.xxh64_hexdigest(name.encode())}"


def streams_directory(root: str, account: str) -> str:
    """Return where the streams of an account are."""
    return f"{root}/{file_name(account)}/streams"


def make_directory(disk: Disk, directory: str) -> None:
    """Make a directory and those above it; their names are safe when this returns."""
    missing = []
    while directory and not disk.exists(directory):
        missing.append(directory)
        directory = directory.rpartition("/")[0]
    if missing:
        disk.make_dirs(missing[0])
    for path in missing:
        disk.sync_dir(path.rpartition("/")[0] or ("/" if path.startswith("/") else "."))


class StoreLock:
    """The lock of a store directory: one on its file `.lock`, and one on the directory itself.

    The file is what other programs may look at. Whoever removes it, as files of no use are, does not let a second
    server in: the directory stays locked, where the file system can do that.
    """

    def __init__(self, disk: Disk, directory: str, *, shared: bool = False) -> None:
        """Take it. Raises BlockingIOError: another process has it; OSError: it cannot be taken."""
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
        """Let others have it."""
        fds, self._fds = self._fds, []
        for fd in fds:
            self._disk.unlock(fd)


def lock_store(disk: Disk, directory: str) -> StoreLock:
    """Take the lock of a store directory, made if absent.

    Raises:
        StoreLocked: another process has it.
        OSError: the directory cannot be made or written.
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
    """Sync the names of a directory and of those above it: a process may have been killed before it did."""
    while directory not in ("", "/"):
        directory = directory.rpartition("/")[0] or ("/" if directory.startswith("/") else ".")
        try:
            disk.sync_dir(directory)
        except OSError:
            return  # not ours to read, and so not made by us
        if directory == ".":
            return


def hide_directory(disk: Disk, directory: str, number: int = 0, sync: bool = True) -> str:
    """Give a directory that is to be removed a name that no start looks at; returns its new path.

    The name has the first free number from `number` on: others may wait to be removed. Without `sync` it is the
    caller's to sync the directory above.
    """
    return _rename_aside(disk, directory, DELETING, number, sync)


def set_aside(disk: Disk, directory: str) -> str:
    """Give a directory that cannot be read a name that no start looks at; returns its new path."""
    return _rename_aside(disk, directory, DAMAGED)


def finish_removals(disk: Disk, parent: str) -> list[str]:
    """Remove what an earlier process had begun to remove in `parent`; returns what could not be, and why."""
    problems = []
    for name in disk.list_dir(parent):
        if name.startswith(DELETING):
            try:
                disk.remove_tree(f"{parent}/{name}")
            except OSError as error:
                problems.append(f"{parent}/{name} cannot be removed: {error}")
    return problems


def free_name(disk: Disk, directory: str, prefix: str, number: int = 0) -> str:
    """Return a path beside `directory` that begins with `prefix`, has a number from `number` on, and is not taken."""
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
