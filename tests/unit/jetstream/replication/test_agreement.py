"""Whether a store agrees with the log of its group."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pyjs.consensus.log.group import StoredGroup
from pyjs.jetstream.replication.agreement import Agreement

START = 5
TERM = 3


class Machine:
    """A replica whose store has applied an entry; its log has one entry after its start."""

    def __init__(self, index: int, term: int) -> None:
        self.stored = StoredGroup(1)
        self.stored.start, self.stored.start_term = START, TERM
        for index in range(1, START + 2):
            self.stored.append(index, TERM, 0, 10)
        self.replica: Any = SimpleNamespace(
            index=index, term=term, stream=SimpleNamespace(store=SimpleNamespace(last_seq=0))
        )
        self.notes: list[bytes] = []

    def term_at(self, index: int) -> int:
        return self.stored.term_at(index)

    def propose_note(self, payload: bytes) -> None:
        self.notes.append(payload)


@pytest.mark.parametrize("in_doubt", [False, True])
@pytest.mark.parametrize("index", [START + 1, START + 10])
def test_a_store_that_was_dropped_agrees_with_no_log(index: int, in_doubt: bool) -> None:
    machine = Machine(index, 0)
    agreement = Agreement(machine)

    agreement.begin(machine.stored, in_doubt=in_doubt)

    assert agreement.is_unsure
    assert not agreement.allows(index, TERM)
    assert not agreement.may_lead()
    assert not machine.notes


def test_a_store_whose_last_entry_is_in_the_log_agrees() -> None:
    machine = Machine(START + 1, TERM)
    agreement = Agreement(machine)

    agreement.begin(machine.stored, in_doubt=True)

    assert agreement.is_unsure
    assert agreement.allows(START + 1, TERM)
    assert not agreement.is_unsure
