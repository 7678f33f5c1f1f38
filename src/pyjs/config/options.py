"""The options of the server: typed values with their defaults, checked.

Knows nothing of files and flags. Sizes are bytes, times are nanoseconds. If 0 in
a file means the default, the default is here; the comment of each attribute has the other meanings of 0 and -1.
Attributes have the names of the NATS keys; keys, aliases and checks are in tables.py. The classes have no repr,
so that no log line can show a password.

Source: nats.docs "Configuration"; defaults are nats-server 2.15's, except the sync interval.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

NS_PER_S = 1_000_000_000
GLOBAL_ACCOUNT = "$G"
SYSTEM_ACCOUNT = "$SYS"


@dataclass(eq=False, repr=False, slots=True)
class SubjectPermissions:
    """The subjects that a user may publish to, or subscribe to ("subject" or "subject queue")."""

    allow: tuple[str, ...] | None = None  # None: every subject; (): only replies by allow_responses
    deny: tuple[str, ...] = ()  # overrides allow


@dataclass(eq=False, repr=False, slots=True)
class ResponsePermission:
    """Permission to publish to the reply subjects of received messages."""

    max_msgs: int = 1  # replies to one message; negative: no limit
    expires_ns: int = 120 * NS_PER_S  # after the message was received; negative: no limit


@dataclass(eq=False, repr=False, slots=True)
class PermissionOptions:
    """The permissions of a user; None allows everything."""

    publish: SubjectPermissions | None = None
    subscribe: SubjectPermissions | None = None
    allow_responses: ResponsePermission | None = None  # set: publish.allow is a tuple, () if none was given


@dataclass(eq=False, repr=False, slots=True)
class UserOptions:
    """One user and the account it belongs to."""

    user: str = ""
    password: str = ""  # plain, or a bcrypt hash: see is_bcrypt
    permissions: PermissionOptions | None = None  # its own, else the default permissions of its block
    account: str = GLOBAL_ACCOUNT
    nkey: str = ""  # a public key, in place of user and password


@dataclass(eq=False, repr=False, slots=True)
class AuthorizationOptions:
    """Who may connect, beside the users of accounts."""

    user: str = ""  # the single user; "" if there is none
    password: str = ""
    token: str = ""  # plain, or a bcrypt hash
    timeout_ns: int = 2 * NS_PER_S  # time limit for CONNECT
    users: tuple[UserOptions, ...] = ()  # of the global account
    default_permissions: PermissionOptions | None = None


@dataclass(eq=False, repr=False, slots=True)
class AccountLimits:
    """Limits for the connections of one account; -1: only the server's limits."""

    max_connections: int = -1
    max_subscriptions: int = -1
    max_payload: int = -1


@dataclass(eq=False, repr=False, slots=True)
class AccountJetStreamOptions:
    """Limits for the streams of one account; -1: only the server's limits."""

    max_memory: int = -1
    max_storage: int = -1
    max_streams: int = -1
    max_consumers: int = -1
    max_bytes_required: bool = False  # every stream must set max_bytes
    mem_max_stream_bytes: int = -1
    disk_max_stream_bytes: int = -1
    max_ack_pending: int = -1


@dataclass(eq=False, repr=False, slots=True)
class AccountOptions:
    """One account."""

    name: str = ""
    users: tuple[UserOptions, ...] = ()
    jetstream: AccountJetStreamOptions | None = None  # None: JetStream is off in this account
    default_permissions: PermissionOptions | None = None
    limits: AccountLimits = field(default_factory=AccountLimits)


@dataclass(eq=False, repr=False, slots=True)
class BatchLimits:
    """Limits of the server for atomic batches."""

    max_inflight_per_stream: int = 50
    max_inflight_total: int = 1000
    max_msgs: int = 1000
    timeout_ns: int = 10 * NS_PER_S


@dataclass(eq=False, repr=False, slots=True)
class JetStreamLimits:
    """Limits of the server for options of streams and consumers; 0: none."""

    max_ack_pending: int = 0
    max_request_batch: int = 0
    duplicate_window_ns: int = 0
    default_max_consumers: int = 1000  # of a stream without max_consumers; -1: no limit
    batch: BatchLimits = field(default_factory=BatchLimits)


@dataclass(eq=False, repr=False, slots=True)
class JetStreamOptions:
    """The options of JetStream."""

    enabled: bool = False
    # Without the final "/jetstream"; "": a directory in the temporary one, with a warning.
    store_dir: str = ""
    max_memory: int = -1  # -1: depends on the machine's memory; 0: no memory streams
    max_storage: int = -1  # -1: depends on the free disk space
    sync_interval_ns: int = 1 * NS_PER_S  # nats-server has 2 minutes
    sync_always: bool = False  # PubAcks and acks are answered after fdatasync
    scrub_rate: int = 8 << 20  # bytes per second that the scrub reads; 0: off
    domain: str = ""
    unique_tag: str = ""  # prefix of the server tag that would place replicas in a cluster
    key: str = ""  # wraps the data keys of file streams; "": no encryption
    prev_key: str = ""  # the previous key, to unwrap older data keys; "": none
    cipher: str = "chacha"  # of new streams: chacha or aes
    strict: bool = True  # unknown fields in API requests are errors
    limits: JetStreamLimits = field(default_factory=JetStreamLimits)


