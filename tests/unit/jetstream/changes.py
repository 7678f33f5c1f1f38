"""Creating, changing and removing consumers on a disk without a node."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyjs.base.disk import Disk
from pyjs.core.sink import Turn
from pyjs.jetstream.config.consumer import ConsumerConfig
from pyjs.jetstream.files.metadata import Change, MetadataWriter
from pyjs.jetstream.manage.persist import AccountFiles

if TYPE_CHECKING:
    from pyjs.jetstream.consumer.record import StateFile


def commit(disk: Disk, root: Path, change: Change) -> None:
    """Make a change durable."""
    MetadataWriter(Turn(), disk, str(root)).commit_now(change)


def make_consumer(
    files: AccountFiles,
    disk: Disk,
    root: Path,
    config: ConsumerConfig,
    state: bytes = b"state",
    stream: str = "S",
) -> StateFile:
    """Create a consumer with a state; return its open state file."""
    change = files.new_consumer(stream, config.durable_name, config, 88, state)
    commit(disk, root, change)
    return files.open_consumer(stream, change)
