"""A directory that has the token of each account in a file, `<public key>.jwt`.

A file is written under another name, synced and renamed, so that it is either complete or absent. A file
without a token of its account is reported in the log and not used. A directory used as a cache has a maximum number
of files; if there would be more, the least recently used file is removed. A directory may also have a maximum time
(ttl), after which an unused file is removed.

Called by one thread at a time. This module knows nothing of its callers.
Source: nats-server 2.15.1, tests/conformance/test_jwt_claims.py.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from pyjs.base.disk import write_file
from pyjs.base.errors import reason_of
from pyjs.claims.fields import head_of
from pyjs.claims.token import TOKEN_SIZE_MAX, TokenFault, decode
from pyjs.wire.nkeys import ACCOUNT, public_key

if TYPE_CHECKING:
    from pyjs.base.clock import Clock
    from pyjs.base.disk import Disk
    from pyjs.base.log import Log
    from pyjs.config.options import ResolverOptions

ENDING = ".jwt"
DELETED = ".deleted"
CACHE_MAX = 1000  # the maximum number of files of a cache, unless the options set one
HASH_SIZE = 32


class DirectoryFault(Exception):
    """Raised when a token cannot be written or removed; its message is that of nats-server."""


class TokenDirectory:
    """A directory with the token files of accounts."""

    def __init__(self, disk: Disk, options: ResolverOptions, clock: Clock, log: Log) -> None:
        self.path = options.dir.rstrip("/") or "/"
        self._disk = disk
        self._clock = clock
        self._log = log
        self._evicts = options.kind == "cache"
        self._limit = options.limit if options.limit > 0 else CACHE_MAX if self._evicts else 0
        self._ttl_ns = options.ttl_ns
        self._removable = options.allow_delete or self._evicts
        self._renames = options.allow_delete and not options.hard_delete
        self._digests: dict[str, bytes] = {}  # digest of each file by account; least recently used first
        self._used_ns: dict[str, int] = {}

    def open(self) -> None:
        """Create the directory if it is missing, and read its files.

        Raises:
            OSError: the directory cannot be used.
        """
        self._disk.make_dirs(self.path)
        for entry in self._disk.list_dir(self.path):
            name = entry.removesuffix(ENDING)
            if not entry.endswith(ENDING) or public_key(name, ACCOUNT) is None:
                continue
            text = self._read(name)
            if text is not None:
                self._note(name, text)

    @property
    def names(self) -> list[str]:
        """The accounts with a file, sorted."""
        return sorted(self._digests)

    def changed(self) -> list[str]:
        """Return the accounts whose files were changed by another program."""
        found = []
        for name, digest in list(self._digests.items()):
            try:
                data = self._disk.read_file(self._path(name))
            except OSError:
                continue
            if hashlib.sha256(data).digest() != digest:
                found.append(name)
        return found

    def load(self, name: str) -> str | None:
        """Return the token of an account, or None if its file is missing or damaged.

        Before that, remove files that were not used for longer than the ttl.
        """
        if public_key(name, ACCOUNT) is None:
            return None
        self.drop_unused()
        text = self._read(name)
        if text is None:
            self._forget(name)
        else:
            self._note(name, text)
        return text

    def save(self, name: str, token: str) -> bool:
        """Write the token of an account; return False if the same token was stored already.

        Raises:
            DirectoryFault: an argument is invalid, the directory is full, or the file cannot be written.
        """
        if public_key(name, ACCOUNT) is None:
            raise DirectoryFault("invalid public key")
        if not token:
            raise DirectoryFault("invalid JWT")
        if self._digests.get(name) == _digest(token):
            return False
        if name not in self._digests and 0 < self._limit <= len(self._digests):
            self._make_room()
        path = self._path(name)
        try:
            write_file(self._disk, f"{path}.tmp", [token.encode()])
            self._disk.rename(f"{path}.tmp", path)
            self._disk.sync_dir(self.path)
        except OSError as error:
            raise DirectoryFault(f"open {path}: {reason_of(error)}") from None
        self._note(name, token)
        return True

    def save_newer(self, name: str, token: str) -> None:
        """Write a token unless the stored one was issued later or at the same time.

        If the token cannot be written, log an error.
        """
        before = self.load(name)
        if before is not None and _issued_at(before) >= _issued_at(token):
            return
        try:
            self.save(name, token)
        except DirectoryFault as fault:
            self._log.error(f"Account [{name}] cannot be stored: {fault}")

    def delete(self, name: str) -> bool:
        """Remove or rename the file of an account, depending on the options; return whether there was a file.

        Raises:
            DirectoryFault: the options do not permit the removal, or the file cannot be removed.
        """
        if not self._removable:
            raise DirectoryFault("store is not set up to for delete")
        path = self._path(name)
        try:
            if self._renames:
                self._disk.rename(path, path + DELETED)
            else:
                self._disk.unlink(path)
            self._disk.sync_dir(self.path)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise DirectoryFault(f"remove {path}: {reason_of(error)}") from None
        self._forget(name)
        return True

    def digest(self) -> bytes:
        """Return a digest of all files; the order of the files does not matter."""
        sums = 0
        for each in self._digests.values():
            sums ^= int.from_bytes(each, "big")
        return sums.to_bytes(HASH_SIZE, "big")

    def drop_unused(self) -> None:
        """Remove the files that were not used for longer than the ttl; without a ttl, do nothing.

        A file that cannot be removed is reported in the log, and counts as removed until it is loaded again.
        """
        if not self._ttl_ns:
            return
        due_ns = self._clock.now_ns() - self._ttl_ns
        for name in [name for name in self._digests if self._used_ns[name] <= due_ns]:
            try:
                self._evict(name)
            except DirectoryFault as fault:
                self._log.error(f"Account [{name}] is unused and cannot be removed: {fault}")
                self._forget(name)

    # -- parts -------------------------------------------------------------------------------------------------
    def _path(self, name: str) -> str:
        return f"{self.path}/{name}{ENDING}"

    def _read(self, name: str) -> str | None:
        """Return the token in the file of an account, or None if the file is missing or damaged."""
        path = self._path(name)
        try:
            data = self._disk.read_file(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._log.error(f"{path} cannot be read: {reason_of(error)}")
            return None
        try:
            text = data[: TOKEN_SIZE_MAX + 1].decode("ascii")
            subject = head_of(decode(text)).subject
        except (TokenFault, UnicodeDecodeError) as fault:
            self._log.error(f"{path} is damaged and not used: {fault}")
            return None
        if subject != name:
            self._log.error(f"{path} is not used: its token is of {subject[:60]!r}")
            return None
        return text

    def _note(self, name: str, token: str) -> None:
        self._digests.pop(name, None)
        self._digests[name] = _digest(token)
        self._used_ns[name] = self._clock.now_ns()

    def _forget(self, name: str) -> None:
        self._digests.pop(name, None)
        self._used_ns.pop(name, None)

    def _make_room(self) -> None:
        if not self._evicts:
            raise DirectoryFault("jwt store is full")
        self._evict(next(iter(self._digests)))

    def _evict(self, name: str) -> None:
        try:
            self._disk.unlink(self._path(name))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise DirectoryFault(f"remove {self._path(name)}: {reason_of(error)}") from None
        self._forget(name)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _issued_at(token: str) -> int:
    try:
        return head_of(decode(token)).issued_at
    except TokenFault:
        return 0
