"""What the consumers of a workqueue stream claim: subjects that no two of them may share.

Knows nothing of messages; jetstream/rules/consumer.py asks before a consumer is made or changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.subjects.overlap import SubjectTree

if TYPE_CHECKING:
    from pyjs.jetstream.config.consumer import ConsumerConfig


class Claims:
    """The subjects of each consumer of one stream."""

    def __init__(self) -> None:
        self.tree = SubjectTree()
        self._claimed: dict[str, tuple[str, ...]] = {}  # by the name of the consumer

    def put(self, name: str, config: ConsumerConfig) -> None:
        """Note what the consumer called `name` claims, in place of what it did before."""
        self.remove(name)
        if config.direct or config.sourcing:
            return
        self._claimed[name] = config.filters or (">",)
        for subject in self._claimed[name]:
            self.tree.add(subject, name)

    def remove(self, name: str) -> None:
        """Forget the consumer called `name`."""
        for subject in self._claimed.pop(name, ()):
            self.tree.remove(subject, name)
