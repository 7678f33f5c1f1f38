"""The verdict on each attack, and the table of both servers as text and as Markdown."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from attacks.attack import Attack
from attacks.measure import BACK, Sample

PEER_FACTOR = 2.0  # waits and growth may be at most this many times nats-server's
GROWTH_MB = 64.0  # or growth at most this
NAMES = {"ours": "ours", "peer": "nats-server"}


@dataclass(frozen=True, slots=True)
class Line:
    """One attack with the samples of all rounds, by side."""

    attack: Attack
    rounds: list[dict[str, Sample]]

    def side(self, side: str) -> Sample | None:
        """Return one sample for all rounds of one side, with the medians of the figures and the worst counts."""
        samples = [one[side] for one in self.rounds if side in one]
        if not samples:
            return None
        figures = (
            "idle_ms",
            "worst_ms",
            "p99_ms",
            "idle_mb",
            "before_mb",
            "peak_mb",
            "after_mb",
            "cpu_s",
            "seconds",
        )
        return Sample(
            alive=all(one.alive for one in samples),
            asked=max(one.asked for one in samples),
            answered=min(one.answered + max(one.asked for one in samples) - one.asked for one in samples),
            failures=max(one.failures for one in samples),
            notes=list(dict.fromkeys(note for one in samples for note in one.notes)),
            **{name: round(median(getattr(one, name) for one in samples), 3) for name in figures},
        )

    def faults(self) -> list[str]:
        """Return short descriptions of the limits that our server exceeds; empty if it passes."""
        ours = self.side("ours")
        if ours is None:
            return []
        peer = self.side("peer") or Sample(answered=ours.asked)
        faults = [] if ours.alive else ["dead"]
        if ours.answered < min(ours.asked, peer.answered):
            faults.append(f"{ours.asked - ours.answered} unanswered")
        if ours.worst_ms > max(self.attack.wait_ms, PEER_FACTOR * peer.worst_ms):
            faults.append(f"wait {_ms(ours.worst_ms)} ms")
        if ours.alive and ours.after_mb > BACK * ours.before_mb:
            faults.append(f"memory after {ours.after_mb / ours.before_mb:.1f}x")
        if growth(ours) > max(GROWTH_MB, PEER_FACTOR * growth(peer)):
            faults.append(f"growth {growth(ours):.0f} MB")
        if ours.failures:
            faults.append(f"{ours.failures} failures in the log")
        return faults

    def report(self) -> dict[str, Any]:
        """Return all results, for JSON."""
        return {
            "name": self.attack.name,
            "about": self.attack.about,
            "faults": self.faults(),
            "rounds": [{side: asdict(sample) for side, sample in one.items()} for one in self.rounds],
        }


def growth(sample: Sample) -> float:
    """Return the growth of the memory at its peak, in MB."""
    return max(0.0, sample.peak_mb - sample.before_mb)


def _ms(value: float) -> str:
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _cells(sample: Sample | None) -> list[str]:
    if sample is None:
        return [""] * 6
    return [
        ("" if sample.alive else "DEAD ") + f"{sample.answered:,} / {sample.asked:,}",
        _ms(sample.worst_ms),
        _ms(sample.p99_ms),
        f"{growth(sample):.0f}",
        f"{sample.after_mb / sample.before_mb:.2f}" if sample.before_mb else "",
        f"{sample.cpu_s:.2f}",
    ]


COLUMNS = ("answered", "worst ms", "p99 ms", "growth MB", "after/before", "CPU s")
_WIDTHS = (23, 10, 9, 9, 12, 8)
HEAD = f"{'attack':<26}{'server':<12}" + "".join(
    f"{name:>{width}}" for name, width in zip(COLUMNS, _WIDTHS, strict=True)
)


def text(line: Line) -> str:
    """Return two lines of the table, and the notes below them."""
    out = []
    for side, name in NAMES.items():
        cells = zip(_cells(line.side(side)), _WIDTHS, strict=True)
        label = line.attack.name if side == "ours" else ""
        out.append(f"{label:<26}{name:<12}" + "".join(f"{cell:>{width}}" for cell, width in cells))
    out[0] += "  " + (", ".join(line.faults()) or "ok")
    out += [
        f"    {name}: {note}" for side, name in NAMES.items() for note in (line.side(side) or Sample()).notes
    ]
    return "\n".join(out)


def markdown(lines: list[Line]) -> str:
    """Return the table for the documentation; a cell shows ours / nats-server."""
    rows = [
        "| Attack | answered | worst wait, ms | p99, ms | growth, MB | after / before | CPU, s | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        ours, peer = (_cells(line.side(side)) for side in NAMES)
        asked = max((sample.asked for side in NAMES if (sample := line.side(side))), default=0)
        counts = [cell.partition(" / ")[0] for cell in (ours[0], peer[0])]
        cells = [f"{counts[0]} / {counts[1]} of {asked:,}"]
        cells += [f"{one} / {other}" for one, other in zip(ours[1:], peer[1:], strict=True)]
        rows.append(f"| {line.attack.about} | {' | '.join(cells)} | {', '.join(line.faults())} |")
    return "\n".join(rows) + "\n"
