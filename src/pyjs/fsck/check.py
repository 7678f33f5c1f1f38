"""The check of a whole store directory, and its repair.

The check finds the directory, locks it, and reads accounts and streams in the order of their names. Without `repair`,
nothing is written, not even the lock file. With `repair`, each stream is checked, repaired and checked again; the
report then describes the repaired store.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from pyjs.base.errors import NONSENSE, CorruptRecord, PyjsError
from pyjs.consensus.log.files import DIRECTORY as NODE_LOG
from pyjs.fsck.findings import DAMAGE, NOTE, UNCHECKED, Finding, StoreReport, StreamReport
from pyjs.fsck.images import Files, size_of
from pyjs.fsck.locked import LockedCheck
from pyjs.fsck.mending import create_directory, mark_healing, move_file_aside, remove_directory
from pyjs.fsck.metadata import CLUSTER_FILES, Copies, cluster_findings, finding_of
from pyjs.fsck.node_log import NodeLogCheck
from pyjs.fsck.segments import MessagesCheck
from pyjs.fsck.states import SET_ASIDE, STRANGER, StatesCheck
from pyjs.fsck.tails import StoredTails
from pyjs.jetstream.config.choices import S2
from pyjs.jetstream.config.declared import from_meta
from pyjs.jetstream.config.stream import StreamConfig
from pyjs.store.crypt.keys import Locked
from pyjs.store.format.layout import (
    DAMAGED,
    DELETING,
    WORKERS,
    StoreLock,
    StoreLocked,
    file_name,
    lock_store,
)
from pyjs.store.format.meta import KIND_STREAM, Opener, UnknownFormat, decode, encode
from pyjs.store.format.outer_header import CODEC_ZSTD
from pyjs.store.format.tail_file import NAME as TAILS
from pyjs.store.format.workers import worker_roots
from pyjs.store.segment.meta_record import meta_in
from pyjs.store.segment.recovery import is_segment

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyjs.base.disk import Disk
    from pyjs.fsck.progress import Progress
    from pyjs.store.crypt.keys import KeyRing

ESCAPED = re.compile(r"(?:%[0-9A-F]{2})+")


class NotChecked(PyjsError):
    """Raised if the store cannot be checked; the exception's message explains why."""


