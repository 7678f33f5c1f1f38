"""The parts of the peer-suite runner that need no checkout: the shim, the report's names, the table."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.peer_suite import natsc
from tests.peer_suite.natspy import outcomes
from tests.peer_suite.results import Report, broken, failures, table
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


def test_the_table_shows_both_servers_and_the_failures_their_names() -> None:
    assert [line.split() for line in table(REPORT)[1:]] == [
        ["nats.py", "nats-server", "2", "1", "1"],
        ["nats.py", "ours", "1", "2", "1"],
    ]
    assert failures(REPORT) == ["nats.py: b (nats-server: passed)", "nats.py: c (nats-server: failed)"]


def test_only_what_the_real_server_passes_counts_as_broken() -> None:
    assert broken(REPORT) == 1


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
    assert len(names) == len(set(names)) == 159
