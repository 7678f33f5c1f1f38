"""The keys of the configuration as keyword arguments: their names and the Python types of their values.

Generated from the tables of pyjs.config, which check the values: `make declarations`. A value is written as in the
configuration file: a duration is text with a unit ("30s"), a size is a number of bytes, and in the block jetstream
also text ("10GB"); a path may be a pathlib.Path.
Long because it has every block of the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Literal, TypeAlias, TypedDict

Duration: TypeAlias = str
FilePath: TypeAlias = str | PathLike[str]


class HttpAuthorizationKeys(TypedDict, total=False):
    """The block `http_authorization`."""

    user: str
    """The user name, for HTTP Basic."""
    password: str
    """The password for HTTP Basic, or its bcrypt hash."""
    token: str
    """The bearer token, or its bcrypt hash."""
    healthz_open: bool
    """Answer /healthz without a login, for probes."""
    messages: bool
    """Let anyone with this login read stored messages in the dashboard."""
    replay: bool
    """Let anyone with this login replay dead letters in the dashboard."""


class SubjectsKeys(TypedDict, total=False):
    """The blocks `publish` and `subscribe`."""

    allow: str | Sequence[str]
    """The allowed subjects; without them, all."""
    deny: str | Sequence[str]
    """The forbidden subjects; they override `allow`."""


class ResponsesKeys(TypedDict, total=False):
    """The block `allow_responses`."""

    max: int
    """Maximum number of answers to one message; negative: no limit."""
    expires: Duration
    """Time during which the user may publish to a reply subject; negative: no limit."""


class PermissionsKeys(TypedDict, total=False):
    """The block `permissions`."""

    publish: str | Sequence[str] | SubjectsKeys
    """The subjects that the user may publish to."""
    subscribe: str | Sequence[str] | SubjectsKeys
    """The subjects that the user may subscribe to; an entry may also name a queue group."""
    allow_responses: bool | ResponsesKeys
    """Allow the user to answer received messages on their reply subjects."""


class UserKeys(TypedDict, total=False):
    """An entry of `users`."""

    user: str
    """The name of the user."""
    password: str
    """The password, or its bcrypt hash."""
    nkey: str
    """The public key of the user, in place of name and password."""
    permissions: PermissionsKeys
    """The permissions of the user; default: the default permissions of the block."""
    allowed_connection_types: str | Sequence[str]
    """The kinds of connections that the user may use: STANDARD, WEBSOCKET, IN_PROCESS, ..."""
    proxy_required: bool
    """The user must connect through one of the trusted `proxies`."""


class CalloutKeys(TypedDict, total=False):
    """The block `auth_callout`."""

    issuer: str
    """The public key of the account that signs the answers of the service."""
    account: str
    """The account of the service."""
    auth_users: Sequence[str]
    """Users that log in without the service."""
    xkey: str
    """The public xkey of the service; with it, requests are encrypted."""
    allowed_accounts: Sequence[str]
    """The accounts about whose users the service decides; empty: all."""


class AuthorizationKeys(TypedDict, total=False):
    """The block `authorization`."""

    user: str
    """The name of the single user."""
    password: str
    """The password of the single user, or its bcrypt hash."""
    token: str
    """The token that every client must send, or its bcrypt hash."""
    timeout: Duration | float
    """Maximum time for the authentication of a client; a number is in seconds."""
    users: Sequence[UserKeys]
    """The users of the global account."""
    default_permissions: PermissionsKeys
    """The permissions of users that have no `permissions`."""
    auth_callout: CalloutKeys
    """A service that decides which clients may connect."""
    proxy_required: bool
    """Clients of the single user or token must connect through one of the trusted `proxies`."""


class CertificateKeys(TypedDict, total=False):
    """An entry of `certs`."""

    cert_file: FilePath
    """The PEM file with the certificate, and after it the certificates that signed it."""
    key_file: FilePath
    """The PEM file with the private key of the certificate."""


class TlsKeys(TypedDict, total=False):
    """The block `tls`."""

    cert_file: FilePath
    """The PEM file with the certificate, and after it the certificates that signed it."""
    key_file: FilePath
    """The PEM file with the private key of the certificate."""
    certs: CertificateKeys | Sequence[CertificateKeys]
    """More certificates with their keys; the server name in the client's handshake selects one."""
    ca_file: FilePath
    """The file of authorities that may sign clients' certificates; empty: the machine's authorities."""
    verify: bool
    """Require a certificate from clients."""
    verify_and_map: bool
    """Require a certificate from clients; it also selects the user."""
    timeout: Duration | float
    """Maximum time for the handshake; a number is in seconds."""
    handshake_first: bool | Duration
    """Begin TLS before INFO: `true`, `false`, or how long INFO waits for a handshake; `auto`: 50ms."""
    connection_rate_limit: int
    """Maximum number of handshakes per second; 0: no limit."""
    pinned_certs: str | Sequence[str]
    """SHA-256 digests, in hex, of the public keys that clients may have; empty: any key."""
    min_version: Literal["1.2", "1.3"]
    """The oldest allowed version of TLS."""
    cipher_suites: str | Sequence[str]
    """The allowed cipher suites of TLS 1.2, by their IANA names; empty: OpenSSL's defaults."""
    curve_preferences: str | Sequence[str]
    """The only curve for key exchange; empty: OpenSSL's defaults."""


