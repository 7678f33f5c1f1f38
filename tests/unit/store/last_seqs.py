"""The search for the last message of each subject, run to its end."""

from pyjs.store.index.filter import StoreFilter
from pyjs.store.index.last_seqs import LastSeqs
from pyjs.store.store import StreamStore


def last_seqs(store: StreamStore, wanted: StoreFilter, up_to: int = 0) -> list[int]:
    """Return the last sequence (<= `up_to`, unless that is 0) of each matching subject, ascending."""
    search = LastSeqs(store.catalogue, wanted, up_to)
    while not search.step(1000):
        pass
    return search.found()
