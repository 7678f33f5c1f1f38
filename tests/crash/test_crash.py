"""Short versions of the crash tests; `make crash` and `python -m tests.crash` run the long ones."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from tests.crash import acks, batches, damage, dead, errors, judge, kill, outages, power
from tests.crash.damages import Damage, Tree
from tests.crash.ext4 import CannotMount, Ext4
from tests.crash.judge import Verdict
from tests.crash.preload import NoCompiler
from tests.crash.script import Known

DAMAGES = 120  # for each of the two stores, plus a tenth of this number in pairs
ERRORS = 12


def args(**given: Any) -> Namespace:
    return Namespace(
        **{
            "server": "ours",
            "mode": "default",
            "seed": 1,
            "cycles": 0,
            "process": False,
            "part": "1/1",
            "begin": 0,
            "store": None,
            **given,
        }
    )


@pytest.fixture
def ext4_here(tmp_path: Path) -> None:
    """Skip the test if no image can be mounted."""
    try:
        Ext4(tmp_path / "probe", megabytes=16).unmount()
    except CannotMount as reason:
        pytest.skip(f"no ext4 image can be mounted: {reason}")


@pytest.mark.parametrize("seed", [1, 2])
def test_damage_costs_the_damaged_messages_and_is_told(tmp_path: Path, seed: int) -> None:
    found = damage.run(args(cycles=DAMAGES, seed=seed), tmp_path)
    assert {name: each["examples"] for name, each in found.items()} == {"stopped": {}, "killed": {}}


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("remove", "$G/streams/ORDERS/msgs/00000002.seg", {"others lost", "silent", "stream gone"}),
        ("flip", "$G/streams/ORDERS/msgs/00000002.seg", {"altered"}),
    ],
)
def test_the_judge_sees_a_loss(tmp_path: Path, kind: str, name: str, expected: set[str]) -> None:
    """Run the checks on a store that loses or alters a message silently, to prove that they notice."""
    matrix, tree = damage.matrix_of("ours", tmp_path, clean=True, process=False, seed=1)
    runner = Forgetful(matrix._runner, kind)
    matrix._runner = runner  # type: ignore[assignment]
    matrix.run((Damage(name, "flip", 40),))
    assert set(matrix.violations) & expected
    assert len(tree.files) > 10


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        (b"StoredMessage(7, 100, b'a', b'', b'x')", b"StoredMessage(7, 101, b'a', b'', b'x')", True),
        (b"StoredMessage(7, 100, b'a', b'', b'x')", b"StoredMessage(7, 99, b'a', b'', b'x')", False),
        (b"StoredMessage(7, 100, b'a', b'', b'x')", b"StoredMessage(7, 101, b'a', b'', b'y')", False),
        (b"StoredMessage(7, 100, b'a', b'', b'x')", b"StoredMessage(8, 101, b'a', b'', b'x')", False),
        (b'{"seq":7,"time":"2026-01-01T00:00:00.09Z"}', b'{"seq":7,"time":"2026-01-01T00:00:00.1Z"}', True),
        (b'{"seq":7,"time":"2026-01-01T00:00:00.1Z"}', b'{"seq":7,"time":"2026-01-01T00:00:00.09Z"}', False),
        (b'{"seq":7,"time":"2026-01-01T00:00:00Z"}', b'{"seq":7,"time":"2026-01-01T00:00:01Z"}', True),
        (b'{"seq":7,"time":"2026-01-01T00:00:00Z"}', b'{"seq":8,"time":"2026-01-01T00:00:01Z"}', False),
    ],
)
def test_only_a_later_time_makes_a_message_a_new_copy(before: bytes, now: bytes, same: bool) -> None:
    assert judge._is_later_copy(before, now) is same


class Forgetful:
    """A runner whose server serves a wrong store: one message is missing, or one is altered."""

    def __init__(self, runner: Any, kind: str) -> None:
        self._runner = runner
        self._kind = kind

    def run(self, tree: Tree, damages: tuple[Damage, ...], known: Known, baseline: Any) -> Verdict:
        messages = baseline.messages["ORDERS"]
        if self._kind == "remove":  # then the baseline has more than the server
            messages[4] = b"a message that the server does not know"
        else:
            messages[5] = b"another message"
        verdict: Verdict = self._runner.run(tree, (), known, baseline)
        return verdict


def test_kill_9_takes_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    for mode in ("default", "always"):
        found = kill.run(args(cycles=6, mode=mode), tmp_path / mode)
        assert found["violations"] == {}
        assert found["confirmed consumer acks"] > 0


def test_confirmed_consumer_acks_survive_kill_9(tmp_path: Path) -> None:
    found = acks.one_round(args(), tmp_path, 1000)
    assert found == {"confirmed": 1000, "redelivered": 0, "floor": 1000}


def test_kill_9_leaves_whole_batches_or_none(tmp_path: Path) -> None:
    found = batches.run(args(cycles=6), tmp_path)
    assert found["violations"] == []


def test_kill_9_neither_loses_a_dead_letter_nor_doubles_it(tmp_path: Path) -> None:
    found = dead.run(args(cycles=8), tmp_path)
    assert found["violations"] == []
    assert found["letters"] > 100


@pytest.mark.usefixtures("ext4_here")
def test_power_loss_takes_nothing_that_is_synced(tmp_path: Path) -> None:
    always = power.run(args(mode="always", cycles=1), tmp_path)
    assert (always["lost"], always["redelivered"], always["removals undone"]) == (0, 0, 0)
    assert always["crashes with violations"] == []


@pytest.mark.usefixtures("ext4_here")
def test_power_loss_takes_only_what_is_younger_than_the_interval(tmp_path: Path) -> None:
    found = power.run(args(cycles=1), tmp_path)
    assert found["in the middle"] == 0
    assert found["streams gone"] == 0
    # 1 s for the sync interval; the rest because a machine that runs tests in parallel is slow
    assert found["oldest lost s"] < 1.0 + 0.2 + 1.0
    assert found["crashes with violations"] == []


def test_an_error_in_any_call_is_survived(tmp_path: Path) -> None:
    found = errors.run(args(cycles=ERRORS), tmp_path)
    if "skipped" in found:
        pytest.skip(found["skipped"])
    assert found["failed"] == {}


@pytest.mark.parametrize("name", ["no space (ENOSPC)", "one failed fdatasync", "clock steps back an hour"])
def test_an_outage_ends_and_takes_nothing(tmp_path: Path, name: str) -> None:
    try:
        found = outages.OUTAGES[name]("ours", "default", tmp_path)
    except NoCompiler as reason:
        pytest.skip(str(reason))
    assert found["acked lost"] == 0
    assert found["unanswered"] == 0
    seen, of = found["reads"].split(" of ")
    assert seen == of
    assert found["after a restart"] == "works"
