"""The contents of one segment, from its index file or from its records: entries of messages, and removals."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pyjs_spark.decode.entries import ENTRY

STATE, DELETES, FOOTER, META = 2, 3, 4, 5  # kinds of records other than messages


@dataclass(slots=True)
class Contents:
    """The contents of one segment; its entries include messages whose removal is recorded elsewhere."""

    number: int
    incarnation: int
    base_seq: int
    next_seq: int  # the sequence after the segment's last one
    end: int  # size of header and records in the image, in bytes
    chain: int  # checksum of the last record
    is_sealed: bool
    floor: int  # messages with lower sequences, in any segment, were removed; 0: none
    last_ts: int
    messages: int
    message_bytes: int
    entries: Any  # entries of the segment's messages, ascending, as ENTRY
    removals: Any  # the sequences in its DELETES records, as uint64
    names: list[bytes] | None = None  # names by the entries' subject_id; None if entries have none

    def summary(self) -> Contents:
        """Return a copy without the entries, which take the most memory."""
        return replace(self, entries=no_entries(), names=None)


def no_entries() -> Any:
    """Return an empty array of entries."""
    return np.zeros(0, ENTRY)
