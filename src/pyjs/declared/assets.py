"""Declared assets: the streams and consumers of one account that must exist.

A declared bucket is represented by its stream. This module knows nothing of files and of stored streams.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyjs.config.errors import Place
    from pyjs.config.options import AccountJetStreamOptions, JetStreamOptions
    from pyjs.jetstream.config.consumer import ConsumerConfig
    from pyjs.jetstream.config.stream import StreamConfig


@dataclass(frozen=True, slots=True)
class StreamAsset:
    """A declared stream, key-value bucket or object store."""

    kind: str  # stream, kv or object_store
    shown_name: str  # the name in the file
    config: StreamConfig  # as requested: limits and defaults are not filled in
    place: Place
    allow_data_loss: bool = False

    @property
    def name(self) -> str:
        """The name of the stream."""
        return self.config.name


@dataclass(frozen=True, slots=True)
class ConsumerAsset:
    """A declared consumer, which is durable."""

    stream: str
    config: ConsumerConfig  # as requested
    place: Place
    allow_data_loss: bool = False
    kind: str = "consumer"

    @property
    def name(self) -> str:
        """The name of the consumer."""
        return self.config.durable_name

    @property
    def shown_name(self) -> str:
        """The name of the stream and the name of the consumer, for messages."""
        return f"{self.stream} > {self.name}"


@dataclass(frozen=True, slots=True)
class AccountAssets:
    """The assets of one account, and the limits by which the server checks them."""

    account: str
    server: JetStreamOptions
    limits: AccountJetStreamOptions
    is_clustered: bool = False
    streams: dict[str, StreamAsset] = field(default_factory=dict)  # by name of the stream
    consumers: dict[tuple[str, str], ConsumerAsset] = field(default_factory=dict)  # by stream and name
