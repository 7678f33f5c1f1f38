"""The options of the server: typed and checked values, with their defaults.

This module knows nothing of files and flags. Sizes are in bytes, times in nanoseconds. Where 0 in a file means the
default, the option here has the default; the comment of each attribute states any other meaning of 0 and -1.
Attributes have the names of the NATS keys; keys, aliases and checks are in tables.py. The classes have no repr, so
that no log line can show a password.

Source: nats.docs "Configuration"; defaults are nats-server 2.15's, except the sync interval.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyjs.config.declared import DeclaredBlocks
from pyjs.config.ports.advertised import advertised_address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyjs.claims.operator import OperatorClaims
    from pyjs.config.exchange.declared import Exchange, Export, Import, SubjectMapping

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

    max_msgs: int = 1  # maximum number of replies to one message; negative: no limit
    expires_ns: int = 120 * NS_PER_S  # time to reply after a message was received; negative: no limit


@dataclass(eq=False, repr=False, slots=True)
class PermissionOptions:
    """The permissions of a user. If `publish` or `subscribe` is None, every subject is allowed."""

    publish: SubjectPermissions | None = None
    subscribe: SubjectPermissions | None = None
    # if set, publish.allow is a tuple, which is () if none was given
    allow_responses: ResponsePermission | None = None


@dataclass(eq=False, repr=False, slots=True)
class UserOptions:
    """One user and the account it belongs to."""

    user: str = ""
    password: str = ""  # plain, or a bcrypt hash: see is_bcrypt
    permissions: PermissionOptions | None = None  # None: the default permissions of the block
    account: str = GLOBAL_ACCOUNT
    nkey: str = ""  # a public key, instead of user and password
    connection_types: tuple[str, ...] = ()  # allowed types, in upper case; (): all
    proxy_required: bool = False  # the user must connect through a trusted proxy


@dataclass(eq=False, repr=False, slots=True)
class CalloutOptions:
    """The authorization callout: a service that authenticates clients."""

    issuer: str = ""  # the public key of the account that signs the answers of the service
    account: str = GLOBAL_ACCOUNT  # account of the service
    auth_users: tuple[str, ...] = ()  # users and nkeys that the service does not check, such as its own
    xkey: str = ""  # public key for the encryption of requests; "": not encrypted
    allowed_accounts: tuple[
        str, ...
    ] = ()  # the service also checks configured users of these accounts; (): of all


@dataclass(eq=False, repr=False, slots=True)
class AuthorizationOptions:
    """The options of the block `authorization`, whose users may connect in addition to those of accounts."""

    user: str = ""  # the single user; "" if there is none
    password: str = ""
    token: str = ""  # plain, or a bcrypt hash
    timeout_ns: int = 2 * NS_PER_S  # time limit for CONNECT
    users: tuple[UserOptions, ...] = ()  # users of the global account
    default_permissions: PermissionOptions | None = None
    auth_callout: CalloutOptions | None = None
    # the single user, or every user of the token, must connect through a trusted proxy
    proxy_required: bool = False


@dataclass(eq=False, repr=False, slots=True)
class TrustedProxy:
    """One entry of `proxies`: a proxy through which clients may connect."""

    key: str = ""  # its public key


@dataclass(eq=False, repr=False, slots=True)
class ProxiesOptions:
    """The options of the block `proxies`: the proxies that are trusted."""

    trusted: tuple[TrustedProxy, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The public keys of the trusted proxies, without duplicates."""
        return tuple(dict.fromkeys(each.key for each in self.trusted))


@dataclass(eq=False, repr=False, slots=True)
class OperatorOptions:
    """One operator: its token, and the claims in it."""

    jwt: str
    claims: OperatorClaims


@dataclass(eq=False, repr=False, slots=True)
class ResolverOptions:
    """The source of account tokens."""

    kind: str = "memory"  # memory: `resolver_preload`; url; full, cache: files of a directory
    url: str = ""  # URL of the account server, to which the name of the account is appended
    dir: str = ""
    allow_delete: bool = False
    hard_delete: bool = False  # True: a removed file is deleted; False: it is renamed
    limit: int = 0  # maximum number of files; 0: no limit (full) or 1000 (cache)
    ttl_ns: int = 0  # cache: ns after which an unused file is removed; 0: when its token expires
    interval_ns: int = 60 * NS_PER_S  # full: ns between two checks for changed files
    timeout_ns: int = 2 * NS_PER_S  # time limit of one fetch, ns


