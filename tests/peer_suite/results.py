"""Outcomes by test name, and the table and lists made of them."""

from __future__ import annotations

from collections import Counter

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"

Results = dict[str, str]  # test name -> outcome
Report = dict[str, dict[str, Results]]  # suite -> server -> results


def table(report: Report) -> list[str]:
    """Return the lines of the table: suite, server, passed, failed, skipped."""
    lines = [f"{'suite':8} {'server':12} {'passed':>7} {'failed':>7} {'skipped':>8}"]
    for suite, servers in report.items():
        for server, results in servers.items():
            counts = Counter(results.values())
            lines.append(f"{suite:8} {server:12} {counts[PASSED]:7} {counts[FAILED]:7} {counts[SKIPPED]:8}")
    return lines


def failures(report: Report) -> list[str]:
    """Return the lines that list every failure of ours by name, beside the real server's outcome."""
    lines = []
    for suite, servers in report.items():
        peer = servers.get("nats-server", {})
        for name, outcome in sorted(servers.get("ours", {}).items()):
            if outcome == FAILED:
                lines.append(f"{suite}: {name} (nats-server: {peer.get(name, 'not run')})")
    return lines


def broken(report: Report) -> int:
    """Return how many tests fail on ours and pass on the real server."""
    return sum(
        outcome == FAILED and servers.get("nats-server", {}).get(name, PASSED) == PASSED
        for servers in report.values()
        for name, outcome in servers.get("ours", {}).items()
    )
