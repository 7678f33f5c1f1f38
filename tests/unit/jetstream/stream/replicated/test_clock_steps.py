"""The duplicate window of a replicated stream after steps of the leader's wall clock, or with a next leader ahead.

An id counts for the window of elapsed time, on every replica.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from tests.unit.jetstream.stream.replicated.replicas import (
    Loopback,
    Member,
    answers,
    config,
    operate,
    replicas,
    same,
    send,
)

from pyjs.base.clock import NS_PER_S
from pyjs.jetstream import errcodes
from pyjs.jetstream.config.choices import FILE, MEMORY
from pyjs.jetstream.stream.replicated import operations
from pyjs.jetstream.stream.replicated.payload import items_of, operation

HOUR = 3600 * NS_PER_S
WINDOW_S = 120
LOST = errcodes.STREAM_MESSAGES_LOST.err_code


def group_of(directory: Path | None = None, **options: object) -> Loopback:
    """Return a group with a window of WINDOW_S."""
    return replicas(config(storage=FILE if directory else MEMORY, **options), directory)


def step(member: Member, ns: int) -> None:
    """Set the wall clock of a member."""
    member.js.clock.step_wall(ns)
    member.js.advance(milliseconds=20)  # the node has read its wall clock again


def wait(group: Loopback, seconds: float) -> None:
    """Let time elapse on all members."""
    for member in group.members:
        member.js.advance(milliseconds=round(seconds * 1000))


def published(group: Loopback, msg_id: str) -> bool:
    """Publish at the leader; return whether the message was stored, and was no duplicate."""
    leader = group.leader
    leader.js.user = leader.js.client()  # the server closes connections that do not answer its PINGs
    vars(leader).pop("heard", None)
    send(leader, "s.a", Nats_Msg_Id=msg_id)
    group.settle()
    (answer,) = answers(leader)
    return "duplicate" not in answer


def steps_of(member: Member) -> bytes:
    """Return the steps that a member remembers."""
    return member.store.steps.encode()


def same_steps(group: Loopback) -> int:
    """Check that all members are equal, also in the steps they remember; return the number of these."""
    same(group)
    assert len({steps_of(each) for each in group.members}) == 1
    return group.members[0].store.steps.count


def reopened(group: Loopback, place: int, directory: Path, **options: object) -> Member:
    """Open a member again as after a kill, with what it has written."""
    old = group.members[place]
    old.turn()
    copy = directory / "again"
    shutil.copytree(old.directory, copy)
    made = Member(group, config(storage=FILE, **options), str(copy), now_ns=old.js.clock.now_ns())
    group.members[place] = made
    return made


def test_an_id_counts_after_the_clock_of_the_leader_was_set_forward() -> None:
    group = group_of()
    assert published(group, "a")
    step(group.leader, HOUR)
    assert not published(group, "a")
    assert same_steps(group) == 1


def test_an_id_counts_after_a_leader_with_a_clock_ahead() -> None:
    group = group_of()
    assert published(group, "a")
    step(group.members[1], HOUR)
    group.lead(group.members[1])
    assert not published(group, "a")
    group.lead(group.members[0])  # its entries have the time of the last one
    assert not published(group, "a")
    assert same_steps(group) == 1


def test_an_id_expires_after_the_window_has_elapsed_in_spite_of_a_step() -> None:
    group = group_of()
    assert published(group, "a")
    wait(group, 10)
    step(group.leader, HOUR)
    assert published(group, "b")
    wait(group, WINDOW_S - 10.1)
    assert not published(group, "a")
    wait(group, 0.2)
    assert published(group, "a")
    assert not published(group, "b")
    wait(group, 10)
    assert published(group, "b")
    assert same_steps(group) == 0


def test_two_steps_in_one_window() -> None:
    group = group_of()
    assert published(group, "a")
    wait(group, 10)
    step(group.leader, HOUR)
    assert published(group, "b")
    wait(group, 10)
    step(group.leader, HOUR // 2)
    assert published(group, "c")
    assert same_steps(group) == 2
    assert [published(group, each) for each in "abc"] == [False] * 3
    wait(group, WINDOW_S - 19)
    assert [published(group, each) for each in "abc"] == [True, False, False]
    assert same_steps(group) == 2
    wait(group, 10)
    assert [published(group, each) for each in "bc"] == [True, False]
    assert same_steps(group) == 1
    wait(group, 10)
    assert published(group, "c")
    assert same_steps(group) == 0


def test_more_steps_than_are_remembered() -> None:
    group = group_of()
    for number in range(20):
        assert published(group, f"{number}")
        step(group.leader, HOUR)
        wait(group, 1)
    assert not any(published(group, f"{number}") for number in range(20))
    assert same_steps(group) == 8
    wait(group, WINDOW_S + 1)
    assert published(group, "19")
    step(group.leader, -30 * HOUR)
    assert published(group, "x")
    same(group)


def test_no_step_is_told_without_one() -> None:
    group = group_of()
    for number in range(10):
        assert published(group, f"{number}")
        step(group.leader, 200_000_000 * (-1) ** number)  # as NTP does
        wait(group, 30)
    assert not [each for each in group.log if items_of(each[3])[0][0] == "clock step"]


def test_a_clock_set_back_is_no_step() -> None:
    group = group_of()
    assert published(group, "a")
    step(group.leader, -HOUR)
    assert not published(group, "a")
    wait(group, 60)
    step(group.leader, HOUR)
    assert not published(group, "a")
    assert same_steps(group) == 1
    wait(group, WINDOW_S)
    assert published(group, "a")


def test_a_step_is_told_again_if_its_entry_is_lost() -> None:
    group = group_of()
    assert published(group, "a")
    step(group.leader, HOUR)
    send(group.leader, "s.a", Nats_Msg_Id="a")
    group.leader.turn()
    assert len(group.proposed) == 2
    group.lose()
    answers(group.leader)
    assert not published(group, "a")
    assert same_steps(group) == 1


def test_a_step_precedes_an_operation() -> None:
    group = group_of()
    assert published(group, "a")
    step(group.leader, HOUR)
    operate(group, operations.purge(b"", 0, 0))
    assert not published(group, "a")
    assert [items_of(each[3])[0][0] for each in group.log] == ["message", "clock step", "purge", "message"]
    same(group)


def test_a_step_is_not_longer_than_the_time_between_entries() -> None:
    group = group_of()
    assert published(group, "a")
    payload = operation("clock step", (1 << 62).to_bytes(8, "little"))
    for member in group.members:
        last = group.log[-1]
        member.replica.apply(last[0] + 1, last[1], last[2] + 5, payload)
        assert steps_of(member) == (last[2] + 5).to_bytes(8, "little") + (5).to_bytes(8, "little")


def test_no_steps_are_remembered_without_a_window() -> None:
    group = group_of(duplicate_window_ns=0)
    payload = operation("clock step", HOUR.to_bytes(8, "little"))
    send(group.leader, "s.a")
    group.settle()
    step(group.leader, HOUR)
    send(group.leader, "s.a")
    group.settle()
    assert [items_of(each[3])[0][0] for each in group.log] == ["message"] * 2
    for member in group.members:
        last = group.log[-1]
        member.replica.apply(last[0] + 1, last[1], last[2] + HOUR, payload)
        assert member.store.steps.count == 0


@pytest.mark.parametrize("window_s", [40, 4000])
def test_the_window_changes_after_a_step(window_s: int) -> None:
    group = group_of()
    assert published(group, "a")
    step(group.leader, HOUR)
    assert published(group, "b")
    operate(group, operations.configure(config(storage=MEMORY, duplicate_window_ns=window_s * NS_PER_S)))
    assert [published(group, each) for each in "ab"] == [False] * 2
    wait(group, 41)
    assert [published(group, each) for each in "ab"] == [window_s == 40] * 2
    same_steps(group)


def test_a_replica_restarts_after_a_step(tmp_path: Path) -> None:
    group = group_of(tmp_path)
    assert published(group, "a")
    step(group.leader, HOUR)
    assert published(group, "b")
    reopened(group, 2, tmp_path)
    assert same_steps(group) == 1
    assert [published(group, each) for each in "ab"] == [False] * 2
    assert same_steps(group) == 1


def test_entries_with_a_step_are_applied_again(tmp_path: Path) -> None:
    group = group_of(tmp_path)
    assert published(group, "a")
    step(group.leader, HOUR)
    send(group.leader, "s.a", Nats_Msg_Id="b")
    group.leader.turn()
    group.commit()
    reopened(group, 2, tmp_path)
    group.settle()
    member = group.members[2]
    for entry in group.log:
        member.replica.apply(*entry)
    assert same_steps(group) == 1


def test_a_restarted_leader_with_a_clock_ahead(tmp_path: Path) -> None:
    group = group_of(tmp_path)
    assert published(group, "a")
    member = reopened(group, 1, tmp_path)
    step(member, HOUR)
    group.lead(member)
    assert not published(group, "a")
    same_steps(group)


def test_a_lost_message_may_have_the_id_after_a_step() -> None:
    group = group_of()
    assert published(group, "a")
    group.leader.replica.note_gaps([1], 1)
    step(group.leader, HOUR)
    send(group.leader, "s.a", Nats_Msg_Id="new")
    send(group.leader, "s.a")  # an entry after the step
    send(group.leader, "s.a", Nats_Msg_Id="new")  # the step is proposed and not applied
    group.settle()
    send(group.leader, "s.a", Nats_Msg_Id="new")
    group.settle()
    errors = [each.get("error", {}).get("err_code") for each in answers(group.leader)]
    assert sorted(errors, key=str) == [LOST, LOST, LOST, None]
    wait(group, WINDOW_S)
    send(group.leader, "s.a", Nats_Msg_Id="new")
    group.settle()
    assert "error" not in answers(group.leader)[0]


def play(seed: int, directory: Path | None) -> None:
    """Publish, wait, and change clocks and leaders at random; ids that must count are refused, others stored."""
    rng, group = random.Random(seed), group_of(directory)
    stored: dict[str, float] = {}
    now = 0.0
    for _ in range(60):
        what = rng.randrange(8)
        if what == 0:
            step(rng.choice(group.members), rng.randrange(-HOUR, HOUR))
        elif what == 1:
            group.lead(rng.choice(group.members))
        elif what == 2:
            waited = rng.choice((0.1, 20, 70))
            now += waited
            wait(group, waited)
        elif what == 3 and directory is not None and rng.random() < 0.3:
            place = next(at for at, each in enumerate(group.members) if not each.replica.leads)
            reopened(
                group, place, directory / f"r{_}" if (directory / f"r{_}").mkdir() is None else directory
            )
        else:
            msg_id = f"{rng.randrange(12)}"
            if published(group, msg_id):
                assert msg_id not in stored or now - stored[msg_id] > WINDOW_S - 1, seed
                stored[msg_id] = now
        same_steps(group)


def test_no_id_is_stored_twice_in_the_window() -> None:
    for seed in range(12):
        play(seed, None)


def test_no_id_is_stored_twice_in_the_window_with_restarts(tmp_path: Path) -> None:
    for seed in range(3):
        (tmp_path / f"{seed}").mkdir()
        play(seed, tmp_path / f"{seed}")
