from pyjs.core.account import Account
from pyjs.core.auth import User
from pyjs.core.handshake import ConnectOptions
from pyjs.core.host import Host
from pyjs.core.link import Link, Peer
from pyjs.core.sink import Sink
from pyjs.subjects.sublist import Subscription

SOURCE_HASH: bytes

class ClientSession(Sink):
    account: Account
    host: Host
    link: Link
    peer: Peer
    cid: int
    options: ConnectOptions
    user: User | None
    subscriptions: dict[bytes, Subscription]
    started_at_ns: int
    last_activity_ns: int
    closed_at_ns: int
    rtt_ns: int
    in_msgs: int
    in_bytes: int
    out_msgs: int
    out_bytes: int
    stalls: int
    closed_reason: str
    connected: bool
    def __init__(self, host: Host, account: Account, peer: Peer, link: Link, cid: int) -> None: ...
    def start(self) -> None: ...
    def receive_data(self, data: bytes) -> bool: ...
    def flush_output(self) -> None: ...
    def output_paused(self) -> None: ...
    def output_resumed(self) -> None: ...
    def close(self, reason: str, error: str = "") -> None: ...
    def send_line(self, line: bytes) -> None: ...
    def send_info(self) -> None: ...
    def pending_size(self) -> int: ...
    def apply_settings(self) -> None: ...
    def connection_lost(self) -> None: ...