@dataclass(eq=False, repr=False, slots=True)
class AccountLimits:
    """Limits for the connections of one account; -1 means that only the server's limits apply."""

    max_connections: int = -1
    max_subscriptions: int = -1
    max_payload: int = -1


@dataclass(eq=False, repr=False, slots=True)
class AccountJetStreamOptions:
    """The JetStream options of one account. A limit of -1 means that only the server's limits apply."""

    max_memory: int = -1
    max_storage: int = -1
    max_streams: int = -1
    max_consumers: int = -1
    max_bytes_required: bool = False  # each stream must set max_bytes
    mem_max_stream_bytes: int = -1
    disk_max_stream_bytes: int = -1
    max_ack_pending: int = -1
    # tiers of a token whose limits depend on the number of replicas, such as "R1"; (): no tiers
    tiers: tuple[str, ...] = ()
    declared: DeclaredBlocks = field(default_factory=DeclaredBlocks)


@dataclass(slots=True)
class TraceDest:
    """The destination of traces of messages that have a header `traceparent`."""

    dest: str = ""  # "": no traces
    sampling: int = 100  # percent of these messages that are traced


@dataclass(eq=False, repr=False, slots=True)
class AccountOptions:
    """The options of one account."""

    name: str = ""
    users: tuple[UserOptions, ...] = ()
    jetstream: AccountJetStreamOptions | None = None  # None: JetStream is off in this account
    default_permissions: PermissionOptions | None = None
    limits: AccountLimits = field(default_factory=AccountLimits)
    exports: tuple[Export, ...] = ()
    imports: tuple[Import, ...] = ()
    mappings: tuple[SubjectMapping, ...] = ()
    msg_trace: TraceDest | None = None  # None: messages with a `traceparent` are not traced

    def exchange(self) -> Exchange:
        """Return the exports, imports and mappings of the account."""
        # Imported lazily, since it takes 8 ms and most servers share nothing.
        from pyjs.config.exchange.declared import Exchange

        return Exchange(self.exports, self.imports, self.mappings)

    def shares(self) -> bool:
        """Return whether the account has exports, imports or mappings."""
        return bool(self.exports or self.imports or self.mappings)


@dataclass(eq=False, repr=False, slots=True)
class BatchLimits:
    """The server's limits for atomic and fast batches."""

    max_inflight_per_stream: int = 50
    max_inflight_total: int = 1000
    max_fast_per_stream: int = 1000
    max_fast_total: int = 50_000
    max_msgs: int = 1000
    timeout_ns: int = 10 * NS_PER_S


@dataclass(eq=False, repr=False, slots=True)
class JetStreamLimits:
    """The server's limits for options of streams and consumers; 0 means no limit, unless a comment says otherwise."""

    max_ack_pending: int = 0
    max_request_batch: int = 0
    max_ha_assets: int = 0
    duplicate_window_ns: int = 0
    default_max_consumers: int = 1000  # limit for a stream without max_consumers; -1: no limit
    batch: BatchLimits = field(default_factory=BatchLimits)


@dataclass(eq=False, repr=False, slots=True)
class JetStreamOptions:
    """The options of JetStream."""

    enabled: bool = False
    # Without the final "/jetstream"; "": in the system's temporary directory, with a warning.
    store_dir: str = ""
    max_memory: int = -1  # -1: depends on the machine's memory; 0: no memory streams
    max_storage: int = -1  # -1: depends on the free disk space
    sync_interval_ns: int = 1 * NS_PER_S  # the default of nats-server is 2 minutes
    sync_always: bool = False  # PubAcks and answers to acks are sent after fdatasync
    scrub_rate: int = 8 << 20  # bytes per second that the scrub reads; 0: off
    domain: str = ""
    # prefix of server tags; in a cluster, the replicas of a stream go to servers with different tags
    unique_tag: str = ""
    key: str = ""  # wraps the data keys of file streams; "": no encryption
    prev_key: str = ""  # the previous key, to unwrap older data keys; "": none
    cipher: str = "chacha"  # of new streams: chacha or aes
    spread_workers: bool = False  # with `workers`, streams are in all workers
    strict: bool = True  # unknown fields in API requests are errors
    request_queue_limit: int = 10_000  # number of API requests that may wait
    info_queue_limit: int = 0  # the same for requests for information; 0: as request_queue_limit
    limits: JetStreamLimits = field(default_factory=JetStreamLimits)
    declared: DeclaredBlocks = field(default_factory=DeclaredBlocks)  # of the global account


