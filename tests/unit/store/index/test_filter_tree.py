"""Many filters at once: the matches are those of each filter alone, and the work does not grow with their number."""

from __future__ import annotations

import random
import time

import pytest

from pyjs.store.index.filter import StoreFilter
from pyjs.store.index.last_seqs import Count
from pyjs.store.memory import MemStore
from pyjs.subjects.tokens import subject_matches

TOKENS = (b"a", b"b", b"c", b"*")


def drawn(rng: random.Random, *, wild: bool) -> bytes:
    """Return a subject or a filter of up to five tokens."""
    tokens = [rng.choice(TOKENS if wild else TOKENS[:3]) for _ in range(rng.randrange(1, 6))]
    if wild and rng.random() < 0.3:
        tokens.append(b">")
    return b".".join(tokens)


def count(store: MemStore, filters: tuple[bytes, ...]) -> int:
    return store.catalogue.count_matching(1, store.make_filter(filters))


@pytest.mark.parametrize("seed", range(20))
def test_many_filters_match_what_one_of_them_matches(seed: int) -> None:
    rng = random.Random(seed)
    store = MemStore()
    names = [drawn(rng, wild=False) for _ in range(400)]
    for seq, name in enumerate(names, 1):
        store.store(name, b"", b"", seq)
    filters = tuple(drawn(rng, wild=True) for _ in range(rng.randrange(5, 40)))

    wanted = [
        seq for seq, name in enumerate(names, 1) if any(subject_matches(name, each) for each in filters)
    ]
    assert count(store, filters) == len(wanted)
    found, seq = [], store.catalogue.next_match(1, store.make_filter(filters))
    while seq:
        found.append(seq)
        seq = store.catalogue.next_match(seq + 1, store.make_filter(filters))
    assert found == wanted


@pytest.mark.parametrize(
    ("filters", "name", "matches"),
    [
        ((b"a.>",), b"a", False),
        ((b"a.>", b"a"), b"a", True),
        ((b"*.b", b"a.c"), b"a.b", True),  # the literal token leads nowhere
        ((b"*.*.x", b"a.b.y", b"a.*.z"), b"a.b.x", True),
        ((b"a*.b",), b"ac.b", False),  # a star is a wildcard only alone
        ((b"a.b.c",), b"a.b", False),
        ((b"a.b",), b"a.b.c", False),
        ((b"a.b.*",), b"a.b." + b"x" * 1000, True),
    ],
)
def test_special_filters(filters: tuple[bytes, ...], name: bytes, matches: bool) -> None:
    store = MemStore()
    store.store(name, b"", b"", 1)
    others = tuple(b"other.%d" % number for number in range(5))  # so that they are searched as a tree

    assert count(store, filters + others) == matches


def test_a_filter_of_many_tokens_and_many_filters_of_one_are_built() -> None:
    deep = tuple(b".".join([b"*"] * 5_000 + [b"%d" % number]) for number in range(5))
    store = MemStore()
    store.store(b".".join([b"a"] * 5_000 + [b"3"]), b"", b"", 1)
    wide = tuple(b"%d.*" % number for number in range(20_000))

    assert count(store, deep) == 1
    assert count(store, wide) == 0
    assert StoreFilter(wide).subjects == wide


@pytest.fixture(scope="module")
def large() -> MemStore:
    store = MemStore()
    for seq in range(1, 100_001):
        store.store(b"e.%d.%d" % (seq % 1000, seq), b"", b"", seq)
    return store


def test_the_steps_of_a_count_do_not_grow_with_the_number_of_filters(large: MemStore) -> None:
    steps = {}
    for number in (5, 300):
        filters = tuple(b"*.*.%d" % each for each in range(1, 1 + number))
        counting = Count(large.catalogue, large.make_filter(filters))
        steps[number] = 1
        while not counting.step(8_000):
            steps[number] += 1
        assert counting.msgs == number

    assert steps[300] < steps[5] + 10 + 300 * 8_192 // 8_000  # each filter is first looked up in the index


@pytest.mark.parametrize("form", [b"e.%d.>", b"*.%d.*"])
def test_a_count_with_many_filters_costs_about_as_much_as_a_count_with_each(
    large: MemStore, form: bytes
) -> None:
    def seconds(wanted: list[StoreFilter]) -> float:
        start = time.thread_time()
        assert sum(large.catalogue.count_matching(1, each) for each in wanted) == 90_000
        return time.thread_time() - start

    filters = [form % each for each in range(900)]
    together, alone = [large.make_filter(filters)], [large.make_filter((each,)) for each in filters]
    seconds(together)  # the index of subjects is built
    # a hundred times as much, if each match were compared with the filters before its own
    assert min(seconds(together) for _ in range(3)) < 20 * min(seconds(alone) for _ in range(3))
