"""The figures of all rounds as medians, a text table and JSON.

A ratio is computed within each round, where both servers had the same conditions; the result is the median of these
ratios.
"""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from statistics import median
from typing import Any

Result = dict[str, Any]  # one line of the driver's output
Round = dict[str, Result]  # by server: "ours", "peer"

DRIVER_BOUND = 0.85  # a run is bound by the driver if the driver used a processor for this share of the time


def cpu_per_million(result: Result) -> float:
    """Return the server's processor seconds per million messages."""
    return float(result["server_cpu_s"] / result["msgs"] * 1e6)


def _both(rounds: list[Round], figure: str) -> tuple[list[float], list[float]]:
    def value(result: Result) -> float:
        if figure == "cpu":
            return cpu_per_million(result)
        if figure in ("p50", "p99"):
            return float(result["latency_us"][figure])
        return float(result[figure])

    return [value(one["ours"]) for one in rounds], [value(one["peer"]) for one in rounds]


def _pair(rounds: list[Round], figure: str) -> dict[str, float]:
    ours, peer = _both(rounds, figure)
    ratios = [a / b if b else 0.0 for a, b in zip(ours, peer, strict=True)]
    return {
        "ours": median(ours),
        "peer": median(peer),
        "ratio": median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
    }


def _notes(rounds: list[Round]) -> list[str]:
    """Return the reasons for which a row's ratio is less meaningful."""
    notes = []
    shares = [one[side]["driver_cpu_s"] / one[side]["seconds"] for one in rounds for side in one]
    if max(shares) > DRIVER_BOUND:
        notes.append("driver-bound: the faster server may be faster still")
    disk = {side: sum(one[side].get("server_disk_bytes", 0) for one in rounds) for side in ("ours", "peer")}
    payload = {side: sum(one[side]["bytes"] for one in rounds) for side in disk}
    written = {side: disk[side] >= payload[side] for side in disk}
    if written["ours"] != written["peer"]:
        lazy = "peer" if written["ours"] else "ours"
        notes.append(f"{lazy} wrote {disk[lazy] >> 20} MiB to files for {payload[lazy] >> 20} MiB of payload")
    return notes


def summarize(rounds: list[Round]) -> dict[str, Any]:
    """Return the medians of a row: rate, cpu, rss, and p50 and p99 if latencies were measured."""
    summary: dict[str, Any] = {
        "rate": _pair(rounds, "rate"),
        "cpu_s_per_million": _pair(rounds, "cpu"),
        "rss_peak_kib": _pair(rounds, "server_rss_peak_kib"),
        "notes": _notes(rounds),
    }
    if all("latency_us" in result for one in rounds for result in one.values()):
        summary["p50_us"] = _pair(rounds, "p50")
        summary["p99_us"] = _pair(rounds, "p99")
    return summary


HEAD = (
    f"{'row':<15}{'ours/s':>11}{'peer/s':>11}{'ratio':>7} {'(min-max)':<13}"
    f"{'CPU s/M':>9}{'peer':>8}{'ratio':>6}{'RSS MiB':>9}{'peer':>6}"
    "   latency us: p50 ours/peer, p99 ours/peer"
)


def table_line(name: str, summary: dict[str, Any]) -> str:
    """Return one line of the table."""
    rate, cpu, rss = summary["rate"], summary["cpu_s_per_million"], summary["rss_peak_kib"]
    spread = f"({rate['ratio_min']:.2f}-{rate['ratio_max']:.2f})"
    line = (
        f"{name:<15}{rate['ours']:>11,.0f}{rate['peer']:>11,.0f}{rate['ratio']:>7.2f} {spread:<13}"
        f"{cpu['ours']:>9.3f}{cpu['peer']:>8.3f}{cpu['ratio']:>6.2f}"
        f"{rss['ours'] / 1024:>9.0f}{rss['peer'] / 1024:>6.0f}"
    )
    if "p50_us" in summary:
        p50, p99 = summary["p50_us"], summary["p99_us"]
        line += f"   {p50['ours']:.0f}/{p50['peer']:.0f} = {p50['ratio']:.2f}"
        line += f", {p99['ours']:.0f}/{p99['peer']:.0f} = {p99['ratio']:.2f}"
    if summary["notes"]:
        line += f"   {'; '.join(summary['notes'])}"
    return line


def _words(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except OSError:
        return "unknown"
    return (done.stdout.strip() or done.stderr.strip() or "unknown").splitlines()[0]


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def machine_facts(peer: Path | None, store_base: Path) -> dict[str, Any]:
    """Return the facts about the machine that a reader needs to interpret the figures."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "compiler": _words([os.environ.get("CC", "gcc"), "--version"]),
        "peer": _words([str(peer), "-v"]) if peer else None,
        "store_filesystem": _words(["stat", "-f", "-c", "%T", str(store_base)]),
        "commit": _words(["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]),
        "load_average": os.getloadavg(),
    }
