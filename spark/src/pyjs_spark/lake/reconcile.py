"""Comparison of an archive with its stream: by file names, by rows, and by each sequence.

The sequences and times of storing in each file are compared with those of the stream in the file's range, as far as
the stream still has it. A message missing in the stream was removed since, which is not a fault. A message missing in
the file is a loss that no run of the archive would notice, since the file's name covers it. Different times are a
loss too: the stream lost its end after it was archived, and stored other messages under those sequences.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from pyjs_spark.errors import OptionError
from pyjs_spark.lake import archive
from pyjs_spark.lake.archive import Holding, NamedFile
from pyjs_spark.lake.files import file_system
from pyjs_spark.lake.progress import progress
from pyjs_spark.options.reading import Options
from pyjs_spark.options.values import Position
from pyjs_spark.read import modes as reading
from pyjs_spark.read.ranges import ReadRange

SHOWN = 100


@dataclass
class Reconciled:
    """The findings. Ranges are [low, high); long lists are cut."""

    files: int = 0
    rows: int = 0
    checked: int = 0  # messages of the stream that were looked for
    missing: int = 0  # messages of the stream that a file should have and has not
    missing_seqs: list[int] = field(default_factory=list)
    replaced: int = 0  # messages of the stream that have the sequence of another one in the archive
    replaced_seqs: list[int] = field(default_factory=list)
    removed_since: int = 0  # rows whose message the stream has no more
    missing_files: list[tuple[int, int]] = field(default_factory=list)  # not covered, though later ones are
    lost: list[tuple[int, int]] = field(default_factory=list)  # removed before they were archived
    doubled: list[tuple[int, int]] = field(default_factory=list)  # covered by two files
    damaged: list[dict[str, str]] = field(default_factory=list)
    lag: int = 0  # sequences after the archive's last one
    other: str = ""  # when the archive's stream was created, if there is another one by now
    lost_end: str = ""  # what is wrong, if the stream has less than the archive

    @property
    def loss(self) -> str:
        """Return a sentence about the loss, or ""."""
        told = []
        if self.other:
            told.append(f"the archive is of another stream, which was created at {self.other}")
        if self.lost_end:
            told.append(self.lost_end)
        if self.missing:
            told.append(
                f"files lack {self.missing} messages that the stream has, first {self.missing_seqs[0]}"
            )
        if self.replaced:
            told.append(
                f"{self.replaced} messages of the stream are others than the files have under their sequences, first "
                f"{self.replaced_seqs[0]}: the stream lost its end and went on"
            )
        if self.lost:
            count = sum(high - low for low, high in self.lost)
            told.append(f"{count} messages were removed before they were archived, first {self.lost[0][0]}")
        if self.damaged:
            told.append(f"{len(self.damaged)} files are damaged, first {self.damaged[0]['path']}")
        return "; ".join(told)

    @property
    def trouble(self) -> str:
        """Return a sentence about faults that can be repaired."""
        told = []
        if self.missing_files:
            low, high = self.missing_files[0]
            told.append(
                f"files are missing, first {low} to {high - 1}; the next run of the archive writes them"
            )
        if self.doubled:
            low, high = self.doubled[0]
            told.append(f"two files have the sequences {low} to {high - 1}; remove one of them")
        return "; ".join(told)


def reconcile(root: str, stream: str, options: Options) -> Reconciled:
    """Compare one stream with its archive. Raises OptionError if there is none."""
    whole = replace(
        options,
        streams=(stream,),
        starting_offsets=None,
        starting_ns=None,
        starting_times=(),
        ending_offsets=Position("latest"),
        ending_ns=None,
        ending_times=(),
        said=(),
    )
    (holding,) = archive.look(root, whole)
    if holding.said is None:
        raise OptionError(f"folder {root}: there is no archive of the stream {stream}")
    found = Reconciled()
    how_far = progress(holding)
    found.other = how_far.other
    if found.other:
        return found
    files = archive.named_files(root, stream)
    found.files = sum(not file.is_none for file in files)
    found.lost = list(how_far.lost)[:SHOWN]
    state = holding.state
    found.lost_end = archive.lost_end(holding)
    found.lag = max(0, state.end - holding.next)
    ends = archive.missing(state.first_seq, min(holding.next, state.end), holding.covered, 2**62)
    found.missing_files = list(ends)[:SHOWN]
    found.doubled = _doubled(files)[:SHOWN]
    for file in files:
        _compare(root, file, holding, whole, found)
    return found


def _doubled(files: list[NamedFile]) -> list[tuple[int, int]]:
    found, end = [], 0
    for file in files:
        if file.is_none:
            continue
        if file.low < end:
            found.append((file.low, min(end, file.high)))
        end = max(end, file.high)
    return found


def _compare(root: str, file: NamedFile, holding: Holding, options: Options, found: Reconciled) -> None:
    import numpy as np

    inside = _rows(root, file)
    if isinstance(inside, str):
        found.damaged.append({"path": file.path, "why": inside})
        return
    held, held_times = inside
    found.rows += len(held)
    low, high = max(file.low, holding.state.first_seq), min(file.high, holding.state.end)
    if low >= high:
        return
    there, times = _messages(holding, low, high, options)
    found.checked += len(there)
    missing = np.setdiff1d(there, held, assume_unique=True)
    found.missing += len(missing)
    found.missing_seqs += missing[: SHOWN - len(found.missing_seqs)].tolist()
    both, at_there, at_held = np.intersect1d(there, held, assume_unique=True, return_indices=True)
    replaced = both[times[at_there] != held_times[at_held]]
    found.replaced += len(replaced)
    found.replaced_seqs += replaced[: SHOWN - len(found.replaced_seqs)].tolist()
    found.removed_since += int((held < high).sum()) - len(both)


def _rows(root: str, file: NamedFile) -> Any:
    """Return the sequences in a file with their times, or the file's fault."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    if file.is_none:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    system, _ = file_system(root)
    try:
        rows = pq.read_table(file.path, columns=["seq", "ts_ns"], filesystem=system, partitioning=None)
        found, times = (rows.column(name).to_numpy() for name in ("seq", "ts_ns"))
    except (pa.ArrowException, OSError, KeyError) as error:
        return f"cannot be read: {' '.join(str(error).split())[:200]}"
    if len(found) and (found[0] < file.low or found[-1] >= file.high or np.any(np.diff(found) <= 0)):
        return f"sequences {found[0]} to {found[-1]} do not rise, or pass what its name says"
    return found, times


def _messages(holding: Holding, low: int, high: int, options: Options) -> Any:
    """Return the stream's sequences in a range, under the archive's filter, with their times."""
    import numpy as np

    assert holding.said is not None
    what = ReadRange(
        holding.state.name,
        low,
        high,
        tuple(holding.said["subjects"]),
        created=holding.state.created,
        columns=("seq", "ts_ns"),
        headers="false",
        **options.transport(),
        keeps_all=False,  # what leaves the stream now is in the archive already
        has_bodies=False,
    )
    none, batches = np.empty(0, np.int64), list(reading.read_range(options.connect, what))
    return tuple(
        np.concatenate([none, *(batch.column(name).to_numpy() for batch in batches)])
        for name in ("seq", "ts_ns")
    )


def shown(found: Reconciled) -> dict[str, Any]:
    """Return the findings for JSON."""
    said: dict[str, Any] = json.loads(json.dumps(found.__dict__))
    return said