class WebSocketAuthorizationKeys(TypedDict, total=False):
    """The block `authorization`."""

    user: str
    """The name of the single user."""
    password: str
    """The password of the single user, or its bcrypt hash."""
    token: str
    """The token that every client must send, or its bcrypt hash."""
    timeout: Duration | float
    """Maximum time for the authentication of a client; a number is in seconds."""


class WebSocketKeys(TypedDict, total=False):
    """The block `websocket`."""

    listen: str | int
    """The address and port for WebSocket clients, or a port alone."""
    host: str
    """The address for WebSocket clients."""
    port: int
    """The port for WebSocket clients; -1: any free port, 0: none."""
    advertise: str
    """The address that /varz shows."""
    no_tls: bool
    """Allow a port without TLS."""
    tls: TlsKeys
    """Certificates and rules for encrypted connections to this port."""
    same_origin: bool
    """A page may connect only to the host from which it was loaded."""
    allowed_origins: str | Sequence[str]
    """The origins whose pages may connect, such as https://example.com; empty: all."""
    compression: bool
    """Compress messages for clients that ask for it."""
    handshake_timeout: Duration | int
    """Maximum time for TLS handshake and upgrade together; a number is in seconds; 0: 5s."""
    headers: Mapping[str, str]
    """Additional headers in the answer to an upgrade."""
    authorization: WebSocketAuthorizationKeys
    """The login for clients of this port, in place of the top-level `authorization` block."""
    no_auth_user: str
    """The user of clients of this port that send no credentials."""
    jwt_cookie: str
    """The name of the cookie that supplies the JWT if a client sends none."""
    user_cookie: str
    """The name of the cookie that supplies the user name if a client sends none."""
    pass_cookie: str
    """The name of the cookie that supplies the password if a client sends none."""
    token_cookie: str
    """The name of the cookie that supplies the token if a client sends none."""
    ping_interval: Duration
    """The time between two pings; 0: as for other clients."""


class ClusterAuthorizationKeys(TypedDict, total=False):
    """The block `authorization`."""

    user: str
    """The user name that other servers must send."""
    password: str
    """The password that other servers must send."""
    timeout: Duration | float
    """Maximum time for the login of another server; a number is in seconds."""


class ClusterKeys(TypedDict, total=False):
    """The block `cluster`."""

    name: str
    """The name of the cluster, the same on each of its servers."""
    listen: str | int
    """The address and port for other servers, or a port alone."""
    host: str
    """The address for other servers."""
    port: int
    """The port for other servers; -1: any free port."""
    routes: Sequence[str] | str
    """Addresses of other servers; one running server is enough to find all others."""
    authorization: ClusterAuthorizationKeys
    """The login that other servers need."""
    tls: TlsKeys
    """This server's certificate for routes, and the authority behind other servers' certificates."""
    advertise: str
    """host:port at which other servers reach this one."""
    no_advertise: bool
    """Do not send the addresses of the other servers to clients."""
    connect_retries: int
    """Minimum number of attempts to reach a server not in `routes`; they last at least ten minutes."""


class ProxyKeys(TypedDict, total=False):
    """The block `trusted`."""

    key: str
    """The public key of a proxy."""


class ProxiesKeys(TypedDict, total=False):
    """The block `proxies`."""

    trusted: Sequence[ProxyKeys]
    """The proxies through which clients may connect."""


