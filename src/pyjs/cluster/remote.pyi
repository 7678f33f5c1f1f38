from pyjs.cluster.writer import RouteWriter
from pyjs.core.account import Account
from pyjs.core.sink import Sink
from pyjs.subjects.sublist import Subscription

class RemoteAccount(Sink):
    account: Account
    clients: int
    subscriptions: dict[tuple[bytes, bytes], Subscription]
    def __init__(self, writer: RouteWriter, account: Account, number: int, silent: bool) -> None: ...
