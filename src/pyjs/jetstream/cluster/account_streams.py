"""The assigned streams of one account: their names, their subjects, and the bytes that they reserve."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.jetstream import errcodes
from pyjs.jetstream.config.choices import FILE, MEMORY
from pyjs.subjects.overlap import SubjectTree, at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyjs.jetstream.cluster.assignments import Assignment
    from pyjs.jetstream.cluster.entries import Bounds
    from pyjs.jetstream.config.stream import StreamConfig


class AccountStreams:
    """The streams of one account by name."""

    def __init__(self) -> None:
        self._streams: dict[str, Assignment] = {}
        # subjects of the streams; the owner of a subject is the name of its stream
        self._subjects = SubjectTree()
        self._mirrors: dict[str, set[str]] = {}  # names of mirrors, by origin

    def __len__(self) -> int:
        return len(self._streams)

    def __iter__(self) -> Iterator[Assignment]:
        return iter(self._streams.values())

    def get(self, name: str) -> Assignment | None:
        """Return the stream with this name, or None if there is none."""
        return self._streams.get(name)

    def has_taker(self, subject: str, counts: Callable[[Assignment], bool]) -> bool:
        """Return whether any stream for which `counts` returns true has a subject that overlaps `subject`."""
        if not at_once(self._subjects.overlapping(subject)):
            return False
        for each in self:
            if counts(each):
                tree = SubjectTree()
                for taken in each.config.subjects:
                    tree.add(taken, each.name)
                if at_once(tree.overlapping(subject)):
                    return True
        return False

    def put(self, assignment: Assignment) -> None:
        """Add a stream, or replace the stream of the same name."""
        old = self._streams.get(assignment.name)
        known = set(old.config.subjects) if old is not None else set()
        wanted = set(assignment.config.subjects)
        for subject in known - wanted:
            self._subjects.remove(subject, assignment.name)
        for subject in wanted - known:
            self._subjects.add(subject, assignment.name)
        self._forget_mirror(old)
        self._streams[assignment.name] = assignment
        if assignment.config.mirror is not None:
            self._mirrors.setdefault(assignment.config.mirror.name, set()).add(assignment.name)

    def remove(self, name: str) -> None:
        """Remove a stream.

        Raises:
            KeyError: there is no stream with this name.
        """
        old = self._streams.pop(name)
        for subject in set(old.config.subjects):
            self._subjects.remove(subject, name)
        self._forget_mirror(old)

    def _forget_mirror(self, old: Assignment | None) -> None:
        if old is not None and old.config.mirror is not None:
            mirrors = self._mirrors[old.config.mirror.name]
            mirrors.discard(old.name)
            if not mirrors:
                del self._mirrors[old.config.mirror.name]

    def mirrors(self, name: str) -> list[str]:
        """Return the names of the mirrors of a stream."""
        return sorted(self._mirrors.get(name, ()))

    def check_limits(self, config: StreamConfig, bounds: Bounds) -> None:
        """Refuse a new or updated stream that exceeds a limit of the account.

        Raises:
            ApiError: the limit on streams or on reserved bytes is exceeded.
        """
        if bounds.max_streams <= 0 and bounds.max_bytes < 0:
            return
        others = [each.config for each in self if each.name != config.name]
        if bounds.is_tier:
            others = [each for each in others if each.num_replicas == config.num_replicas]
        if config.name not in self._streams and 0 < bounds.max_streams <= len(others):
            raise errcodes.MAXIMUM_STREAMS_LIMIT.error()
        self._check_bytes([each for each in others if each.storage == config.storage], config, bounds)

    def check_subjects(self, config: StreamConfig) -> None:
        """Refuse a stream whose subjects overlap with those of another stream.

        Raises:
            ApiError: a subject overlaps.
        """
        if any(at_once(self._subjects.overlapping(subject, config.name)) for subject in config.subjects):
            raise errcodes.STREAM_SUBJECT_OVERLAP.error()

    @staticmethod
    def _check_bytes(others: list[StreamConfig], config: StreamConfig, bounds: Bounds) -> None:
        def reserved(of: StreamConfig) -> int:
            return max(of.max_bytes, 0) * (1 if bounds.is_tier else of.num_replicas)

        need = reserved(config) if config.max_bytes > 0 else 1
        if 0 <= bounds.max_bytes < sum(map(reserved, others)) + need:
            full = {MEMORY: errcodes.MEMORY_RESOURCES_EXCEEDED, FILE: errcodes.STORAGE_RESOURCES_EXCEEDED}
            raise full[config.storage].error()
