"""The metadata of a stream in one of its segments, used if the stream's metadata files are lost.

This module knows nothing of the stream's directory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.disk import closing
from pyjs.base.errors import CorruptRecord
from pyjs.store.crypt.keys import Locked
from pyjs.store.format.image import read_image
from pyjs.store.format.meta import KIND_STREAM, Opener, decode
from pyjs.store.format.outer_header import HEADER, clear_meta, is_encrypted
from pyjs.store.segment.scan import last_meta

if TYPE_CHECKING:
    from pyjs.base.disk import Disk

HEAD_SIZE = 1 << 20  # bytes at the start of an encrypted segment in which the unencrypted META record is


def meta_in(disk: Disk, path: str, opener: Opener, around: bool = False) -> bytes:
    """Return the envelope in the last META record of a segment, or b"" if there is none.

    The key of an encrypted segment is read from its unencrypted META record. With `around`, unreadable pages count
    as zeros.

    Raises:
        Locked: the key is unknown.
        CorruptRecord, UnknownFormat, OSError: the segment cannot be read.
    """
    with closing(disk, disk.open_read_only(path)) as fd:
        head = disk.read_at(fd, HEAD_SIZE, 0)
    if is_encrypted(head[: HEADER.size], path):
        clear = clear_meta(head, path)
        try:
            decode(clear, KIND_STREAM, path, opener)
        except CorruptRecord:
            if opener.key is None:
                raise Locked(path, "is encrypted, and the metadata with its key is damaged") from None
    return last_meta(bytes(read_image(disk, path, opener.key, around)))
