"""The subjects of a store: their memory, which is moved when subjects are added and removed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.unit.store.file_state import subject_counts

from pyjs.store.memory import MemStore

MB = 1_000_000


def heap_size() -> int:
    """Return the resident memory of this process in bytes, without pages of files."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon"))


def append_many(store: MemStore, count: int, size: int) -> None:
    """Store one message of `size` bytes for each of `count` subjects."""
    for number in range(count):
        store.store(b"bench.%06d" % number, b"", b"x" * size, number)


@pytest.mark.parametrize("seed", range(4))
def test_every_subject_is_found_while_others_come_and_go(seed: int) -> None:
    rng, store = random.Random(seed), MemStore()
    seqs: dict[bytes, int] = {}
    for step in range(20_000):
        if seqs and (step // 2_000 % 2 or rng.random() < 0.3):
            subject = rng.choice(list(seqs)) if step % 50 == 0 else next(iter(seqs))
            assert store.drop_seq(seqs.pop(subject))
        else:
            subject = b"s.%d.%s" % (step, b"x" * rng.choice((0, 3, 30, 700)))
            seqs[subject] = store.store(subject, b"", b"", 1)
    assert store.catalogue.num_subjects() == len(seqs)
    assert {subject: store.last_match(subject) for subject in seqs} == seqs
    assert subject_counts(store, store.make_filter(())) == dict.fromkeys(seqs, 1)


def test_a_subject_that_returns_is_a_new_one() -> None:
    store = MemStore()
    for seq in range(1, 100):
        assert store.store(b"again", b"", b"", seq) == seq
        assert store.last_match(b"again") == seq
        assert store.drop_seq(seq)
        assert store.last_match(b"again") == 0


def test_a_subject_as_long_as_there_may_be_is_stored_with_its_neighbours() -> None:
    store = MemStore()
    names = [bytes([65 + number]) * 65_535 for number in range(20)]
    for number, name in enumerate(names):
        store.store(name, b"", b"", number)
    assert [store.last_match(name) for name in names] == list(range(1, 21))


def test_a_hundred_thousand_subjects_take_less_than_350_bytes_each() -> None:
    store = MemStore()
    before = heap_size()
    append_many(store, 100_000, 16)
    assert store.catalogue.learn_subjects(store.make_filter((b"*.000007",)), 1_000_000)
    assert heap_size() - before < 350 * 100_000


def test_subjects_that_left_while_one_stayed_leave_no_memory_behind() -> None:
    store = MemStore()
    store.store(b"stays", b"", b"", 1)
    append_many(store, 1_000, 16)
    before = heap_size()
    for begin in range(2, 300_000, 1_000):
        for seq in range(begin, begin + 1_000):
            store.drop_seq(seq)
        append_many(store, 1_000, 1)
    assert store.last_match(b"stays") == 1
    assert heap_size() - before < 10 * MB