class StoreCheck:
    """The check of one store directory."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        progress: Progress,
        *,
        repair: bool = False,
        key_ring: KeyRing | None = None,
    ) -> None:
        self._disk = disk
        self._progress = progress
        self._repair = repair
        self._key_ring = key_ring  # None: encrypted streams are checked without their keys
        self._tails = StoredTails(disk)
        self.report = StoreReport(find_store(disk, directory))

    def run(self) -> StoreReport:
        """Check the whole store, and repair it if that was requested; return the report.

        Raises:
            NotChecked: another process uses the store.
            OSError: a directory or file of the store cannot be read.
        """
        roots = [self.report.root, *worker_roots(self._disk, self.report.root)]
        locks = self._locks(roots)
        try:
            self._progress.begin(sum(map(self._size, roots)))
            for root in roots:
                for account in self._accounts(root):
                    for directory in self._streams(root, account):
                        self._stream(account, directory)
            NodeLogCheck(self._disk, self.report).run()
            if self._repair:
                repairs, failures = mend(self.report.findings)
                self.report.repairs += repairs
                self.report.findings += failures
        finally:
            self._progress.end()
            for lock in locks:
                lock.release()
        return self.report

    def _locks(self, roots: list[str]) -> list[StoreLock]:
        """Lock the stores in `roots`, and return their locks; if one cannot be locked, keep none of the locks."""
        locks: list[StoreLock] = []
        try:
            for root in roots:
                locks.append(self._lock(root))
        except BaseException:
            for lock in locks:
                lock.release()
            raise
        return locks

    def _lock(self, root: str) -> StoreLock:
        """Lock the store of the server or of a worker; the lock is exclusive if files are repaired, else shared.

        Raises:
            NotChecked: another process uses the store.
        """
        try:
            if self._repair:
                return lock_store(self._disk, root)
            return StoreLock(self._disk, root, shared=True)
        except (BlockingIOError, StoreLocked):
            raise NotChecked(
                f"{root} is in use: stop the server that works on it first; the server itself checks its files"
                " while it runs (scrub_rate)"
            ) from None

    # -- directories ---------------------------------------------------------------------------------------

    def _accounts(self, root: str) -> list[str]:
        """Return the names of the account directories in a store, and check the other files there."""
        accounts = []
        for name in self._disk.list_dir(root):
            if self._disk.is_directory(f"{root}/{name}/streams"):
                accounts.append(name)
                for other in self._disk.list_dir(f"{root}/{name}"):
                    if other not in ("streams", TAILS):
                        self.report.find(NOTE, f"{root}/{name}/{other}", STRANGER)
            elif name in CLUSTER_FILES:
                self.report.findings += cluster_findings(self._disk, f"{root}/{name}")
            elif name not in (".lock", NODE_LOG, WORKERS):
                self.report.find(NOTE, f"{root}/{name}", STRANGER)
        return accounts

    def _streams(self, root: str, account: str) -> list[str]:
        """Return the directories of an account's streams in a store, and report the other names there."""
        parent, streams = f"{root}/{account}/streams", []
        self.report.findings += self._tails.load(parent)
        for name in self._disk.list_dir(parent):
            path = f"{parent}/{name}"
            if name.startswith(DELETING):
                finding = self.report.find(NOTE, path, "its removal was begun; a start finishes it")
                finding.mend = partial(remove_directory, self._disk, path)
            elif name.startswith(DAMAGED):
                self.report.find(NOTE, path, SET_ASIDE)
            elif not self._disk.is_directory(path):
                self.report.find(NOTE, path, STRANGER)
            else:
                streams.append(path)
        return streams

    def _size(self, root: str) -> int:
        """Return the size of all segments of a store in bytes."""
        total = 0
        for account in self._disk.list_dir(root):
            for stream in names_in(self._disk, f"{root}/{account}/streams"):
                messages = f"{root}/{account}/streams/{stream}/msgs"
                names = names_in(self._disk, messages)
                total += sum(size_of(self._disk, f"{messages}/{name}") for name in names if is_segment(name))
        return total

    def _stream(self, account: str, directory: str) -> None:
        found = self._checked(account, directory, self._progress.advance)
        if self._repair and any(finding.mend for finding in found.findings):
            self._tails.put_in_place(directory)
            if found.is_replica and found.lost:
                mark_healing(self._disk, directory)
            repairs, failures = mend(found.findings)
            gone = found.lost
            if self._disk.is_directory(directory):
                found = self._checked(account, directory, lambda size: None)
            else:
                found.findings = []
            found.findings += failures
            found.repairs, found.gone = repairs, gone
        self.report.streams.append(found)

    def _checked(self, account: str, directory: str, advance: Callable[[int], None]) -> StreamReport:
        """Check one stream; return its report. `advance` is called with the size of each segment."""
        name = directory.rpartition("/")[2]
        report = StreamReport(unescaped(account), unescaped(name), directory)
        if self._never_begun(report):
            return report
        copies = Copies(self._disk, directory, KIND_STREAM, Opener(key_ring=self._key_ring))
        report.findings += copies.findings
        if copies.values is None and not copies.newer:
            self._from_segments(copies, directory)
        if copies.locked:
            LockedCheck(self._disk, report).run()
        if copies.newer or copies.values is None:
            if not copies.newer:
                what = "the stream has no readable configuration: it is not served"
                report.find(DAMAGE, directory, what).mend = partial(move_file_aside, self._disk, directory)
            return report
        try:
            config = from_meta(StreamConfig, copies.values["config"])
            report.name = config.name
            report.is_replica = config.num_replicas > 1 and bool(copies.values.get("group"))
            incarnation = int(copies.values["created_ns"])
            if not 0 <= incarnation < 1 << 64:
                raise ValueError(f"created_ns is {incarnation}")
            is_elsewhere = name != file_name(report.name)
        except (*NONSENSE, RecursionError) as error:
            what = f"its configuration says what this version does not know: {error}"
            report.find(UNCHECKED, directory, what)
            return report
        if is_elsewhere:
            what = f"it is of {report.name!r}, which belongs elsewhere: was it copied?"
            report.find(UNCHECKED, directory, what)
            return report
        key = copies.opener.key
        meta = b"" if key is None else encode(KIND_STREAM, copies.generation, copies.values, key)
        files = Files(self._disk, key, CODEC_ZSTD if config.compression == S2 else 0, meta)
        files.indexes = self._tails.of(directory)
        self._messages_directory(report)
        MessagesCheck(files, f"{directory}/msgs", incarnation, report, advance).run()
        StatesCheck(files, report).run()
        return report

    def _messages_directory(self, report: StreamReport) -> None:
        """Report a missing directory of messages, for example after a copy that omitted empty directories."""
        path = f"{report.directory}/msgs"
        if not self._disk.exists(path):
            what = (
                "the directory is missing; a start makes it: was the store copied without empty directories?"
            )
            report.find(NOTE, path, what).mend = partial(create_directory, self._disk, path)

    def _never_begun(self, report: StreamReport) -> bool:
        """Return whether the creation of a stream was interrupted before it was acknowledged; if so, report this."""
        directory = report.directory
        names = set(self._disk.list_dir(directory)) - {"meta.tmp", "msgs", "consumers"}
        inside = [*self._disk.list_dir(f"{directory}/msgs"), *self._disk.list_dir(f"{directory}/consumers")]
        if names or inside:
            return False
        finding = report.find(NOTE, directory, "a stream that was never begun; a start removes it")
        finding.mend = partial(remove_directory, self._disk, directory)
        return True

    def _from_segments(self, copies: Copies, directory: str) -> None:
        """Take the metadata from the newest META record, as a starting server does if no metadata file is intact."""
        # Sort by length first: a longer name has a higher number.
        names = sorted(self._disk.list_dir(f"{directory}/msgs"), key=len)
        for name in reversed(names):
            path = f"{directory}/msgs/{name}"
            if not is_segment(name):
                continue
            try:
                meta = meta_in(self._disk, path, copies.opener, around=True)
                if meta:
                    generation, values = decode(meta, KIND_STREAM, path, copies.opener)
                    copies.plan_rewrite(generation, values)
                    return
            except Locked as error:
                copies.newer = copies.locked = True
                copies.findings.append(finding_of(error, path))
                return
            except (CorruptRecord, UnknownFormat, OSError):
                continue


