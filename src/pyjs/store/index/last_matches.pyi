from pyjs.store.index.catalogue import Catalogue

class LastMatches:
    results: dict[bytes, tuple[int, int]]
    def last_match(self, catalogue: Catalogue, subject: bytes) -> int: ...
