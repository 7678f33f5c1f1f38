from pyjs.store.index.catalogue import Catalogue
from pyjs.store.index.filter import StoreFilter

class LastSeqs:
    up_to: int
    n: int
    def __init__(self, store: Catalogue, f: StoreFilter) -> None: ...
    first: int
    def step(self, limit: int) -> bool: ...
    def packed(self) -> bytes: ...

class Count:
    up_to: int
    msgs: int
    def __init__(self, store: Catalogue, f: StoreFilter) -> None: ...
    def step(self, limit: int) -> bool: ...
    is_exact: bool
