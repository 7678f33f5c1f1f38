"""Progress of an archive: its gaps compared with the streams, and the size of its next run.

Pure functions of what `archive.look` found. A range after the first file that no file covers is a gap. The next run
writes it if the stream still has it; otherwise it is lost, unless consumers removed it (work queues).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyjs_spark.lake.archive import Holding, lost_end, missing
from pyjs_spark.read.ranges import ReadRange


@dataclass(frozen=True, slots=True)
class ArchiveProgress:
    """One stream and its part of the archive. Ranges are [low, high)."""

    stream: str
    first: int  # the stream's first sequence
    last: int  # and its last; 0 if there never was a message
    files: int
    next: int  # after the last archived sequence
    lag: int  # sequences that the next run writes
    lost: tuple[tuple[int, int], ...]  # removed before they were archived
    other: str  # when the archive's stream was created, if the present stream is another one; else ""
    lost_end: str  # a description, if the stream has less than the archive; else ""


@dataclass(frozen=True, slots=True)
class Planned:
    """One file of the next run; a range that spans midnight has one for each day."""

    stream: str
    low: int
    high: int  # exclusive
    rows: int  # about, never more than the range has sequences
    size: int  # bytes in the stream, about; Parquet files are smaller, mostly


def progress(holding: Holding) -> ArchiveProgress:
    """Return the progress of one stream's archive."""
    state, covered = holding.state, holding.covered
    is_other = holding.said is not None and holding.said["created"] != state.created
    ends = [low for low, _ in covered[:1]]
    left = [] if is_other else missing(state.first_seq, state.end, covered, max(1, state.end))
    gone = missing(min(ends, default=state.first_seq), state.first_seq, covered, max(1, state.end))
    return ArchiveProgress(
        stream=state.name,
        first=state.first_seq,
        last=state.last_seq,
        files=holding.files,
        next=holding.next,
        lag=sum(high - low for low, high in left),
        lost=() if is_other or state.is_consumed else tuple(gone),
        other=str(holding.said["created"]) if is_other and holding.said is not None else "",
        lost_end="" if is_other else lost_end(holding),
    )


def planned(holdings: Iterable[Holding], ranges: Iterable[ReadRange]) -> list[Planned]:
    """Return the size of the next run; rows and bytes are estimated from each stream's mean."""
    states = {holding.state.name: holding.state for holding in holdings}
    found = []
    for each in ranges:
        state = states[each.stream]
        count, total = each.high - each.low, state.end - state.first_seq
        found.append(
            Planned(
                each.stream,
                each.low,
                each.high,
                rows=-(-state.messages * count // total),
                size=-(-state.size * count // total),
            )
        )
    return found