class AccountJetStreamKeys(TypedDict, total=False):
    """The block `jetstream`."""

    max_mem: int
    """Maximum size of the account's memory streams in bytes; -1: no limit."""
    max_file: int
    """Maximum size of the account's file streams in bytes; -1: no limit."""
    max_streams: int
    """Maximum number of streams; -1: no limit."""
    max_consumers: int
    """Maximum number of consumers of one stream; -1: no limit."""
    max_bytes_required: bool
    """Refuse streams without `max_bytes`."""
    mem_max_stream_bytes: int
    """Maximum `max_bytes` of one memory stream; -1: no limit."""
    disk_max_stream_bytes: int
    """Maximum `max_bytes` of one file stream; -1: no limit."""
    max_ack_pending: int
    """Maximum `max_ack_pending` of a consumer; -1: no limit."""
    streams: int | Mapping[str, Mapping[str, object]]
    """Streams of the account that must exist, by name; a number is `max_streams`."""
    consumers: int | Mapping[str, Mapping[str, object]]
    """Consumers that must exist, by stream and name; a number is `max_consumers`."""
    kv: Mapping[str, Mapping[str, object]]
    """Key-value buckets that must exist, by name."""
    object_store: Mapping[str, Mapping[str, object]]
    """Object stores that must exist, by name."""


class AccountLimitsKeys(TypedDict, total=False):
    """The block `limits`."""

    max_connections: int
    """Maximum number of connections of the account; -1: no limit."""
    max_subscriptions: int
    """Maximum number of subscriptions of one connection; -1: no limit."""
    max_payload: int
    """Maximum size of a message in bytes; -1: no limit."""


class LatencyKeys(TypedDict, total=False):
    """The block `latency`."""

    sampling: int | str
    """Percentage of requests to measure, or `headers` for requests whose tracing header asks for it."""
    subject: str
    """The subject of the samples, in the exporting account."""


class ExportKeys(TypedDict, total=False):
    """An entry of `exports`."""

    stream: str
    """The subjects that other accounts may receive."""
    service: str
    """The subjects that other accounts may send requests to."""
    accounts: str | Sequence[str]
    """The accounts that may import the export; default: all."""
    account_token_position: int
    """The position in the subject of the `*` that stands for the name of the importing account."""
    response_type: str
    """`singleton`: one response to each request; `stream`, `chunked`: several."""
    response_threshold: Duration
    """Maximum time for a response."""
    latency: str | LatencyKeys
    """Measure the duration of requests: the subject of the samples, or a map."""
    allow_trace: bool
    """Traces of requests include events in this account."""


class RemoteKeys(TypedDict, total=False):
    """The blocks `stream` and `service` of an import."""

    account: str
    """The exporting account."""
    subject: str
    """The subject in the exporting account."""


class ImportKeys(TypedDict, total=False):
    """An entry of `imports`."""

    stream: RemoteKeys
    """Account and subject of a stream export."""
    service: RemoteKeys
    """Account and subject of a service export."""
    prefix: str
    """The prefix of the stream's subjects in this account."""
    to: str
    """The subject in this account, with `$1` for the first `*` of the exported subject."""
    share: bool
    """Send the client's address, name and user to the service."""
    allow_trace: bool
    """Traces of the stream's messages include events in this account."""


class MapDestinationKeys(TypedDict, total=False):
    """A destination of a mapping."""

    destination: str
    """The new subject of a message."""
    weight: int | str
    """Percentage of the messages that get this destination."""


class MsgTraceKeys(TypedDict, total=False):
    """The block `msg_trace`."""

    dest: str
    """The subject to which the traces go."""
    sampling: int | str
    """Percentage of the messages with a sampled `traceparent` that are traced."""


class AccountKeys(TypedDict, total=False):
    """An entry of `accounts`."""

    users: Sequence[UserKeys]
    """The users of the account."""
    jetstream: bool | AccountJetStreamKeys
    """JetStream in this account: on, off, or its limits."""
    default_permissions: PermissionsKeys
    """The permissions of users that have no `permissions`."""
    limits: AccountLimitsKeys
    """Limits of the account's connections."""
    exports: Sequence[ExportKeys]
    """Streams and services that other accounts may import."""
    imports: Sequence[ImportKeys]
    """Streams and services of other accounts."""
    mappings: Mapping[str, str | MapDestinationKeys | Sequence[MapDestinationKeys]]
    """New subjects for messages that clients publish: one for each subject, or several with weights."""
    msg_trace: str | MsgTraceKeys
    """Trace messages with a W3C `traceparent` header: the subject of the traces, or a map."""


