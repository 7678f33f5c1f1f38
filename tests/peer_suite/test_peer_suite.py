"""The parts of the suite runner that need no checkout: the shim, the names in the report, the table."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.peer_suite import natsc
from tests.peer_suite.natspy import outcomes
from tests.peer_suite.results import Report, broken, failures, known_failures, mended, table
from tests.peer_suite.shim import place

JUNIT = """<testsuites><testsuite>
<testcase file="nats/tests/test_a.py" classname="nats.tests.test_a.ClientTest" name="test_one"/>
<testcase file="nats/tests/test_a.py" classname="nats.tests.test_a.ClientTest" name="test_two"><failure/></testcase>
<testcase file="nats/tests/test_a.py" classname="nats.tests.test_a" name="test_three[x]"><skipped/></testcase>
</testsuite></testsuites>"""

REPORT: Report = {
    "nats.py": {
        "nats-server": {"a": "passed", "b": "passed", "c": "failed", "d": "skipped"},
        "ours": {"a": "passed", "b": "failed", "c": "failed", "d": "skipped"},
    }
}


def test_a_test_of_the_report_is_named_as_pytest_takes_it(tmp_path: Path) -> None:
    # given
    report = tmp_path / "junit.xml"
    report.write_text(JUNIT)
    # then
    assert outcomes(report) == {
        "nats/tests/test_a.py::ClientTest::test_one": "passed",
        "nats/tests/test_a.py::ClientTest::test_two": "failed",
        "nats/tests/test_a.py::test_three[x]": "skipped",
    }


def test_the_table_shows_both_servers_beside_each_other_by_file() -> None:
    # given
    report = {
        "nats.py": {
            "nats-server": {"x/test_a.py::a": "passed", "x/test_b.py::b": "passed"},
            "ours": {"x/test_a.py::a": "passed", "x/test_b.py::b": "skipped"},
        },
        "nats.c": REPORT["nats.py"],
    }
    # then
    assert [" ".join(line.split()) for line in table(report)] == [
        "| nats-server | ours",
        "suite | passed failed skipped | passed failed skipped",
        "nats.py test_a.py | 1 0 0 | 1 0 0",
        "nats.py test_b.py | 1 0 0 | 0 0 1",
        "nats.py all | 2 0 0 | 1 0 1",
        "nats.c all | 2 1 1 | 1 2 1",
    ]


def test_a_failure_shows_the_peers_outcome_and_its_reason() -> None:
    assert failures(REPORT, {"nats.py: b": "not yet"}) == [
        "nats.py: b (nats-server: passed): not yet",
        "nats.py: c (nats-server: failed): NOT LISTED",
    ]


def test_only_what_the_real_server_passes_and_nobody_listed_counts_as_broken() -> None:
    assert broken(REPORT, {}) == ["nats.py: b"]
    assert broken(REPORT, {"nats.py: b": "not yet"}) == []


def test_a_listed_test_that_passes_is_told() -> None:
    assert mended(REPORT, {"nats.py: a": "not yet", "nats.py: b": "not yet"}) == ["nats.py: a"]


def test_a_test_that_fails_by_chance_may_pass_and_may_fail() -> None:
    known = {"nats.py: a": "by chance on both", "nats.py: b": "by chance on both"}
    assert mended(REPORT, known) == []
    assert broken(REPORT, known) == []


def test_the_list_of_known_failures_names_tests_of_the_suites() -> None:
    known = known_failures()
    c_names = {name.removeprefix("nats.c: ") for name in known if name.startswith("nats.c: ")}
    assert c_names <= set(natsc.NAMES.read_text().split())
    assert all(name.startswith("nats.py: nats/tests/test_") for name in known if "::" in name)


def test_the_shim_is_found_as_nats_server_and_hands_its_arguments_on(tmp_path: Path) -> None:
    # given
    at = place("ours", [sys.executable, "-c", "import sys; print(sys.argv[1:])"], tmp_path, own_network=False)
    # when
    code, output = at.run(["nats-server", "-p", "4 2"], tmp_path, 30.0)
    # then
    assert (code, output) == (0, "['-p', '4 2']\n")


def test_a_test_that_does_not_end_is_killed(tmp_path: Path) -> None:
    at = place("ours", [sys.executable, "-c", "input()"], tmp_path, own_network=False)
    code, _ = at.run(["sh", "-c", "cat /dev/zero > /dev/null"], tmp_path, 0.3)
    assert code == -9


def test_the_list_of_c_tests_has_no_name_twice() -> None:
    names = natsc.NAMES.read_text().split()
    assert len(names) == len(set(names)) == 162
