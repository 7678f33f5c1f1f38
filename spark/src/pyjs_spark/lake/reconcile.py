"""Comparison of an archive with its stream: by file names, by footers, and by each sequence.

The sequences and storage times in the files are joined with those of the messages that the stream still has
(frames.compared). A message that only the files have was removed from the stream later, which is no fault.
A message that only the stream has is a loss. No run of the archive would notice this loss, since the name of a
file covers the sequence. Different times of one sequence are a loss too: after the archive was written, the stream
lost its end, and stored other messages under the same sequences.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyjs_spark.errors import OptionError
from pyjs_spark.lake import archive, frames, lakes
from pyjs_spark.lake.archive import File, Holding, progress
from pyjs_spark.lake.files import file_system, uri
from pyjs_spark.lake.jobs import Job
from pyjs_spark.lake.lakes import Lake
from pyjs_spark.lake.tables.parquet import ParquetArchive, rows_in
from pyjs_spark.options.reading import Options
from pyjs_spark.options.values import Position

SHOWN = 100
COLUMNS = "seq bigint, ts_ns bigint"
LACKING, OTHER = "held_ns IS NULL", "held_ns <> there_ns"  # SQL conditions on the differences


@dataclass
class Reconciled:
    """The findings about one stream. Ranges are [low, high); long lists are truncated."""

    files: int = 0
    rows: int = 0
    checked: int = 0  # messages of the stream that were compared
    missing: int = 0  # messages of the stream that a file should contain but does not
    missing_seqs: list[int] = field(default_factory=list)
    replaced: int = 0  # messages of the stream whose sequence belongs to another message in the archive
    replaced_seqs: list[int] = field(default_factory=list)
    removed_since: int = 0  # rows whose message is no longer in the stream
    # ranges before the archive's end that no file covers
    missing_files: list[tuple[int, int]] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)  # ranges removed before they were archived
    doubled: list[tuple[int, int]] = field(default_factory=list)  # ranges that two files cover
    damaged: list[dict[str, str]] = field(default_factory=list)
    lag: int = 0  # number of sequences in the stream after the archive's last sequence
    other: str = ""  # creation time of the archived stream, if the present stream is a different one
    lost_end: str = ""  # a description, if the stream has less than the archive

    @property
    def loss(self) -> str:
        """Return one line about the losses and the damage of the archive, or "" if there are none."""
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
        """Return one line about missing and overlapping files, which can be repaired, or "" if there are none."""
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


def reconcile(spark: SparkSession, job: Job, stream: str) -> Reconciled:
    """Compare one stream with its archive, and return the findings.

    Raises:
        OptionError: there is no archive of the stream.
    """
    root = str(job["target"])
    (holding,) = lakes.look(Lake(root), _whole(job.options, stream))
    if holding.said is None:
        raise OptionError(f"folder {root}: there is no archive of the stream {stream}")
    how_far = progress(holding)
    found = Reconciled(other=how_far.other)
    if found.other:
        return found
    files = ParquetArchive(root, stream).files()
    state = holding.state
    found.files = sum(file.size > 0 for file in files)
    found.lost = list(how_far.lost)[:SHOWN]
    found.lost_end = archive.lost_end(holding)
    found.lag = max(0, state.end - holding.next)
    holes = list(archive.missing(state.first_seq, min(holding.next, state.end), holding.covered, 2**62))
    found.missing_files = holes[:SHOWN]
    found.doubled = _doubled(files)[:SHOWN]
    whole = [file for file in files if file.size and not _is_damaged(root, file, found)]
    _compare(spark, job, holding, [uri(root, file.path) for file in whole], found)
    return found


def _whole(options: Options, stream: str) -> Options:
    """Return the options for reading the whole stream, without the bounds of the checks."""
    return replace(
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


def _doubled(files: list[File]) -> list[tuple[int, int]]:
    found, end = [], 0
    for file in files:
        if not file.size:
            continue
        if file.low < end:
            found.append((file.low, min(end, file.high)))
        end = max(end, file.high)
    return found


def _is_damaged(root: str, file: File, found: Reconciled) -> bool:
    """Return whether a file is unreadable, or its sequences do not match its name.

    The rows of an intact file are counted in `found.rows`; a damaged file is added to `found.damaged`.
    """
    try:
        found.rows += rows_in(file_system(root)[0], file.path, file.low, file.high)
    except ValueError as why:
        found.damaged.append({"path": file.path, "why": str(why)})
        return True
    return False


def _compare(spark: SparkSession, job: Job, holding: Holding, paths: list[str], found: Reconciled) -> None:
    assert holding.said is not None
    state = holding.state
    low, high = state.first_seq, min(holding.next, state.end)
    held = spark.read.schema(COLUMNS).parquet(*paths) if paths else spark.createDataFrame([], COLUMNS)
    if low >= high:
        found.removed_since = held.count()
        return
    subjects = ",".join(holding.said["subjects"])
    more = {"subjects": subjects} if subjects else {}
    there = job.read_range(spark, COLUMNS, {state.name: (low, high)}, **more)
    covered = f.lit(True)
    for first, end in found.missing_files:
        covered = covered & ~f.col("seq").between(first, end - 1)
    there = there.where(covered).cache()
    found.checked = there.count()
    differing = frames.compared(held, there).cache()
    counts = differing.selectExpr(
        f"count_if({LACKING})", f"count_if({OTHER})", f"count_if(there_ns IS NULL AND seq < {high})"
    ).first()
    assert counts is not None
    found.missing, found.replaced, found.removed_since = counts
    found.missing_seqs = _first(differing.where(LACKING)) if found.missing else []
    found.replaced_seqs = _first(differing.where(OTHER)) if found.replaced else []
    differing.unpersist()
    there.unpersist()


def _first(differing: DataFrame) -> list[int]:
    return [row.seq for row in differing.orderBy("seq").limit(SHOWN).collect()]


def shown(found: Reconciled) -> dict[str, Any]:
    """Return the findings as values that can be written as JSON."""
    said: dict[str, Any] = json.loads(json.dumps(found.__dict__))
    return said