def mend(findings: list[Finding]) -> tuple[list[str], list[Finding]]:
    """Make the repairs of `findings`; return a description of each repair, and a finding for each failed repair."""
    done, failures = [], []
    for finding in findings:
        if finding.mend is None:
            continue
        try:
            done.append(finding.mend())
        except (PyjsError, OSError) as error:
            failures.append(Finding(DAMAGE, finding.path, f"it could not be repaired: {error}"))
    return done, failures


def find_store(disk: Disk, directory: str) -> str:
    """Return the store directory: `jetstream` in `directory` if that exists, otherwise `directory` itself.

    Raises:
        NotChecked: there is no store, or nats-server wrote it.
        OSError: the directory cannot be listed.
    """
    directory = directory.rstrip("/") or "/"
    if not disk.is_directory(directory):
        raise NotChecked(f"{directory} is no directory")
    below = f"{directory}/jetstream"
    root = below if disk.is_directory(below) else directory
    names = disk.list_dir(root)
    accounts = [name for name in names if disk.is_directory(f"{root}/{name}/streams")]
    for account in accounts:
        for stream in disk.list_dir(f"{root}/{account}/streams"):
            if disk.exists(f"{root}/{account}/streams/{stream}/meta.inf"):
                raise NotChecked(
                    f"{root} was written by nats-server (there is {account}/streams/{stream}/meta.inf):"
                    " pyjs-server import copies its streams"
                )
    if root == directory and not accounts and ".lock" not in names:
        raise NotChecked(
            f"{directory} holds no streams: give what store_dir says, or the directory `jetstream` in it"
        )
    return root


def unescaped(name: str) -> str:
    """Return the account or stream name of which `name` is the escaped file name.

    A long name was cut when it was escaped, so only its beginning and a digest are returned.
    """
    return ESCAPED.sub(
        lambda found: bytes.fromhex(found[0].replace("%", "")).decode("utf-8", "replace"), name
    )


def names_in(disk: Disk, directory: str) -> list[str]:
    """Return the names in a directory, or [] if the path is not a directory."""
    return disk.list_dir(directory) if disk.is_directory(directory) else []
