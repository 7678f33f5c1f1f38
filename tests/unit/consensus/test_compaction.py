"""Large states: created and installed in steps, while other work continues."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.sim.consensus.node import SimMachine, SimNode
from tests.support.consensus import GROUP, Hosts, MemoryNode

from pyjs.consensus import compaction
from pyjs.consensus.consensus import Tuning
from pyjs.consensus.seams import Making

STEPS = 40


class SlowMachine(SimMachine):
    """A machine whose snapshot takes several turns."""

    steps = 0  # steps done so far
    fails = False

    def snapshot(self) -> Making:
        return self._make(self.state.packed())

    def _make(self, data: bytes) -> Making:
        for _ in range(STEPS):
            self.steps += 1
            if self.fails:
                raise ZeroDivisionError
            yield
        return data

    def install(self, index: int, data: bytes) -> Iterator[None]:
        return self._take(index, data)

    def _take(self, index: int, data: bytes) -> Iterator[None]:
        yield from self._make(data)
        self._install(index, data)


class SlowNode(MemoryNode):
    """A node with such state machines."""

    machine_class = SlowMachine
    may_fail = False

    def _expects(self, text: str) -> bool:
        return self.may_fail and "ZeroDivisionError" in text


@pytest.fixture
def hosts() -> Hosts:
    hosts = Hosts(node_class=SlowNode, tuning=Tuning(log_size_max=2000))
    hosts.publish(5)
    return hosts


def steps(node: SimNode) -> int:
    machine = node.machines[GROUP]
    assert isinstance(machine, SlowMachine)
    return machine.steps


def test_entries_are_applied_while_a_state_is_made(hosts: Hosts) -> None:
    leader = hosts.leader()
    hosts.publish(30)
    hosts.until(lambda: 0 < steps(leader) < STEPS, 50)
    made_at = leader.machines[GROUP].state.count
    leader.publish(GROUP, b"meanwhile")
    hosts.until(lambda: leader.log.groups[GROUP].start > 1)

    assert made_at <= 36
    assert leader.log.groups[GROUP].start <= made_at + 2
    hosts.until(lambda: leader.machines[GROUP].state.count == 36)
    leader.end(power=True)
    hosts.start(leader.number)
    hosts.until(lambda: leader.machines[GROUP].state.count == 36)


def test_a_turn_makes_one_step(hosts: Hosts) -> None:
    leader = hosts.leader()
    hosts.publish(30)
    hosts.until(lambda: steps(leader))
    before = steps(leader)

    leader.consensus._round.turn()

    assert steps(leader) == before + 1


def test_nothing_is_applied_or_read_before_a_state_is_installed(hosts: Hosts) -> None:
    away = hosts.followers()[0]
    away.end(power=False)
    hosts.publish(200)
    hosts.step(60)
    hosts.start(away.number)
    hosts.until(lambda: away.consensus._members[GROUP].is_installing)
    away.read(GROUP)
    assert away.machines[GROUP].state.count == 5
    assert hosts.judge.counts["reads"] == 0

    hosts.until(lambda: away.machines[GROUP].state.count == 205)
    hosts.until(lambda: hosts.judge.counts["reads"] == 1)


def test_a_machine_that_fails_in_a_step_stops(hosts: Hosts) -> None:
    leader = hosts.leader()
    assert isinstance(leader, SlowNode)
    leader.may_fail = leader.machines[GROUP].fails = True  # type: ignore[attr-defined]
    hosts.publish(30)

    hosts.until(lambda: leader.consensus.status(GROUP).is_stopped)


def test_a_state_of_a_group_that_is_closed_meanwhile_is_forgotten(hosts: Hosts) -> None:
    leader = hosts.leader()
    hosts.publish(30)
    hosts.until(lambda: 0 < steps(leader) < STEPS, 50)
    leader.consensus.close(GROUP)
    machine = leader.machines[GROUP]
    leader.machines[GROUP] = SlowMachine(leader, GROUP)
    leader.consensus.open(GROUP, "g5", leader.machines[GROUP])
    before = machine.steps  # type: ignore[attr-defined]
    hosts.step(20)

    assert machine.steps == before  # type: ignore[attr-defined]


def test_a_state_that_is_too_large_stops_its_machine(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "STATE_MAX", 10)
    leader = hosts.leader()
    monkeypatch.setattr(leader, "_expects", lambda text: "at most 10 can be sent" in text)
    monkeypatch.setattr(hosts.followers()[0], "_expects", lambda text: "at most 10 can be sent" in text)
    monkeypatch.setattr(hosts.followers()[1], "_expects", lambda text: "at most 10 can be sent" in text)
    hosts.publish(30)

    hosts.until(lambda: leader.consensus.status(GROUP).is_stopped)


def test_a_log_with_an_interval_is_cut_when_what_goes_is_synced_elsewhere() -> None:
    hosts = Hosts(tuning=Tuning(sync_interval_ns=200_000_000, log_size_max=2000))
    hosts.publish(40)
    leader = hosts.leader()
    hosts.until(lambda: leader.consensus._states.has_waiting)

    hosts.step(45)
    assert leader.log.groups[GROUP].start == 1
    hosts.until(lambda: leader.log.groups[GROUP].start > 10, 10)
