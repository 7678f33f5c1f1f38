from pyjs.base.rng import Rng
from pyjs.config.exchange.declared import ServiceExport
from pyjs.core.account import Account
from pyjs.core.exchange.latency import Meter
from pyjs.core.exchange.pending import PendingList
from pyjs.core.host import Host
from pyjs.core.sink import Request, Sink

class ServiceCalls:
    export: ServiceExport
    latency: Meter | None
    waiting: PendingList
    def __init__(
        self, host: Host, table: Responses, export: ServiceExport, latency: Meter | None
    ) -> None: ...
    def expire(self) -> None: ...
    def stop(self) -> None: ...
    def lose(self, token: bytes) -> None: ...

class Responses(Sink):
    account: Account
    exports: dict[ServiceExport, ServiceExport]
    internal: bool
    prefix: bytes
    def subscribe(self, request: Request | None = ...) -> None: ...
    def __init__(self, account: Account, rng: Rng) -> None: ...
    @property
    def num_waiting(self) -> int: ...
