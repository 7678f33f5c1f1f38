"""Permissions of a user: allow and deny lists of subjects for publish and subscribe.

Decisions follow nats-server: an empty or missing allow list allows everything, deny wins over allow, and a
subscription must lie inside one allow entry. A wildcard subscription that overlaps a deny entry is allowed,
but the denied messages are not delivered to it (`filters_messages`, Sink.accepts).

Source: nats.docs "Authorization"; tests/conformance/scenarios/auth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyjs.core.auth.decisions import Decisions
from pyjs.subjects.sublist import Sublist, Subscription
from pyjs.subjects.tokens import is_subset, subject_has_wildcard, subject_matches, subjects_overlap

if TYPE_CHECKING:
    from collections.abc import Iterable

FEW = 8  # the entries of a list with at most this many are compared one by one


class ResponsePermission(NamedTuple):
    """Permission to publish to reply subjects of received messages (allow_responses)."""

    messages_max: int  # answers per reply subject; < 1: unlimited
    expires_ns: int  # time to answer, in ns; < 1: no limit


def _split(entry: str) -> tuple[bytes, bytes]:
    """Return (subject, queue) of a list entry; the queue is b"" if the entry names only a subject."""
    subject, _, queue = entry.partition(" ")
    return subject.encode(), queue.strip().encode()


def _plain(entries: Iterable[str]) -> list[tuple[bytes, bytes]]:
    return [(entry.encode(), b"") for entry in entries]


class Filters:
    """One list of allowed or denied subjects. Up to FEW entries are compared one by one; longer lists use a trie."""

    __slots__ = ("_trie", "entries")

    def __init__(self, entries: list[tuple[bytes, bytes]]) -> None:
        self.entries = entries  # (subject, queue)
        self._trie: Sublist | None = None
        if len(entries) > FEW:
            self._trie = Sublist()
            for subject, queue in entries:
                self._trie.insert(Subscription(None, subject, b"", queue))

    def match(self, subject: bytes) -> bool:
        """Return whether an entry without a queue matches the literal `subject`; an empty token never matches."""
        if not all(subject.split(b".")):
            return False
        if self._trie is None:
            return any(not queue and subject_matches(subject, entry) for entry, queue in self.entries)
        return any(not found.sid for found in self._trie.match(subject))

    def queues_matching(self, subject: bytes) -> list[bytes]:
        """Return the queue of each entry that matches `subject`, or b"" for an entry without a queue.

        Wildcards in `subject` count as ordinary text: the entry `a.>` matches the subject `a.*`.
        """
        if self._trie is None:
            return [queue for entry, queue in self.entries if subject_matches(subject, entry)]
        return [found.sid for found in self._trie.match(subject)]

    def queues_holding(self, subject: bytes) -> list[bytes]:
        """Return the queue of each entry that covers `subject`, or b"" for an entry without a queue."""
        if self._trie is None:
            return [queue for entry, queue in self.entries if is_subset(subject, entry)]
        return [found.sid for found in self._trie.covering(subject)]


def _queue_matches(queue: bytes, patterns: list[bytes]) -> bool:
    return any(
        queue == pattern or (subject_has_wildcard(pattern) and is_subset(queue, pattern))
        for pattern in patterns
    )


def _sorted(queues: list[bytes]) -> tuple[bool, list[bytes]]:
    """Return whether `queues` contains the empty name, and the list of all other names."""
    return any(not queue for queue in queues), [queue for queue in queues if queue]


class Permissions:
    """The allow and deny lists of one user, with a cache of publish decisions."""

    def __init__(
        self,
        publish_allow: Iterable[str] | None = None,
        publish_deny: Iterable[str] = (),
        subscribe_allow: Iterable[str] | None = None,
        subscribe_deny: Iterable[str] = (),
        responses: ResponsePermission | None = None,
    ) -> None:
        self.publish_allow = None if publish_allow is None else Filters(_plain(publish_allow))
        self.publish_deny = Filters(_plain(publish_deny))
        self.subscribe_allow = Filters([_split(entry) for entry in subscribe_allow or ()])
        self.subscribe_deny = Filters([_split(entry) for entry in subscribe_deny])
        self.responses = responses
        self.decisions = Decisions()  # cached decisions about publishing

    def denying(self, subject: str) -> Permissions:
        """Return a copy of these permissions that also denies publishing to `subject`."""
        denied = Permissions(responses=self.responses)
        denied.publish_allow = self.publish_allow
        denied.publish_deny = Filters([*self.publish_deny.entries, (subject.encode(), b"")])
        denied.subscribe_allow, denied.subscribe_deny = self.subscribe_allow, self.subscribe_deny
        return denied

    def same_as(self, other: Permissions | None) -> bool:
        """Return whether `other` has equal lists and an equal permission for responses."""
        return other is not None and self._lists() == other._lists()

    def _lists(self) -> tuple[object, ...]:
        return (
            None if self.publish_allow is None else self.publish_allow.entries,
            self.publish_deny.entries,
            self.subscribe_allow.entries,
            self.subscribe_deny.entries,
            self.responses,
        )

    @property
    def limits_publishing(self) -> bool:
        """Whether publishes need a check."""
        return self.publish_allow is not None or bool(self.publish_deny.entries)

    def may_publish(self, subject: bytes) -> bool:
        """Return whether the lists allow publishing to `subject`; the session itself checks allow_responses."""
        allowed = self.decisions.get(subject)
        if allowed is None:
            allowed = self.publish_allow is None or self.publish_allow.match(subject)
            allowed = allowed and not self.publish_deny.match(subject)
            self.decisions.put(subject, allowed)
        return allowed

    def may_subscribe(self, subject: bytes, queue: bytes) -> bool:
        """Return whether a SUB of `subject` in group `queue` (b"" for none) is allowed."""
        allowed = True
        # no entry matches an empty token; the session refuses such a subject later, as invalid
        if not all(subject.split(b".")):
            return not self.subscribe_allow.entries
        if self.subscribe_allow.entries:
            plain, queues = _sorted(self.subscribe_allow.queues_holding(subject))
            allowed = _queue_matches(queue, queues) if queue and queues else plain
        return allowed and not self._denies(subject, queue)

    def _denies(self, subject: bytes, queue: bytes) -> bool:
        """Return whether the deny list forbids a subscription to `subject` in group `queue` (b"" for none)."""
        if not self.subscribe_deny.entries:
            return False
        plain, queues = _sorted(self.subscribe_deny.queues_matching(subject))
        return plain or bool(queue and queues and _queue_matches(queue, queues))

    def filters_messages(self, subject: bytes, queue: bytes) -> bool:
        """Return whether the deny list forbids some of the messages of this allowed subscription."""
        if not queue and not subject_has_wildcard(subject):
            return False
        return any(subjects_overlap(entry, subject) for entry, _ in self.subscribe_deny.entries)

    def may_receive(self, subject: bytes, queue: bytes) -> bool:
        """Return whether a message of the literal `subject` may go to a subscription in `queue` (b"" for none)."""
        return not self._denies(subject, queue)
