"""The target of a consumer's dead letters, read from the metadata of the consumer and of its stream.

Source: docs/dead-letters.md. nats-server stores such metadata and does not act on it; it reserves only `_nats.`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

STREAM_KEY = "_pyjs.dead_letter_stream"
PREFIX_KEY = "_pyjs.dead_letter_prefix"
KEYS_BEGIN = "_pyjs.dead_letter"
DEFAULT_PREFIX = "$DLQ"


class Target(NamedTuple):
    """The stream to which dead letters are sent, and the prefix of their subjects."""

    stream: str
    prefix: str  # the first tokens of the letters' subjects

    def subjects_of(self, stream: str) -> str:
        """Return the wildcard subject that matches the dead letters of all messages of `stream`."""
        return f"{self.prefix}.{stream}.>"


def target_of(of_stream: Mapping[str, str], of_consumer: Mapping[str, str]) -> Target | None:
    """Return the target of dead letters in the metadata of a consumer and its stream, or None if there is none.

    The metadata of the consumer overrides that of the stream.
    """
    name = of_consumer.get(STREAM_KEY, of_stream.get(STREAM_KEY, ""))
    if not name:
        return None
    return Target(name, of_consumer.get(PREFIX_KEY) or of_stream.get(PREFIX_KEY) or DEFAULT_PREFIX)