class ResolverKeys(TypedDict, total=False):
    """The block `resolver`."""

    type: str
    """`memory`, `full` or `cache`."""
    dir: str
    """The directory with a file for each account."""
    allow_delete: bool
    """Allow the removal of accounts by requests."""
    hard_delete: bool
    """Delete the files of removed accounts; otherwise they are renamed."""
    limit: int
    """Maximum number of files; 0: no limit, or 1000 for `cache`."""
    ttl: Duration
    """`cache`: time after which an unused file is removed."""
    interval: Duration
    """`full`: time between two checks of the directory for changed files."""
    timeout: Duration
    """Maximum time to fetch an account."""


class JetStreamBatchKeys(TypedDict, total=False):
    """The block `batch`."""

    max_inflight_per_stream: int
    """Limit on open atomic batches of a stream. If set, it replaces the limit of 1000 fast batches."""
    max_inflight_total: int
    """Limit on open atomic batches of the server. If set, it replaces the limit of 50000 fast ones."""
    max_msgs: int
    """Maximum number of messages in an atomic batch."""
    timeout: Duration
    """Maximum time between two messages of a batch."""


class JetStreamLimitsKeys(TypedDict, total=False):
    """The block `limits`."""

    max_ack_pending: int
    """Maximum `max_ack_pending` of a consumer; 0 and -1: no limit."""
    max_request_batch: int
    """Maximum `batch` of a pull request; 0 and -1: no limit."""
    max_ha_assets: int
    """Maximum number of replicated streams per server, the same on all servers; 0 and -1: no limit."""
    duplicate_window: Duration
    """Maximum `duplicate_window` of a stream; 0: no limit."""
    default_max_consumers: int
    """The default `max_consumers` of a stream; -1: no limit."""
    batch: JetStreamBatchKeys
    """Limits for atomic and fast batches."""


class JetStreamKeys(TypedDict, total=False):
    """The block `jetstream`."""

    enabled: bool
    """Turn JetStream on or off; without this key, the block turns it on."""
    store_dir: FilePath
    """The directory that contains the store `jetstream`; empty: a temporary one, with a warning."""
    max_mem: int | str
    """Maximum size of all memory streams in bytes; -1: three quarters of the memory, 0: none."""
    max_file: int | str
    """Maximum size of all file streams in bytes; -1: three quarters of the free disk space."""
    sync_interval: Duration
    """The time between two syncs of files; `always`: sync before each acknowledgement."""
    sync_always: bool
    """Sync before each acknowledgement."""
    scrub_rate: int
    """Bytes per second that the background check of stored files reads; 0: no check."""
    key: str
    """The secret for the encryption of stored files; empty: no encryption."""
    prev_key: str
    """The previous secret, to open files encrypted with it."""
    cipher: str
    """The cipher of new streams: `chacha` or `aes`."""
    domain: str
    """The JetStream domain of this server."""
    unique_tag: str
    """A tag prefix; the replicas of a stream are on servers with different tags of this prefix."""
    spread_workers: bool
    """With `workers`: distribute new streams among all workers; `false`: the first has all streams."""
    strict: bool
    """Refuse API requests with unknown fields."""
    request_queue_limit: int
    """Number of API requests that may wait."""
    info_queue_limit: int
    """The same for requests for information; 0: as `request_queue_limit`."""
    limits: JetStreamLimitsKeys
    """Limits for options of streams and consumers."""
    streams: Mapping[str, Mapping[str, object]]
    """Streams of the global account that must exist, by name."""
    consumers: Mapping[str, Mapping[str, object]]
    """Consumers that must exist, by stream and name."""
    kv: Mapping[str, Mapping[str, object]]
    """Key-value buckets that must exist, by name."""
    object_store: Mapping[str, Mapping[str, object]]
    """Object stores that must exist, by name."""


