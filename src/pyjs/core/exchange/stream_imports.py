"""The stream imports of one account: shadows of its subscriptions in the exporting accounts.

A subscription that overlaps with the local subject of an import gets a shadow in the exporting account, on the
subjects common to both. Called for each SUB and UNSUB of an account that imports streams.

Source: nats-server 2.15.1 (tests/conformance/scenarios/exchange).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyjs.core.exchange.shadow import Shadow
from pyjs.subjects.rewrite import Rewrite
from pyjs.subjects.sublist import Subscription
from pyjs.subjects.tokens import is_subset, subjects_overlap

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyjs.config.exchange.declared import StreamImport
    from pyjs.core.account import Account


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """One stream import, prepared for new subscriptions."""

    account: Account  # the exporting account
    subject: bytes
    pattern: bytes  # the local subject, with wildcards
    forward: Rewrite | None  # transforms subjects of the exporting account to local subjects
    backward: Rewrite | None
    local: bytes  # literal subject for all messages in this account; b"": none
    allow_trace: bool

    @classmethod
    def of(cls, declared: StreamImport, account: Account) -> Source:
        """Return the prepared form of the import `declared`, which imports from `account`."""
        local = declared.local()
        pattern = local.pattern.encode()
        fixed = local.transform is None and not local.same
        return cls(
            account,
            declared.subject.encode(),
            pattern,
            None if local.transform is None else Rewrite(local.transform),
            None if local.backward is None else Rewrite(local.backward),
            pattern if fixed else b"",
            declared.allow_trace,
        )

    def shadowed(self, subject: bytes) -> bytes | None:
        """Return the subject of the shadow for a subscription to `subject`, or None if no shadow is needed."""
        if subject == self.pattern or is_subset(self.pattern, subject):
            return self.subject
        if not subjects_overlap(subject, self.pattern):
            return None
        common = subject if is_subset(subject, self.pattern) else narrowed(subject, self.pattern)
        if self.local:
            return self.subject
        return common if self.backward is None else self.backward.subject(common)


def narrowed(subject: bytes, pattern: bytes) -> bytes:
    """Return the intersection of two overlapping subjects, as a subject."""
    ours, theirs = subject.split(b"."), pattern.split(b".")
    common: list[bytes] = []
    for at, token in enumerate(ours):
        if token == b">":
            return b".".join([*common, *theirs[at:]])
        if theirs[at] == b">":
            return b".".join([*common, *ours[at:]])
        common.append(theirs[at] if token == b"*" else token)
    return b".".join(common)


class StreamImports:
    """The stream imports of one account."""

    def __init__(self, importer: str) -> None:
        self._importer = importer  # the name of the account
        self._sources: dict[StreamImport, Source] = {}
        self._shadows: dict[int, list[tuple[Source, Subscription]]] = {}  # by id of the subscription

    def apply(self, account: Account, wanted: list[tuple[StreamImport, Account]]) -> None:
        """Replace the imports of `account`, and apply the new ones to its current subscriptions.

        Unchanged imports are kept.
        """
        present = {each for each, _ in wanted}
        removed = {source for each, source in self._sources.items() if each not in present}
        self._sources = {each: source for each, source in self._sources.items() if each in present}
        if removed:
            for key in list(self._shadows):
                self._drop(key, removed)
        added = [(each, Source.of(each, exporter)) for each, exporter in wanted if each not in self._sources]
        self._sources.update(added)
        for sub in account.subs.subscriptions() if added else ():
            self._join(sub, [source for _, source in added])

    def subscribed(self, sub: Subscription) -> None:
        """Add the shadows of a new subscription."""
        self._join(sub, self._sources.values())

    def _join(self, sub: Subscription, sources: Iterable[Source]) -> None:
        if getattr(sub.sink, "internal", False):
            return  # service imports and responses do not use stream imports
        shadows = []
        for source in sources:
            subject = source.shadowed(sub.subject)
            if subject is None:
                continue
            sink = Shadow(sub, source.forward, source.local, self._importer, source.allow_trace)
            shadow = Subscription(sink, subject, sub.queue, sub.sid)
            shadow.filtered = sub.filtered
            source.account.add_plain(shadow)
            shadows.append((source, shadow))
        if shadows:
            self._shadows.setdefault(id(sub), []).extend(shadows)

    def unsubscribed(self, sub: Subscription) -> None:
        """Remove the shadows of a subscription that ended."""
        if id(sub) in self._shadows:
            self._drop(id(sub), None)

    def _drop(self, key: int, removed: set[Source] | None) -> None:
        """Remove shadows of a subscription: those of the imports in `removed`, or all if `removed` is None."""
        shadows = self._shadows.pop(key)
        stay = [each for each in shadows if removed is not None and each[0] not in removed]
        for source, shadow in shadows:
            if removed is None or source in removed:
                source.account.remove_plain(shadow)
        if stay:
            self._shadows[key] = stay
