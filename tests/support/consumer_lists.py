"""The list of a stream's consumers: tests read and damage it."""

from __future__ import annotations

from pathlib import Path

from pyjs.base.disk import OsDisk
from pyjs.store.format.meta import Opener
from pyjs.store.state.consumer_list import MARK, list_paths, load_list


def listed(stream: Path) -> list[str]:
    """Return the names of the consumers that are listed in the directory of a stream."""
    found = load_list(OsDisk(), str(stream), Opener())
    assert not found.gaps
    return sorted(found.live)


def damage_entry(stream: Path, number: int) -> None:
    """Damage an entry in both copies; the head is number 0."""
    for path in map(Path, list_paths(str(stream))):
        parts = path.read_bytes().split(MARK)
        parts[number + 1] = parts[number + 1][:-4] + b"\x31\x31\x31\x31"
        path.write_bytes(MARK.join(parts))


def begin_state(consumer: object) -> None:
    """Make the files of a consumer's state, as its first delivery does."""
    file = getattr(getattr(consumer, "keeper", None), "file", None)
    assert file is not None
    file.append(b"")