@dataclass(eq=False, repr=False, slots=True)
class HttpLogin:
    """The login for requests to the monitoring port: a user with a password, or a token."""

    user: str = ""
    password: str = ""  # plain text, or a bcrypt hash
    token: str = ""  # plain text, or a bcrypt hash
    healthz_open: bool = True  # whether /healthz needs no login
    messages: bool = False  # whether the dashboard shows stored messages
    replay: bool = False  # whether the dashboard replays dead letters


@dataclass(eq=False, repr=False, slots=True)
class MonitoringOptions:
    """The options of the monitoring pages; at most one of the two ports is used."""

    host: str = ""  # "": the host for clients
    http_port: int = 0  # 0: no port; -1: any free port
    https_port: int = 0  # as http_port, but with TLS
    base_path: str = ""  # as written in the file; a leading slash may be missing
    login: HttpLogin | None = None  # None: the pages need no login


@dataclass(eq=False, repr=False, slots=True)
class TlsOptions:
    """The TLS options of one port. Without a certificate, TLS is off."""

    cert_file: str = ""  # certificate chain, PEM
    key_file: str = ""  # private key of `cert_file`, PEM
    certs: tuple[tuple[str, str], ...] = ()  # more pairs of certificate and key; the client's SNI selects one
    allow_plain: bool = False  # clients may connect without TLS
    ca_file: str = ""  # authorities for clients' certificates; "": those of the system
    verify: bool = False  # clients need a certificate
    verify_and_map: bool = False  # the certificate also selects the user
    timeout_ns: int = 2 * NS_PER_S  # time limit of the handshake
    handshake_first_ns: int = -1  # ns for which INFO waits for a handshake; 0: no limit; -1: no wait
    connection_rate_limit: int = 0  # handshakes per second; 0: no limit
    pinned_certs: tuple[str, ...] = ()  # SHA-256 of public keys, lower-case hex; (): any key
    min_version: str = "1.2"
    cipher_suites: tuple[str, ...] = ()  # of TLS 1.2, IANA names; (): see server/tls/context.py
    curve: str = ""  # "": OpenSSL's defaults
    place: str = ""  # file:line:column of the block, for errors found later

    @property
    def certificates(self) -> tuple[tuple[str, str], ...]:
        """The pairs (certificate file, key file) of the server, or () if TLS is off."""
        return (((self.cert_file, self.key_file),) if self.cert_file else ()) + self.certs


@dataclass(eq=False, repr=False, slots=True)
class WebSocketLogins:
    """The single user or token of WebSocket clients, used in place of that of the block `authorization`."""

    user: str = ""
    password: str = ""
    token: str = ""
    timeout_ns: int = 0  # time limit for CONNECT, ns; 0: that of the block authorization


@dataclass(eq=False, repr=False, slots=True)
class WebSocketOptions:
    """The options of the port for WebSocket clients."""

    host: str = "0.0.0.0"
    port: int = 0  # 0: none; -1: any free one
    advertise: str = ""  # shown in /varz
    no_tls: bool = False
    tls: TlsOptions = field(default_factory=TlsOptions)
    same_origin: bool = False  # a page may connect only to the host from which it was loaded
    allowed_origins: tuple[str, ...] = ()  # (): pages of any origin
    compression: bool = False
    handshake_timeout_ns: int = 0  # ns until the upgrade must be complete; 0: see server/websocket/port.py
    headers: dict[str, str] = field(default_factory=dict)  # headers of the response to an upgrade request
    no_auth_user: str = ""
    authorization: WebSocketLogins = field(default_factory=WebSocketLogins)
    jwt_cookie: str = ""  # names of cookies; their values replace missing fields of CONNECT
    user_cookie: str = ""
    pass_cookie: str = ""
    token_cookie: str = ""
    ping_interval_ns: int = 0  # ns; 0: as for other clients
    place: str = ""  # file:line:column of the block, for errors found later

    @property
    def has_logins(self) -> bool:
        """Whether the block sets a user, a token or a `no_auth_user` for WebSocket clients."""
        return bool(self.authorization.user or self.authorization.token or self.no_auth_user)


@dataclass(frozen=True, slots=True)
class RouteUrl:
    """The address of another server's route port, and the login to use there."""

    host: str
    port: int
    user: str = ""
    password: str = field(default="", repr=False)


@dataclass(eq=False, repr=False, slots=True)
class ClusterLogin:
    """The user and password that other servers must send."""

    user: str = ""  # "": any server may connect
    password: str = ""
    timeout_ns: int = 2 * NS_PER_S


