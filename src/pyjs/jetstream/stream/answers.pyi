from typing import Self

from pyjs.core.account import Account

class Answers:
    def __new__(cls, head: bytes) -> Self: ...
    def send_all(self, account: Account, failure: bytes = b"") -> None: ...
