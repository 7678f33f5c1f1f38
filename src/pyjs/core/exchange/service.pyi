from collections.abc import Callable

from pyjs.core.account import Account
from pyjs.core.exchange.responses import ServiceCalls
from pyjs.core.session import ClientSession
from pyjs.core.sink import Sink
from pyjs.subjects.rewrite import Rewrite

class ServiceSink(Sink):
    importer: Account
    exporter: Account
    calls: ServiceCalls
    internal: bool
    stays_here: bool
    def __init__(
        self,
        importer: Account,
        exporter: Account,
        calls: ServiceCalls,
        rewrite: Rewrite | None,
        to: bytes,
        share: bool,
        describe: Callable[[ClientSession], bytes],
        own: bytes,
        extend: Callable[[bytes, Account, bool], bytes],
    ) -> None: ...