@dataclass(eq=False, repr=False, slots=True)
class ClusterOptions:
    """The options of the cluster. Without a port, the server is not in a cluster."""

    name: str = ""
    host: str = "0.0.0.0"
    port: int = 0  # 0: no cluster; -1: any free one
    routes: tuple[RouteUrl, ...] = ()
    authorization: ClusterLogin = field(default_factory=ClusterLogin)
    tls: TlsOptions = field(default_factory=TlsOptions)  # of both sides of a route
    advertise: str = ""  # host:port at which other servers reach this one
    no_advertise: bool = False  # clients do not receive the addresses of the other servers
    connect_retries: int = 0  # retries for a server whose address a peer announced
    # Set for routes between the workers of one server: hosts are paths of sockets, and clients do not get them.
    local: bool = False

    @property
    def is_wildcard(self) -> bool:
        """Whether the port listens on all addresses."""
        return self.host in ("", "0.0.0.0", "::")

    @property
    def advertised(self) -> tuple[str, int] | None:
        """The host and port of `advertise`, or None if it is not set.

        If `advertise` has no port, return the port of the cluster, or 0 if the port of the cluster is -1.
        """
        return advertised_address(self.advertise, max(0, self.port)) if self.advertise else None


@dataclass(frozen=True, slots=True)
class Worker:
    """One of the processes of a server that has several workers."""

    number: int  # from 1; without `spread_workers`, only the first worker has streams
    count: int
    name: str  # name of the server, used if the configuration sets none
    port: int  # port for clients
    websocket_port: int = 0
    directory: str = ""  # directory of the sockets between workers


@dataclass(eq=False, repr=False, slots=True)
class Warnings:
    """Warnings about a valid configuration, each in the form `file:line:column: cause; fix`."""

    mistakes: tuple[str, ...] = ()  # probable mistakes; -t fails because of them
    repeated: tuple[str, ...] = ()  # keys that are set twice; -t accepts them, as in nats-server


LOG_FORMATS = ("text", "json")


@dataclass(eq=False, repr=False, slots=True)
class LogOptions:
    """The options of the log. Attributes are named after their keys."""

    debug: bool = False
    trace: bool = False
    trace_verbose: bool = False  # includes the system account; implies trace
    logtime: bool = True
    logtime_utc: bool = False
    log_format: str = "text"  # text or json
    log_file: str = ""  # "": standard error
    log_size_limit: int = 0  # bytes until the file is rotated; 0: never
    log_max_num: int = 0  # number of log files, including the current one; 0: no limit
    max_traced_msg_len: int = 0  # bytes of a message shown in traces; 0: no limit


@dataclass(eq=False, repr=False, slots=True)
class ConnectionLimits:
    """Limits and ping intervals of connections. Attributes are named after their keys."""

    max_payload: int = 1 << 20  # -1: no limit
    max_pending: int = 64 << 20
    max_control_line: int = 4096
    max_connections: int = 65536  # -1: every client is refused
    max_subscriptions: int = 0  # of one connection; 0: no limit
    max_sub_tokens: int = 0  # 0: no limit
    ping_interval_ns: int = 120 * NS_PER_S
    ping_max: int = 2
    write_deadline_ns: int = 10 * NS_PER_S
    no_header_support: bool = False
    max_closed_clients: int = 10_000  # remembered for /connz


