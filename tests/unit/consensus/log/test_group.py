"""A group of the node log: entries that replace others, a start index that moves, and losses."""

from __future__ import annotations

import pytest

from pyjs.consensus.log.group import FILE_SHIFT, StoredGroup
from pyjs.consensus.log.records import Base, Membership


def base(start: int, term: int = 1) -> Base:
    return Base(9, start, term, Membership((9,)), "g")


def place(file: int, at: int = 0) -> int:
    return file << FILE_SHIFT | at


@pytest.fixture
def group() -> StoredGroup:
    """Return a group with entries 2 to 5 in files 1 to 4."""
    group = StoredGroup(1)
    group.begin_at(base(1), 1, place(1), 100, reset=True)
    for index in range(2, 6):
        group.append(index, 1, place(index - 1, index), 10)
    return group


def test_an_entry_replaces_those_after_it(group: StoredGroup) -> None:
    group.append(3, 2, place(5, 7), 30)

    assert group.last == 3
    assert [group.term_at(index) for index in (1, 2, 3, 4)] == [1, 1, 2, 0]
    assert group.place_of(3) == (place(5, 7), 30)
    assert group.size == 140
    group.check()
    with pytest.raises(KeyError):
        group.place_of(4)


def test_a_hard_state_follows_the_one_before_it(group: StoredGroup) -> None:
    assert not group.follow_hard(2, 9, 3)
    assert group.follow_hard(2, 9, 4)
    for wrong in ((1, 9, 4), (2, 8, 4), (2, 9, 3)):
        with pytest.raises(AssertionError):
            group.follow_hard(*wrong)
    assert (group.hard, group.term, group.vote, group.commit) == ((2, 9, 4), 2, 9, 4)


def test_a_start_forgets_what_is_before_it(group: StoredGroup) -> None:
    group.begin_at(base(3), 5, place(6), 90, reset=False)

    assert (group.start, group.last, group.size) == (3, 5, 110)
    assert group.oldest_file == 3
    with pytest.raises(KeyError):
        group.place_of(3)
    group.check()


def test_a_start_without_entries_is_all_that_is_left(group: StoredGroup) -> None:
    group.begin_at(base(9, 4), 9, place(6), 90, reset=False)

    assert (group.last, group.size, group.oldest_file, group.term_at(9)) == (9, 90, 6, 4)


def test_a_lost_group_is_intact_after_a_record_with_all_of_it(group: StoredGroup) -> None:
    group.lose("lost")
    assert group.is_damaged
    assert group.last == -1
    group.begin_at(base(3), 3, place(6), 90, reset=True)
    assert not group.is_damaged
    group.check()


def test_a_lost_group_is_intact_when_a_start_follows_its_new_entries(group: StoredGroup) -> None:
    group.lose("lost")
    for index in (7, 8):
        group.append(index, 1, place(5), 10)
    group.begin_at(base(7), 8, place(6), 90, reset=False)

    assert (group.is_damaged, group.start, group.last) == (False, 7, 8)
    group.check()


def test_a_lost_group_stays_so_if_a_start_leaves_entries_that_are_gone(group: StoredGroup) -> None:
    group.lose("lost")
    group.lose("lost again")
    group.begin_at(base(3), 5, place(6), 90, reset=False)
    assert group.damage == "lost"
    group.append(6, 1, place(6), 10)
    assert group.is_damaged

    group.append(4, 2, place(6), 10)  # all lost entries are replaced
    assert (group.is_damaged, group.start, group.last) == (False, 3, 4)
    group.check()
