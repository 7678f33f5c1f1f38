from pyjs.core.account import Account
from pyjs.store.store import StreamStore

SOURCE_HASH: bytes

class DirectAnswers:
    def __init__(self, name: bytes) -> None: ...
    def send_last(self, account: Account, store: StreamStore, subject: bytes, reply: bytes) -> bool: ...
