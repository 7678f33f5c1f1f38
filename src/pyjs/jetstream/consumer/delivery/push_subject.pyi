from pyjs.core.account import Account

class PushSubject:
    subject: bytes
    bound: bool
    def configure(self, subject: bytes, group: bytes, heartbeat_ns: int) -> None: ...
    def look(self, account: Account, now: int) -> None: ...
