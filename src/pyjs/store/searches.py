"""Searches and counts in a store, in steps of about a millisecond.

The store may change between two steps. A search returns a message that was live when it was found; a count includes
each message that was live when its step examined it. Most of them end in the first step, since the store searches by
subject where that is faster (store/index/catalogue.pyx). This module knows nothing of requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.store.index.catalogue import Catalogue
    from pyjs.store.index.filter import StoreFilter


def next_match(catalogue: Catalogue, seq: int, wanted: StoreFilter) -> Generator[None, None, int]:
    """Yield between steps; return the sequence of the first match >= `seq`, or 0 if there is none."""
    found, rest = catalogue.next_step(seq, wanted)
    while rest:
        yield
        found, rest = catalogue.next_step(rest, wanted)
    return found


def last_match(catalogue: Catalogue, up_to_seq: int, wanted: StoreFilter) -> Generator[None, None, int]:
    """Yield between steps; return the sequence of the last match <= `up_to_seq`, or 0 if there is none."""
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
