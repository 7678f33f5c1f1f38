"""Recasting, which rewrites a sealed segment with another compression or encryption.

The plain image does not change, so the offsets in index entries remain valid. A damaged segment is left
unchanged. The new file is read back and compared before it replaces the old one.

This module knows nothing of stores: store/file chooses segments and replaces the files. A job can run in any thread
and uses only files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.bad_pages import bad_page_count
from pyjs.base.disk import Disk, closing, write_file
from pyjs.base.errors import CorruptRecord
from pyjs.store.crypt.keys import StreamKey
from pyjs.store.format.image import UNREADABLE, encode_file, open_image, read_image
from pyjs.store.format.outer_header import HEADER, PlainImage, read_outer_header
from pyjs.store.format.packed import PackedImage
from pyjs.store.open_files import ReplacedFile

if TYPE_CHECKING:
    from pyjs.store.format.outer_header import Buffer

NEW = ".new"  # suffix of a file that is being written; a starting server removes such files


class Recast:
    """A job that rewrites one segment with the compression and encryption of its stream."""

    def __init__(
        self, disk: Disk, path: str, number: int, codec: int, key: StreamKey | None, meta: bytes
    ) -> None:
        self.path = path
        self.new_path = f"{path}{NEW}"
        self.number = number
        self.flags = 0  # the encoding of the new file
        self.old_flags = 0
        self.old: ReplacedFile | None = None  # the old file, opened when the new one is written
        self.stale = False  # the segment has changed since the job began: the new file must not be used
        self._disk = disk
        self._codec = codec
        self._key = key
        self._meta = meta

    def __call__(self) -> Exception | None:
        """Write and sync the new file, and set `flags` to its encoding; return the error, or None.

        If the encoding would not change, no file is written.
        """
        try:
            self._write()
        except UNREADABLE as error:
            return error
        return None

    def _write(self) -> None:
        with closing(self._disk, self._disk.open_read_only(self.path)) as fd:
            image = open_image(self._disk, self.path, fd, self._key)
            unreadable = bad_page_count()
            whole = _checked(image, self.path)
        self.old_flags = image.outer.flags if image.outer is not None else 0
        flags, parts = encode_file(whole, self._codec, self._key, self._meta)
        if flags == self.old_flags:
            self.flags = flags
            return  # compression does not make it smaller
        write_file(self._disk, self.new_path, parts)
        if read_image(self._disk, self.new_path, self._key) != whole:
            raise ValueError("what was written is not what it should be")
        if (
            bad_page_count() != unreadable
        ):  # a page of the map was replaced by zeros: keep the old file, which may be readable later
            raise ValueError("a page of it cannot be read any more")
        self.flags = flags
        self.old = ReplacedFile(self._disk, self.path)


def restore_plain(disk: Disk, path: str, key: StreamKey | None, meta: bytes) -> int:
    """Replace a compressed segment with its image, encrypted if there is a key; return the flags of the new file.

    The caller must sync the directory.

    Raises:
        CorruptRecord: part of the segment is damaged.
        Locked: another key encrypted the segment.
        OSError: a read or write failed; the file is unchanged.
    """
    with closing(disk, disk.open_read_only(path)) as fd:
        whole = _checked(open_image(disk, path, fd, key), path)
    flags, parts = encode_file(whole, 0, key, meta)
    write_file(disk, f"{path}{NEW}", parts)
    disk.rename(f"{path}{NEW}", path)
    return flags


def _checked(image: PlainImage, path: str) -> Buffer:
    """Return the whole image.

    Raises:
        CorruptRecord: a compressed chunk is damaged, or the header was unreadable when the image was opened.
    """
    if isinstance(image, PackedImage) and not image.is_whole():
        raise CorruptRecord(path, 0, "a compressed chunk is damaged")
    whole = image.whole()
    if image.outer is None and read_outer_header(bytes(whole[: HEADER.size]), path) is not None:
        raise CorruptRecord(path, 0, "its header could not be read a moment ago")
    return whole
