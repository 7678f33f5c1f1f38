"""The report of a check, as text for people and as JSON for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from pyjs.fsck.findings import DAMAGE, LOCKED, NOTE, UNCHECKED, count_of, range_text

if TYPE_CHECKING:
    from typing import Any

    from pyjs.fsck.findings import ConsumerReport, Finding, NodeLogReport, StoreReport, StreamReport

WORDS = {DAMAGE: "DAMAGE", NOTE: "note", UNCHECKED: "NOT CHECKED", LOCKED: "NOT CHECKED"}
RANGES_SHOWN = 20  # maximum number of ranges of sequences in the text
CONSUMERS_SHOWN = 20  # maximum number of consumers of one stream in the text
FIELDS = ("account", "name", "directory", "segments", "messages", "bytes", "first_seq", "last_seq")
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size_text(size: float) -> str:
    """Return a size in bytes as text with a binary unit, such as `1.5 MiB`."""
    unit = 0
    while size >= 1024 and unit + 1 < len(UNITS):
        size /= 1024
        unit += 1
    return f"{size:.0f} {UNITS[unit]}" if unit == 0 else f"{size:.1f} {UNITS[unit]}"


def lines_of(report: StoreReport, *, quiet: bool) -> list[str]:
    """Return the lines of a report, with paths relative to its root.

    With `quiet`, omit the store directory, the node log, notes and consumers. Also omit a stream without repairs if
    all its findings are notes.
    """
    lines = [] if quiet else [f"Store directory {report.root}"]
    for stream in report.streams:
        lines += _stream_lines(report, stream, quiet)
    if report.node_log is not None and not quiet:
        lines.append(_node_log_line(report.node_log))
    lines += _finding_lines(report, report.findings, quiet)
    lines += [f"  repaired: {_below(report, text)}" for text in report.repairs]
    return [*lines, summary(report)]


def _stream_lines(report: StoreReport, stream: StreamReport, quiet: bool) -> list[str]:
    findings = _finding_lines(report, stream.findings, quiet)
    if quiet and not findings and not stream.repairs:
        return []
    sequences = (
        f"sequences {stream.first_seq} to {stream.last_seq}" if stream.last_seq else "no sequence used"
    )
    lines = [
        f"{stream.account} > {stream.name}: {_count(stream.messages, 'message')}, {size_text(stream.bytes)},"
        f" {sequences}, {_count(stream.segments, 'segment')}, {_count(len(stream.consumers), 'consumer')}"
    ]
    lines += findings
    if stream.lost:
        lines.append(f"  lost: {_ranges(stream.lost)}")
    lines += [f"  repaired: {_below(report, text)}" for text in stream.repairs]
    if stream.gone:
        lines.append(f"  lost for good: {_ranges(stream.gone)}")
    if not quiet:
        lines += [_consumer_line(each) for each in stream.consumers[:CONSUMERS_SHOWN]]
        left = len(stream.consumers) - CONSUMERS_SHOWN
        lines += [f"  and {left} more consumers"] if left > 0 else []
    return lines


def _ranges(ranges: list[tuple[int, int]]) -> str:
    shown = ", ".join(range_text(*each) for each in ranges[:RANGES_SHOWN])
    more = ", ..." if len(ranges) > RANGES_SHOWN else ""
    return f"{_count(count_of(ranges), 'message')}: {shown}{more}"


def _consumer_line(consumer: ConsumerReport) -> str:
    return (
        f"  consumer {consumer.name}: delivered up to {consumer.delivered_seq}, acknowledged up to"
        f" {consumer.ack_floor_seq}, {consumer.pending} pending"
    )


def _node_log_line(log: NodeLogReport) -> str:
    return (
        f"Node log: {_count(log.groups, 'group')}, {_count(log.entries, 'entry', 'entries')},"
        f" {_count(log.files, 'file')}, {size_text(log.bytes)}"
    )


def _finding_lines(report: StoreReport, findings: list[Finding], quiet: bool) -> list[str]:
    return [_finding_line(report, each) for each in findings if not (quiet and each.level == NOTE)]


def _finding_line(report: StoreReport, finding: Finding) -> str:
    place = f" at {finding.offset}" if finding.offset >= 0 else ""
    size = f", {_count(finding.size, 'byte')}" if finding.size else ""
    lost = ""
    if finding.first_seq:
        lost = f"; lost: {range_text(finding.first_seq, finding.last_seq)}"
    where = f"{_below(report, finding.path)}{place}{size}"
    return f"  {WORDS[finding.level]} {where}: {_below(report, finding.what)}{lost}"


def summary(report: StoreReport) -> str:
    """Return a summary of the report in one line."""
    messages = sum(stream.messages for stream in report.streams)
    consumers = sum(len(stream.consumers) for stream in report.streams)
    counts = {level: sum(each.level == level for each in report.all_findings()) for level in WORDS}
    lost = sum(stream.lost_messages() for stream in report.streams)
    counted = (
        _count(len(report.streams), "stream"),
        _count(messages, "message"),
        _count(consumers, "consumer"),
    )
    parts = []
    unchecked = counts[UNCHECKED] + counts[LOCKED]
    if unchecked:
        parts.append(f"{_count(unchecked, 'place')} not checked")
    if counts[DAMAGE]:
        parts.append(f"{_count(counts[DAMAGE], 'place')} damaged, {_count(lost, 'message')} lost")
    if report.all_repairs():
        parts.append(f"{_count(len(report.all_repairs()), 'repair')} made")
    return f"{', '.join(counted)}: {'; '.join(parts) or 'clean'}"


def json_of(report: StoreReport) -> bytes:
    """Return the report as JSON."""
    return orjson.dumps(
        {
            "store_dir": report.root,
            "exit_code": report.exit_code(),
            "summary": summary(report),
            "streams": [_stream_json(each) for each in report.streams],
            "node_log": report.node_log,
            "findings": [_finding_json(each) for each in report.findings],
            "repairs": report.repairs,
        }
    )


def _stream_json(stream: StreamReport) -> dict[str, Any]:
    return {name: getattr(stream, name) for name in FIELDS} | {
        "lost_msgs": stream.lost_messages(),
        "lost_bytes": stream.lost_bytes,
        "lost": stream.lost,
        "consumers": stream.consumers,
        "findings": [_finding_json(each) for each in stream.findings],
        "repairs": stream.repairs,
        "gone": stream.gone,
    }


def _finding_json(finding: Finding) -> dict[str, Any]:
    out: dict[str, Any] = {"level": finding.level, "path": finding.path, "what": finding.what}
    if finding.offset >= 0:
        out |= {"offset": finding.offset, "size": finding.size}
    if finding.first_seq:
        out |= {"first_seq": finding.first_seq, "last_seq": finding.last_seq}
    out["repairable"] = finding.mend is not None
    return out


def _below(report: StoreReport, text: str) -> str:
    return text.replace(f"{report.root}/", "")


def _count(count: int, noun: str, nouns: str = "") -> str:
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"
