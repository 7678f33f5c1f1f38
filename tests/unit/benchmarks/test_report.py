"""The medians of the benchmark table, and the rate parsed from the output of `nats bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from benchmarks.report import summarize, table_line

SCRIPTS = Path(__file__).resolve().parents[3] / "benchmarks"


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands run as scripts, from their own folder."""
    monkeypatch.syspath_prepend(str(SCRIPTS))


def result(rate: float, cpu_s: float = 1.0, driver_cpu_s: float = 0.1) -> dict[str, Any]:
    return {
        "msgs": 1_000_000,
        "bytes": 128_000_000,
        "seconds": 1.0,
        "rate": rate,
        "server_cpu_s": cpu_s,
        "driver_cpu_s": driver_cpu_s,
        "server_rss_peak_kib": 20480,
    }


def test_ratio_is_the_median_of_the_ratios_of_the_rounds() -> None:
    rounds = [
        {"ours": result(100), "peer": result(50)},
        {"ours": result(10), "peer": result(10)},
        {"ours": result(40), "peer": result(10)},
    ]

    rate = summarize(rounds)["rate"]

    assert (rate["ratio"], rate["ratio_min"], rate["ratio_max"]) == (2.0, 1.0, 4.0)
    assert (rate["ours"], rate["peer"]) == (40, 10)


def test_cpu_is_told_for_a_million_messages() -> None:
    summary = summarize([{"ours": result(1, cpu_s=0.5), "peer": result(1, cpu_s=2.0)}])

    assert summary["cpu_s_per_million"]["ours"] == 0.5
    assert summary["cpu_s_per_million"]["ratio"] == 0.25


def test_latencies_appear_when_they_were_taken() -> None:
    timed = {**result(1), "latency_us": {"p50": 30.0, "p99": 60.0}}

    summary = summarize([{"ours": timed, "peer": timed}])

    assert summary["p99_us"]["ours"] == 60.0
    assert "30/30 = 1.00, 60/60 = 1.00" in table_line("reqrep", summary)


def test_row_bound_by_the_driver_says_so() -> None:
    busy = result(1, driver_cpu_s=0.95)

    assert "driver-bound" in table_line("1-1", summarize([{"ours": busy, "peer": result(1)}]))
    assert "driver-bound" not in table_line("1-1", summarize([{"ours": result(1), "peer": result(1)}]))


def test_server_that_writes_less_than_it_was_given_is_named_when_the_other_one_writes() -> None:
    written = {**result(1), "server_disk_bytes": 200_000_000}
    kept = {**result(1), "server_disk_bytes": 1 << 20}

    line = table_line("jspub-1", summarize([{"ours": kept, "peer": written}]))

    assert "ours wrote 1 MiB to files for 122 MiB of payload" in line
    assert summarize([{"ours": kept, "peer": kept}])["notes"] == []
    assert summarize([{"ours": written, "peer": written}])["notes"] == []


@pytest.mark.usefixtures("scripts")
def test_rate_of_nats_bench_is_the_total_one() -> None:
    import natsbench

    output = "x\n\nPub stats: 5,577,271 msgs/sec ~ 680.82 MB/sec\n [1] 2,794,891 msgs/sec ~ 341 MB/sec\n"

    assert natsbench.rate_in(output) == 5_577_271
    with pytest.raises(natsbench.NatsBenchFailed):
        natsbench.rate_in("nats: error: nothing")


@pytest.mark.usefixtures("scripts")
def test_rows_are_chosen_by_name_or_by_the_start_of_names() -> None:
    import run

    assert [row.name for row in run._chosen_rows(["1-1"])] == ["1-1"]
    assert [row.name for row in run._chosen_rows(["direct"])] == ["direct-1", "direct-16"]
    with pytest.raises(SystemExit, match="no row starts with nope"):
        run._chosen_rows(["nope"])
