"""An unfinished purge, which a kill interrupted. Readers ignore the messages that it still had to remove.

    <stream>/purge      one envelope of kind 5: {"subject": str, "before_seq": int}

Source: docs/storage-format.md, "Purge".
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyjs_spark.decode.entries import EXTENDED, HEAD_SIZE
from pyjs_spark.store.contents import Contents
from pyjs_spark.store.directory import StreamPlace
from pyjs_spark.store.envelope import purge_in
from pyjs_spark.store.image import Image, Unusable
from pyjs_spark.subjects import Filters, is_any

NAME = "purge"


@dataclass(frozen=True, slots=True)
class Purge:
    """An unfinished purge, which removes the messages of a subject below a sequence."""

    subject: str  # a filter; "": every subject
    before_seq: int


def purge_of(stream: StreamPlace) -> Purge | None:
    """Return the unfinished purge that a killed server left behind, or None.

    Raises:
        BadStore: a newer version wrote the file.
        StoreKeyNeeded: the file is encrypted with another key than the stream's.
        Unusable: the file is damaged or incomplete.
    """
    path = f"{os.path.dirname(stream.messages)}/{NAME}"
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        return None
    if not data.strip(b"\0"):
        return None  # the file is new, so the server had not begun the purge
    said = purge_in(data, path, stream.metadata.key)
    if said is None:
        raise Unusable(f"{path} is damaged or incomplete, from byte 0 on")
    return Purge(*said)


def matching(contents: Contents, rows: Any, image: Image, filters: Filters) -> Any:
    """Return a mask of `rows` that is true for the entries whose subjects match one of `filters`."""
    if contents.names is not None:
        wanted = np.array([is_any(name, filters) for name in contents.names], np.bool_)
        return wanted[rows["subject_id"]]
    data = image.read(0, image.size)
    begins = rows["offset"].astype(np.int64) + HEAD_SIZE + np.where(rows["flags"] & EXTENDED, 16, 0)
    known: dict[bytes, bool] = {}
    found = np.zeros(len(rows), np.bool_)
    for at, (begin, size) in enumerate(zip(begins.tolist(), rows["subject_len"].tolist(), strict=True)):
        name = data[begin : begin + size]
        if name not in known:
            known[name] = is_any(name, filters)
        found[at] = known[name]
    return found
