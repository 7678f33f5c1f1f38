"""Compaction of the logs of groups: which are full, and how far each may be cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.consensus.engine import RaftError, Role, node_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Set

    from pyjs.consensus.engine import Groups
    from pyjs.consensus.log.node_log import NodeLog
    from pyjs.consensus.member import Member

PATIENCE = 4  # a log may grow to so many times its size for a replica that is behind


class Compaction:
    """The groups whose log has grown too large."""

    def __init__(self, engine: Groups, log: NodeLog, size_max: int, silent: Set[int]) -> None:
        self._engine = engine
        self._log = log
        self._size_max = size_max  # bytes of the log of one group
        self._silent = silent  # nodes that do not answer
        self._full: dict[int, None] = {}

    @property
    def is_idle(self) -> bool:
        """Whether no log waits."""
        return not self._full

    def begin(self, member: Member) -> None:
        """Begin to watch the log of a group."""
        member.compact_at = self._size_max

    def check(self, member: Member) -> None:
        """Queue a group if its log is full."""
        if member.log_size > member.compact_at:
            self._full[member.group] = None

    def add(self, groups: Iterable[int]) -> None:
        """Queue groups that hold a file of the log which is needed again."""
        self._full.update(dict.fromkeys(groups))

    def take(self) -> int:
        """Return a queued group."""
        group, _ = self._full.popitem()
        return group

    def may_cut(self, member: Member) -> bool:
        """Whether the log of a queued group may be cut now; if not, it is queued again when it has grown."""
        member.compact_at = member.log_size + self._size_max // 4
        start = self._log.groups[member.group].start
        is_urgent = member.group in self._log.crowding()
        return member.applied > start and (is_urgent or not self._is_behind(member))

    def must_drop(self, member: Member) -> bool:
        """Whether the log of a stopped replica, which nothing applies, has reached its limit."""
        member.compact_at = member.log_size + self._size_max // 4
        is_large = member.log_size > PATIENCE * self._size_max
        return is_large or member.group in self._log.crowding()

    def cut(self, member: Member, state: bytes) -> bool:
        """Stage the state after the last applied entry as the start of the log.

        Raises:
            CorruptRecord: the log of the group is damaged.
        """
        try:
            index, term, conf = self._engine.compact(member.group, member.applied)
        except RaftError:
            return False  # a snapshot for it is on the way
        self._log.point(member.group, index, term, conf, state)
        member.note_cut()
        member.compact_at = self._size_max
        return True

    def _is_behind(self, member: Member) -> bool:
        """Whether a replica that answers needs entries before the new start; for a while the log waits for it."""
        if member.role != Role.LEADER or member.log_size > PATIENCE * self._size_max:
            return False
        matched = self._engine.status(member.group).matched
        return any(index < member.applied and node_of(peer) not in self._silent for peer, index in matched)
