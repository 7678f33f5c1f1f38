from pyjs.archive.entry_reader import EntryReader
from pyjs.store.store import StreamStore

def read_messages(
    store: StreamStore, seq: int, last_seq: int, limit: int, size_max: int
) -> tuple[bytearray, int]: ...
def append_messages(
    store: StreamStore,
    entries: EntryReader,
    message_max: int,
    has_ttls: bool,
    subject_max: int,
    size_max: int,
) -> int: ...