@dataclass(eq=False, repr=False, slots=True)
class MonitoringOptions:
    """The port of the monitoring pages; at most one of the two is used."""

    host: str = ""  # "": as that for clients
    http_port: int = 0  # 0: none; -1: any free one
    https_port: int = 0  # the same, with TLS
    base_path: str = ""  # as written; a leading slash may be missing


@dataclass(eq=False, repr=False, slots=True)
class TlsOptions:
    """TLS of client connections, off without a certificate; and checks of clients' certificates."""

    cert_file: str = ""  # certificate chain, PEM
    key_file: str = ""  # its private key
    certs: tuple[tuple[str, str], ...] = ()  # more pairs of both; selected by the client's SNI
    allow_plain: bool = False  # clients may connect without TLS
    ca_file: str = ""  # CAs for clients' certificates; "": those of the system
    verify: bool = False  # clients need a certificate
    verify_and_map: bool = False  # and it selects their user
    timeout_ns: int = 2 * NS_PER_S  # time limit of the handshake
    handshake_first_ns: int = -1  # INFO waits this long for a handshake; 0: for ever; -1: not
    connection_rate_limit: int = 0  # handshakes per second; 0: no limit
    pinned_certs: tuple[str, ...] = ()  # SHA-256 of public keys, lower-case hex; (): any key
    min_version: str = "1.2"
    cipher_suites: tuple[str, ...] = ()  # of TLS 1.2, IANA names; (): OpenSSL's defaults
    curve: str = ""  # "": OpenSSL's defaults
    place: str = ""  # file:line:column of the block, for later errors

    @property
    def certificates(self) -> tuple[tuple[str, str], ...]:
        """The files of each certificate and its key; (): TLS is off."""
        return (((self.cert_file, self.key_file),) if self.cert_file else ()) + self.certs


@dataclass(eq=False, repr=False, slots=True)
class Warnings:
    """Warnings about a configuration that can be used: file:line:column: cause; fix."""

    mistakes: tuple[str, ...] = ()  # -t fails
    repeated: tuple[str, ...] = ()  # keys that are set twice; valid for -t, as in nats-server


@dataclass(eq=False, repr=False, slots=True)
class Options:
    """All options of one server."""

    host: str = "0.0.0.0"
    port: int = 4222  # -1: any free port
    client_advertise: str = ""  # "host" or "host:port"
    server_name: str = ""  # "": the server id
    server_tags: tuple[str, ...] = ()  # lower case, no duplicates
    server_metadata: dict[str, str] = field(default_factory=dict)

    debug: bool = False
    trace: bool = False
    trace_verbose: bool = False  # includes the system account; implies trace
    logtime: bool = True
    logtime_utc: bool = False
    log_file: str = ""  # "": standard error
    log_size_limit: int = 0  # bytes until the file is rotated; 0: never
    log_max_num: int = 0  # number of log files, with the current one; 0: no limit
    max_traced_msg_len: int = 0  # 0: no limit
    pid_file: str = ""
    ports_file_dir: str = ""

    monitoring: MonitoringOptions = field(default_factory=MonitoringOptions)

    max_payload: int = 1 << 20  # -1: no limit
    max_pending: int = 64 << 20
    max_control_line: int = 4096
    max_connections: int = 65536  # -1: every client is refused
    max_subscriptions: int = 0  # of one connection; 0: no limit
    max_sub_tokens: int = 0  # 0: no limit
    ping_interval_ns: int = 120 * NS_PER_S
    ping_max: int = 2
    write_deadline_ns: int = 10 * NS_PER_S
    lame_duck_duration_ns: int = 120 * NS_PER_S
    lame_duck_grace_period_ns: int = 10 * NS_PER_S
    no_header_support: bool = False
    no_fast_producer_stall: bool = False
    max_closed_clients: int = 10_000
    disable_sublist_cache: bool = False

    authorization: AuthorizationOptions = field(default_factory=AuthorizationOptions)
    no_auth_user: str = ""
    tls: TlsOptions = field(default_factory=TlsOptions)
    accounts: dict[str, AccountOptions] = field(default_factory=dict)  # those of the file, by name
    feature_flags: dict[str, bool] = field(default_factory=dict)  # those that were set
    system_account: str = SYSTEM_ACCOUNT  # "": none (no_system_account)
    no_system_account: bool = False

    jetstream: JetStreamOptions = field(default_factory=JetStreamOptions)

    # The sources of the options; no key sets these.
    config_path: str | None = None  # the file of -c
    config_digest: str = ""  # "sha256:..."; "" without a file
    flags: dict[str, str | int | bool] = field(default_factory=dict)  # the command line, see flags.py
    warnings: Warnings = field(default_factory=Warnings)

    def users(self) -> Iterator[UserOptions]:
        """Yield every configured user, of all blocks."""
        single = self.authorization
        if single.user:
            yield UserOptions(single.user, single.password)
        yield from single.users
        for account in self.accounts.values():
            yield from account.users

    def has_plain_password(self) -> bool:
        """Return whether a password or token is in plain text."""
        secrets = [self.authorization.token, *(user.password for user in self.users())]
        return any(secret and not is_bcrypt(secret) for secret in secrets)


def is_bcrypt(secret: str) -> bool:
    """Return whether `secret` is a bcrypt hash, not a password."""
    return secret[:4] in ("$2a$", "$2b$", "$2x$", "$2y$") and secret[4:6].isdigit() and secret[6:7] == "$"