class ConfigKeys(TypedDict, total=False):
    """The top level."""

    listen: str | int
    """The address and port for clients, or a port alone."""
    host: str
    """The address for clients."""
    port: int
    """The port for clients; -1: any free port."""
    workers: int
    """Number of processes that share the port for clients; each can use one core."""
    client_advertise: str
    """The address that INFO advertises to clients, `host` or `host:port`."""
    server_name: str
    """The name of the server, without spaces; empty: its id."""
    server_tags: str | Sequence[str]
    """Tags that monitoring shows."""
    server_metadata: Mapping[str, str]
    """Names and values that monitoring shows."""
    debug: bool
    """Log events of connections."""
    trace: bool
    """Log every protocol message."""
    trace_verbose: bool
    """Log the messages of the system account too; turns `trace` on."""
    logtime: bool
    """Begin log lines with the time."""
    logtime_utc: bool
    """Log times in UTC."""
    log_format: str
    """`text`: log lines as in nats-server; `json`: one JSON object per line."""
    log_file: FilePath
    """The file for log lines; empty: standard error."""
    log_size_limit: int
    """Size in bytes at which the log file is rotated; 0: never."""
    log_max_num: int
    """Number of log files that rotation keeps, including the current one; 0: all."""
    max_traced_msg_len: int
    """Number of bytes of a message that `trace` shows; 0: all."""
    pid_file: FilePath
    """The file for the process id."""
    ports_file_dir: FilePath
    """The directory for the file that lists the open ports."""
    http: str | int
    """The address and port of the monitoring pages, or a port alone."""
    http_port: int
    """The port of the monitoring pages; 0: none, -1: any free port."""
    https: str | int
    """The address and port of the monitoring pages over TLS, or a port alone; needs `tls`."""
    https_port: int
    """The port of the monitoring pages over TLS; 0: none, -1: any free port."""
    http_base_path: str
    """The prefix of the paths of the monitoring pages."""
    http_authorization: HttpAuthorizationKeys
    """The login for the monitoring pages; without this block, everyone can read them."""
    max_payload: int
    """Maximum size of a message (headers and payload) in bytes; -1: no limit."""
    max_pending: int
    """Maximum bytes of output that wait for one client; a client with more is disconnected."""
    max_control_line: int
    """Maximum length of a protocol line in bytes."""
    max_connections: int
    """Maximum number of client connections; 0 or less: every client is refused."""
    max_subscriptions: int
    """Maximum number of subscriptions of one connection; 0 and -1: no limit."""
    max_sub_tokens: int
    """Maximum number of tokens in the subject of a subscription; 0: no limit."""
    ping_interval: Duration
    """The time between two pings of a connection."""
    ping_max: int
    """Number of unanswered pings after which a connection is closed."""
    write_deadline: Duration
    """Maximum time for which output waits for a client; then the client is disconnected."""
    lame_duck_duration: Duration
    """The time over which lame duck mode closes the connections; at least 30s."""
    lame_duck_grace_period: Duration
    """The time before lame duck mode closes the first connection."""
    no_header_support: bool
    """Turn message headers off."""
    no_fast_producer_stall: bool
    """Do not slow down a publisher whose subscribers fall behind."""
    max_closed_clients: int
    """Maximum number of closed connections that /connz shows."""
    disable_sublist_cache: bool
    """Do not keep the list of a subject's receivers for longer than a turn."""
    authorization: AuthorizationKeys
    """Users of the global account, or a single user or token."""
    no_auth_user: str
    """The user of clients without credentials."""
    tls: TlsKeys
    """Certificates and rules for encrypted client connections."""
    websocket: WebSocketKeys
    """The port for WebSocket clients."""
    cluster: ClusterKeys
    """The port for other servers of the cluster, and their addresses."""
    proxy_protocol: bool
    """Accept clients through a proxy that sends their address in a PROXY header (v1 or v2)."""
    proxies: ProxiesKeys
    """Proxies through which clients may connect, by their public keys."""
    allow_non_tls: bool
    """Also accept clients without TLS."""
    accounts: Mapping[str, AccountKeys] | Sequence[str]
    """Accounts by name, or a list of names."""
    mappings: Mapping[str, str | MapDestinationKeys | Sequence[MapDestinationKeys]]
    """New subjects for messages that clients of the global account publish."""
    system_account: str
    """The account for events of the server and requests to it."""
    no_system_account: bool
    """Turn the system account off."""
    operator: str | Sequence[str]
    """JWTs of operators, or paths of files with them. JWTs then also define accounts and users."""
    trusted_keys: str | Sequence[str]
    """Public keys of operators, in place of their tokens."""
    resolver: str | ResolverKeys
    """The source of the tokens of accounts: `MEMORY`, `URL("...")`, or a directory."""
    resolver_preload: Mapping[str, str]
    """Tokens of accounts, by the public key of each account."""
    resolver_pinned_accounts: str | Sequence[str]
    """The only accounts whose users may connect."""
    default_sentinel: str
    """The bearer token that the server uses for clients that send no token."""
    feature_flags: Mapping[str, bool]
    """Switches for features; the only one, `js_ack_fc_v2`, adds domain and account to ack subjects."""
    jetstream: bool | JetStreamKeys
    """JetStream: on, off, or its options."""
    store_dir: FilePath
    """The same as `store_dir` of the `jetstream` block."""
