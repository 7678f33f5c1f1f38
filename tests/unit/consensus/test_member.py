"""One group on this node: proposals that are committed, and proposals that are lost."""

from __future__ import annotations

from typing import Any, cast

from pyjs.consensus.descriptor import describe
from pyjs.consensus.engine import EntryKind, Role
from pyjs.consensus.member import ENTRY_COST, Member
from pyjs.consensus.payloads import Payloads


class Noting:
    """A machine that records its calls."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def apply(self, index: int, term: int, time_ns: int, payload: bytes, proposal: object | None) -> None:
        self.calls.append((index, payload, proposal))

    def role(self, term: int, role: Role, leader: int) -> None:
        self.calls.append((term, role.name, leader))

    def dropped(self, proposal: object) -> None:
        self.calls.append(("dropped", proposal))

    def durable(self) -> int:
        return 0

    def snapshot(self) -> bytes:
        return b""

    def install(self, index: int, data: bytes) -> None:
        self.calls.append(("install", index, data))

    def renewed(self) -> None:
        raise AssertionError


class Bench:
    """A member and its state machine."""

    def __init__(self) -> None:
        self.machine = Noting()
        self.payloads = Payloads(cast("Any", None))
        self.member = Member(5, "orders", 1, self.machine)

    def commit(self, index: int, payload: bytes | None, term: int = 1) -> None:
        """Commit an entry; `payload` None: the first entry of a leader's term."""
        body = bytes(40) if payload is None else describe(payload, index)
        kind = EntryKind.EMPTY if payload is None else EntryKind.DATA
        if payload:
            self.payloads.stage((5, index, term), payload)
        self.member.take((index, term, kind, body))

    def apply(self) -> list[object]:
        self.member.apply_some(self.payloads, 100, 1 << 20)
        calls, self.machine.calls = self.machine.calls, []
        return calls


def test_the_machine_leads_when_it_has_applied_the_terms_before() -> None:
    bench = Bench()
    bench.member.take_role(2, Role.LEADER, 7)
    bench.commit(1, b"a")
    assert bench.apply() == [(1, b"a", None)]
    assert not bench.member.leads

    bench.commit(2, None, term=2)

    assert bench.apply() == [(2, "LEADER", 7)]
    assert bench.member.leads


def test_an_entry_of_an_earlier_term_makes_nobody_lead() -> None:
    bench = Bench()
    bench.member.take_role(3, Role.LEADER, 7)
    bench.commit(1, None, term=2)

    assert bench.apply() == []


def test_a_proposal_comes_back_with_its_entry() -> None:
    bench = Bench()
    bench.member.proposed(1, 1, 10, "mine")
    bench.member.proposed(2, 1, 11, None)
    bench.commit(1, b"a")
    bench.commit(2, b"")

    assert bench.apply() == [(1, b"a", "mine"), (2, b"", None)]


def test_another_entry_at_the_index_of_a_proposal_drops_it() -> None:
    bench = Bench()
    bench.member.proposed(1, 1, 10, "mine")
    bench.commit(1, b"theirs", term=2)

    assert bench.apply() == [("dropped", "mine"), (1, b"theirs", None)]


def test_a_new_role_drops_what_was_proposed() -> None:
    bench = Bench()
    bench.member.proposed(1, 1, 10, "mine")
    bench.member.take_role(2, Role.FOLLOWER, 8)

    assert bench.apply() == [("dropped", "mine"), (2, "FOLLOWER", 8)]


class Patient:
    is_patient = True


def test_a_patient_proposal_gets_its_entry_after_the_lead_is_lost() -> None:
    bench, mine, late = Bench(), Patient(), Patient()
    bench.member.proposed(1, 1, 10, mine)
    bench.member.proposed(2, 1, 11, late)
    bench.member.take_role(2, Role.FOLLOWER, 8)
    bench.commit(1, b"a")
    assert bench.apply() == [(2, "FOLLOWER", 8), (1, b"a", mine)]

    # the first entry of the other leader, before which `late` would have been committed
    bench.commit(2, None, term=2)

    assert bench.apply() == [("dropped", late)]
    assert bench.member.proposals == 0


def test_what_came_before_is_not_applied_again() -> None:
    bench = Bench()
    for _ in range(2):
        bench.commit(1, b"a")

    assert bench.apply() == [(1, b"a", None)]


def test_reads_wait_for_their_index() -> None:
    bench = Bench()
    done: list[int] = []
    bench.commit(1, b"a")
    bench.member.wants_read(1, lambda: done.append(1))
    bench.member.wants_read(2, lambda: done.append(2))
    assert done == []
    bench.apply()
    assert done == [1]
    bench.member.wants_read(1, lambda: done.append(3))
    assert done == [1, 3]


def test_a_snapshot_takes_the_place_of_what_is_queued() -> None:
    bench = Bench()
    done: list[int] = []
    bench.commit(1, b"a")
    bench.member.wants_read(9, lambda: done.append(9))
    bench.member.note_start(9)
    bench.member.install(9, 77, b"state")
    bench.commit(9, b"old")
    bench.commit(10, b"b")

    assert bench.apply() == [("install", 9, b"state"), (10, b"b", None)]
    assert done == [9]
    assert bench.member.next_time_ns(5) == 78


def test_entries_count_with_their_payloads() -> None:
    bench = Bench()
    bench.member.note_entries(
        [(1, EntryKind.DATA, describe(b"x" * 100, 50)), (1, EntryKind.EMPTY, bytes(40))]
    )

    assert bench.member.log_size == 100 + 2 * ENTRY_COST
    assert bench.member.next_time_ns(5) == 51


def test_after_a_cut_only_queued_entries_count_and_only_messages_have_payloads() -> None:
    bench = Bench()
    bench.commit(1, b"x" * 100)
    bench.member.take((2, 1, EntryKind.CHANGE, b"\xff" * 40))
    bench.commit(3, None)
    bench.member.log_size = 1 << 20

    bench.member.note_cut(bench.member.applied_size())

    assert bench.member.log_size == 100 + 3 * ENTRY_COST


def test_a_stopped_group_collects_no_reads() -> None:
    bench = Bench()
    bench.member.stop()
    bench.member.wants_read(1, lambda: bench.machine.calls.append("read"))
    bench.member.wants_read(0, lambda: bench.machine.calls.append("read"))

    assert bench.member.reads == []
    assert bench.apply() == []


def test_a_stopped_group_takes_nothing() -> None:
    bench = Bench()
    bench.member.proposed(1, 1, 10, "mine")
    bench.member.stop()
    bench.commit(1, b"a")

    assert bench.apply() == [("dropped", "mine")]


def test_a_leader_continues_the_time_of_committed_entries_not_of_dropped_ones() -> None:
    bench = Bench()
    bench.commit(1, b"a")
    bench.member.note_entries([(2, EntryKind.DATA, describe(b"of a leader ahead", 3600))])
    bench.member.take_role(2, Role.LEADER, 7)
    bench.commit(2, None, term=2)
    bench.apply()
    assert bench.member.next_time_ns(0) == 2
    assert bench.member.next_time_ns(50) == 50