@dataclass(eq=False, repr=False, slots=True)
class Options:
    """All options of one server."""

    host: str = "0.0.0.0"
    port: int = 4222  # -1: any free port
    workers: int = 1  # processes that share the port for clients
    client_advertise: str = ""  # "host" or "host:port"
    server_name: str = ""  # "": the server id
    server_tags: tuple[str, ...] = ()  # lower case, no duplicates
    server_metadata: dict[str, str] = field(default_factory=dict)

    log: LogOptions = field(default_factory=LogOptions)
    pid_file: str = ""
    ports_file_dir: str = ""

    monitoring: MonitoringOptions = field(default_factory=MonitoringOptions)
    websocket: WebSocketOptions = field(default_factory=WebSocketOptions)
    cluster: ClusterOptions = field(default_factory=ClusterOptions)
    proxy_protocol: bool = False  # clients may connect through a proxy that sends the client's address
    proxies: ProxiesOptions = field(default_factory=ProxiesOptions)

    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    lame_duck_duration_ns: int = 120 * NS_PER_S
    lame_duck_grace_period_ns: int = 10 * NS_PER_S
    no_fast_producer_stall: bool = False
    disable_sublist_cache: bool = False

    authorization: AuthorizationOptions = field(default_factory=AuthorizationOptions)
    no_auth_user: str = ""
    tls: TlsOptions = field(default_factory=TlsOptions)
    accounts: dict[str, AccountOptions] = field(default_factory=dict)  # accounts in the file, by name
    mappings: tuple[SubjectMapping, ...] = ()  # of the global account
    feature_flags: dict[str, bool] = field(default_factory=dict)  # flags that were set
    system_account: str = SYSTEM_ACCOUNT  # "": none (no_system_account)
    no_system_account: bool = False

    operators: tuple[OperatorOptions, ...] = ()
    trusted_keys: tuple[str, ...] = ()  # of operators, instead of `operators`
    resolver: ResolverOptions | None = None
    resolver_preload: dict[str, str] = field(default_factory=dict)  # tokens by account
    resolver_pinned_accounts: tuple[str, ...] = ()  # the only accounts whose users may connect; (): all
    default_sentinel: str = ""  # the token used for clients that send none

    jetstream: JetStreamOptions = field(default_factory=JetStreamOptions)

    # The sources of the options; not set by keys.
    config_path: str | None = None  # the file of -c
    config_digest: str = ""  # "sha256:..."; "" without a file
    flags: dict[str, str | int | bool] = field(default_factory=dict)  # the command line, see flags.py
    warnings: Warnings = field(default_factory=Warnings)
    worker: Worker | None = None  # None: this process is the whole server

    @property
    def runs_jetstream(self) -> bool:
        """Whether this process has streams. Of several workers, either all or only the first one have streams."""
        shares = self.worker is None or self.worker.number == 1 or self.jetstream.spread_workers
        return self.jetstream.enabled and shares

    @property
    def declares_assets(self) -> bool:
        """Whether the file declares streams, consumers or buckets."""
        accounts = (each.jetstream for each in self.accounts.values())
        return bool(self.jetstream.declared) or any(each and each.declared for each in accounts)

    def compact_declared(self) -> None:
        """Replace the declared blocks of all accounts with their plain values, without places.

        Call this after the declared assets have been read from the blocks.
        """
        self.jetstream.declared.compact()
        for account in self.accounts.values():
            if account.jetstream is not None:
                account.jetstream.declared.compact()

    def jetstream_of(self, account: str) -> AccountJetStreamOptions | None:
        """Return the JetStream options of an account, or None if the file does not enable JetStream in it.

        If the file has no accounts except the global and the system account, the global account has the defaults.
        """
        configured = self.accounts.get(account)
        if configured is not None and configured.jetstream is not None:
            return configured.jetstream
        if self.operator_keys or account != GLOBAL_ACCOUNT:  # in operator mode, tokens define accounts
            return None
        others = [each for each in self.accounts if each not in (GLOBAL_ACCOUNT, self.system_account)]
        return None if others else AccountJetStreamOptions()

    @property
    def operator_keys(self) -> tuple[str, ...]:
        """The public keys that may sign the tokens of accounts, or () outside operator mode."""
        return self.trusted_keys or tuple(key for each in self.operators for key in each.claims.trusted_keys)

    def users(self) -> Iterator[UserOptions]:
        """Yield each configured user of the server, of WebSocket clients and of the accounts."""
        single = self.authorization
        if single.user:
            yield UserOptions(single.user, single.password)
        own = self.websocket.authorization
        if own.user:
            yield UserOptions(own.user, own.password)
        yield from single.users
        for account in self.accounts.values():
            yield from account.users

    def exchanges(self) -> dict[str, Exchange]:
        """Return the exports, imports and mappings of each account, by the name of the account."""
        from pyjs.config.exchange.declared import Exchange  # imported lazily, as in AccountOptions

        declared = {name: account.exchange() for name, account in self.accounts.items()}
        return {GLOBAL_ACCOUNT: Exchange(mappings=self.mappings)} | declared

    def shares(self) -> bool:
        """Return whether any account has exports, imports or mappings."""
        return bool(self.mappings) or any(account.shares() for account in self.accounts.values())

    def has_plain_password(self) -> bool:
        """Return whether a password or token of a client is in plain text."""
        secrets = [
            self.authorization.token,
            self.websocket.authorization.token,
            *(user.password for user in self.users()),
        ]
        return any(secret and not is_bcrypt(secret) for secret in secrets)


def is_bcrypt(secret: str) -> bool:
    """Return whether `secret` begins as a bcrypt hash does, for example with `$2b$10$`."""
    return secret[:4] in ("$2a$", "$2b$", "$2x$", "$2y$") and secret[4:6].isdecimal() and secret[6:7] == "$"
