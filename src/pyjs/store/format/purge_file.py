"""The purge file, which describes a purge; it exists from before the purge's first step until after the last.

A start that finds the file completes the purge: it removes every matching message below `before_seq`. Doing this
twice is harmless, since sequences are never used again. If the file is not a complete envelope, it was not durable
when the server stopped, so the purge had not begun.

    <stream>/purge      one envelope of kind 5, generation 1: {"subject": str, "before_seq": int}
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyjs.base.errors import CorruptRecord
from pyjs.store.format.meta import KIND_PURGE, Opener, decode, encode

if TYPE_CHECKING:
    from pyjs.base.disk import Disk
    from pyjs.store.crypt.keys import StreamKey

NAME = "purge"


class Purge(NamedTuple):
    """A purge of the messages that match `subject` and have a sequence below `before_seq`."""

    subject: str  # a filter; "": every subject
    before_seq: int


def encode_purge(purge: Purge, key: StreamKey | None) -> bytes:
    """Return the contents of the purge file, encrypted if there is a key."""
    return encode(KIND_PURGE, 1, {"subject": purge.subject, "before_seq": purge.before_seq}, key)


def read_purge(disk: Disk, path: str, key: StreamKey | None) -> Purge:
    """Return the purge of the file at `path`.

    Raises:
        CorruptRecord: the file is damaged.
        UnknownFormat: this version of the server cannot read the file.
        Locked: `key` cannot decrypt the file.
        OSError: the file cannot be read.
    """
    _, values = decode(disk.read_file(path), KIND_PURGE, path, Opener(key))
    subject, before_seq = values.get("subject"), values.get("before_seq")
    if not isinstance(subject, str) or not isinstance(before_seq, int) or not 0 < before_seq < 1 << 64:
        raise CorruptRecord(path, 0, "it does not say which messages are purged")
    return Purge(subject, before_seq)
