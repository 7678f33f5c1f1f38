"""Stored streams that this server cannot serve, because a newer server stored them.

Such a stream is offline: its files stay, requests get the reason as an error, and the only possible change is
deletion.

Source: ADR-44, and nats-server's jetstream_versioning.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyjs.base.errors import PyjsError
from pyjs.base.gotext import quoted
from pyjs.jetstream.config.declared import from_meta, shape_of
from pyjs.jetstream.config.level import level_problem
from pyjs.jetstream.config.stream import StreamConfig

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from pyjs.store.format.meta import UnknownFormat


class Offline(NamedTuple):
    """A stored stream that this server cannot serve."""

    config: StreamConfig  # the options that this server knows
    reason: str
    consumer: str = ""  # name of the consumer that makes the stream offline; "": none does
    consumer_reason: str = ""

    @property
    def cause(self) -> str:
        """The reason, followed by that of the consumer if there is one."""
        return f"{self.reason}: {self.consumer_reason}" if self.consumer_reason else self.reason


class NewerConsumer(PyjsError):
    """Raised if a stored consumer needs a higher API level, or a newer version wrote its files.

    The name "" stands for the list of consumers.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"consumer {name!r}: {reason}")
        self.name = name
        self.reason = reason
        which = f"consumer {quoted(name)}" if name else "list of consumers"
        self.of_stream = f"stopped - unsupported {which}"  # why the whole stream is offline


def newer_consumer(name: str, error: UnknownFormat) -> NewerConsumer:
    """Return the error for a consumer whose files have another version; "" stands for the list of consumers."""
    return NewerConsumer(name, f"its file {str(error).removeprefix(f'{error.path} ')}")


def offline_stream(values: Mapping[str, Any]) -> Offline | None:
    """Return the stream in stored metadata as an offline stream, or None if this server can serve it.

    Raises:
        ValueError: the value of an option has the wrong kind.
    """
    unknown = sorted(values.keys() - shape_of(StreamConfig).attributes.keys())
    metadata = values.get("metadata", {})
    problem = level_problem(metadata) if isinstance(metadata, dict) else ""
    if not unknown and not problem:
        return None
    if unknown:
        kind = "unsupported - config error" if problem else "decoding error: json"
        problem = f'{kind}: unknown field "{unknown[0]}"'
    return Offline(
        from_meta(StreamConfig, {key: values[key] for key in values.keys() - set(unknown)}), problem
    )
