"""Searches and counts in a store, in steps of about a millisecond.

The store may change between two steps. A search returns a message that was live when the search found it. A count
includes each message that was live when a step examined it. Most searches and counts end in the first step, since the
store searches by subject where that is faster (store/index/catalogue.pyx). This module knows nothing of requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.store.index.catalogue import Catalogue
    from pyjs.store.index.filter import StoreFilter

MATCHES_STEP = 5000  # maximum number of sequences that one step returns
LAST_SEQ = (1 << 64) - 1  # no message has a higher sequence


def next_match(catalogue: Catalogue, seq: int, wanted: StoreFilter) -> Generator[None, None, int]:
    """Yield between steps; return the sequence of the first match from `seq` on, or 0 if there is none."""
    found, rest = catalogue.next_step(seq, wanted)
    while rest:
        yield
        found, rest = catalogue.next_step(rest, wanted)
    return found


def last_match(catalogue: Catalogue, up_to_seq: int, wanted: StoreFilter) -> Generator[None, None, int]:
    """Yield between steps; return the sequence of the last match up to `up_to_seq`, or 0 if there is none."""
    found, rest = catalogue.prev_step(up_to_seq, wanted)
    while rest:
        yield
        found, rest = catalogue.prev_step(rest, wanted)
    return found


def count(catalogue: Catalogue, seq: int, wanted: StoreFilter) -> Generator[None, None, int]:
    """Yield between steps; return the number of matches with a sequence >= `seq`."""
    end_seq = catalogue.last_seq
    msgs, rest = catalogue.count_step(seq, wanted, True)
    while rest <= end_seq:
        yield
        more, rest = catalogue.count_step(rest, wanted, False)
        msgs += more
    return msgs


def matches(
    catalogue: Catalogue, seq: int, before_seq: int, wanted: StoreFilter, most: int = LAST_SEQ
) -> Generator[None, None, list[int]]:
    """Return, in ascending order, the sequences of the matches from `seq` on and below `before_seq`.

    The search ends after the step in which the number of matches has reached `most`, so there may be some more.
    """
    found, seq = catalogue.matches_step(seq, before_seq, MATCHES_STEP, wanted)
    while seq and len(found) < most:
        yield
        more, seq = catalogue.matches_step(seq, before_seq, MATCHES_STEP, wanted)
        found += more
    return found


def purge_end(
    catalogue: Catalogue, wanted: StoreFilter, before_seq: int, keep: int
) -> Generator[None, None, int]:
    """Return the sequence below which a purge removes all matches.

    The purge removes the matches below `before_seq`, or all if that is 0. It keeps the newest `keep` of all matches.
    """
    end_seq = min(before_seq or catalogue.last_seq + 1, catalogue.last_seq + 1)
    return min(end_seq, (yield from _first_of_newest(catalogue, keep, wanted))) if keep else end_seq


def _first_of_newest(catalogue: Catalogue, keep: int, wanted: StoreFilter) -> Generator[None, None, int]:
    """Return the sequence of the oldest of the newest `keep` matches, or 0 if there are fewer matches."""
    msgs, rest = catalogue.count_step(0, wanted, True)
    if (
        msgs <= MATCHES_STEP and rest > catalogue.last_seq
    ):  # all are counted, and few enough to search by subject
        found = yield from matches(catalogue, 1, catalogue.last_seq + 1, wanted)
        return found[-keep] if keep <= len(found) else 0
    before_seq = catalogue.last_seq + 1
    while before_seq:
        msgs, low_seq = catalogue.count_back_step(before_seq, wanted)
        if msgs >= keep:
            found = yield from matches(catalogue, max(low_seq, 1), before_seq, wanted)
            return found[-min(keep, len(found))] if found else low_seq
        keep -= msgs
        before_seq = low_seq
        yield
    return 0
