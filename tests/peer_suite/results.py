"""Outcomes by test name, tables and lists of them, and the list of known failures.

The known failures are the rows of docs/compatibility.md, section "Other clients' tests". A failure without a row, and
a row whose test passes, are errors of the run. If the reason of a row begins with "by chance", neither server passes
the test reliably, and it may pass.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
PEER, OURS = "nats-server", "ours"
CHANCE = "by chance"  # the reason of a test that sometimes fails on nats-server too begins with this
COMPATIBILITY = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"

Results = dict[str, str]  # test name -> outcome
Report = dict[str, dict[str, Results]]  # suite -> server -> results
Known = dict[str, str]  # "suite: test" -> why it fails on ours


def known_failures() -> Known:
    """Return the tests that docs/compatibility.md lists as failing, with their reasons."""
    section = COMPATIBILITY.read_text("utf-8").split("## Other clients' tests")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(nats\.(?:py|c): [^`]+)` \| (.+?) \|$", section, re.MULTILINE)
    if len(rows) != len(dict(rows)):
        raise SystemExit(f"{COMPATIBILITY} lists a test twice")
    return dict(rows)


def table(report: Report) -> list[str]:
    """Return the lines of the table: tests passed, failed and skipped by each server."""
    counted = " ".join(f"{word:>7}" for word in (PASSED, FAILED, SKIPPED))
    servers = [server for server in (PEER, OURS) if any(server in runs for runs in report.values())]
    lines = [" | ".join([f"{'':44}", *(f"{server:23}" for server in servers)])]
    lines.append(" | ".join([f"{'suite':44}", *(counted for _ in servers)]))
    for suite, runs in report.items():
        groups = sorted({_group(name) for results in runs.values() for name in results})
        for group in groups if len(groups) > 1 else []:
            cells = [_counts(_of_group(runs.get(server, {}), group)) for server in servers]
            lines.append(" | ".join([f"{suite + ' ' + group:44}", *cells]))
        cells = [_counts(runs.get(server, {})) for server in servers]
        lines.append(" | ".join([f"{suite + ' all':44}", *cells]))
    return lines


def failures(report: Report, known: Known) -> list[str]:
    """Return a line for each failure on our server: its name, nats-server's outcome and our reason."""
    lines = []
    for suite, servers in report.items():
        peer = servers.get(PEER, {})
        for name, outcome in sorted(servers.get(OURS, {}).items()):
            if outcome == FAILED:
                test = f"{suite}: {name}"
                why = known.get(test, "NOT LISTED")
                lines.append(f"{test} ({PEER}: {peer.get(name, 'not run')}): {why}")
    return lines


def broken(report: Report, known: Known) -> list[str]:
    """Return the tests that fail on our server, pass on nats-server (if it ran) and are not known to fail."""
    return [
        f"{suite}: {name}"
        for suite, servers in report.items()
        for name, outcome in sorted(servers.get(OURS, {}).items())
        if outcome == FAILED
        and servers.get(PEER, {}).get(name, PASSED) == PASSED
        and f"{suite}: {name}" not in known
    ]


def mended(report: Report, known: Known) -> list[str]:
    """Return the tests that passed although they are listed as always failing."""
    return [
        f"{suite}: {name}"
        for suite, servers in report.items()
        for name, outcome in sorted(servers.get(OURS, {}).items())
        if outcome == PASSED and not known.get(f"{suite}: {name}", CHANCE).startswith(CHANCE)
    ]


def _group(name: str) -> str:
    """Return the group of a test: its file; all tests of the C client are in one group."""
    return name.split("::")[0].rsplit("/", 1)[-1] if "::" in name else ""


def _of_group(results: Results, group: str) -> Results:
    return {name: outcome for name, outcome in results.items() if _group(name) == group}


def _counts(results: Results) -> str:
    counts = Counter(results.values())
    return " ".join(f"{counts[outcome]:7}" for outcome in (PASSED, FAILED, SKIPPED))
