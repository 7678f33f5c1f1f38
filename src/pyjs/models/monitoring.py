"""The monitoring pages of this server and of nats-server as models: `Jsz.parse(body)` and so on.

Texts such as "1m2s" are not converted. Fields that only one of the two servers has are optional.

Source: nats.docs "Monitoring"; every field of each page of both servers is in these models
(tests/conformance/test_models.py).
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from pyjs.models.answers import ApiStats, Cluster, ConsumerInfo, SourceInfo, StreamState
from pyjs.models.base import Answer, Duration, Time
from pyjs.models.config import StreamConfig


class Page(Answer):
    """The base of all pages except /healthz."""

    server_id: str
    now: Time


# -- /jsz --------------------------------------------------------------------------------------------------------


class JszConfig(Answer):
    """The limits and the options of JetStream in effect; sizes are in bytes."""

    max_memory: int
    max_storage: int
    store_dir: str = ""
    sync_interval: Duration = 0
    sync_always: bool = False
    domain: str = ""
    unique_tag: str = ""
    strict: bool = False


class JszLimits(Answer):
    """The limits for options of streams and consumers; 0 means no limit."""

    max_request_batch: int = 0
    max_ack_pending: int = 0
    max_ha_assets: int = 0
    max_duplicate_window: Duration = 0
    default_max_consumers: int = 0


class JetStreamStats(Answer):
    """The usage of JetStream in bytes, and its counters."""

    memory: int
    storage: int
    reserved_memory: int
    reserved_storage: int
    accounts: int
    ha_assets: int
    api: ApiStats


class StreamDetail(Answer):
    """A stream, as /jsz shows it; the configuration and the consumers are set only on request."""

    name: str
    created: Time
    cluster: Cluster | None = None
    config: StreamConfig | None = None
    state: StreamState
    consumer_detail: list[ConsumerInfo] = Field(default_factory=list)
    direct_consumer_detail: list[ConsumerInfo] = Field(default_factory=list)
    mirror: SourceInfo | None = None
    sources: list[SourceInfo] = Field(default_factory=list)
    stream_raft_group: str = ""
    consumer_raft_groups: list[dict[str, Any]] = Field(default_factory=list)


class AccountDetail(JetStreamStats):
    """An account, as /jsz shows it."""

    name: str
    id: str
    stream_detail: list[StreamDetail] = Field(default_factory=list)


class Scrub(Answer):
    """The background check of stored files, which only this server has."""

    rate: int = Field(description="Bytes a second.")
    passes: int
    last_finished: Time | None = None
    running: bool
    checked_bytes: int
    damaged: int


class Jsz(Page, JetStreamStats):
    """The page /jsz."""

    disabled: bool = False
    config: JszConfig
    limits: JszLimits | None = None
    streams: int
    streams_leader: int = 0
    consumers: int
    consumers_leader: int = 0
    messages: int
    bytes: int
    meta_cluster: dict[str, Any] | None = None
    account_details: list[AccountDetail] = Field(default_factory=list)
    total: int
    lost_msgs: int = Field(default=0, description="Messages lost to damage; of this server.")
    repaired_msgs: int = Field(
        default=0, description="Damaged messages of this server that other replicas had, since the start."
    )
    lost_bytes: int = 0
    damaged: list[str] = Field(default_factory=list, description="Files that were set aside; of this server.")
    log_damages: int = Field(
        default=0, description="Damaged places in the log of the replicated groups; of this server."
    )
    scrub: Scrub | None = None


# -- /varz -------------------------------------------------------------------------------------------------------


class VarzJetStream(Answer):
    """The field `jetstream` of /varz; nothing is set while JetStream is disabled."""

    config: JszConfig | None = None
    stats: JetStreamStats | None = None
    limits: JszLimits | None = None
    meta: dict[str, Any] | None = None


class ConnectionStats(Answer):
    """The numbers of connections, by kind."""

    clients: int
    routes: int
    gateways: int
    leafs: int


class DiskWaits(Answer):
    """The waiting times for the disk."""

    waiters: int
    waits: int
    wait_time: int
    max_wait_time: int


class Worker(Answer):
    """One process of a server with workers; the last five fields are set only while the worker is ready."""

    number: int
    state: str = Field(description="starting, ready, resting or ended.")
    pid: int
    restarts: int
    server_id: str = ""
    server_name: str = ""
    connections: int = 0
    cpu: float = Field(default=0.0, description="Percent of one core.")
    mem: int = Field(default=0, description="Resident memory in bytes.")


class Varz(Page):
    """The page /varz."""

    server_name: str
    version: str
    proto: int
    git_commit: str = ""
    go: str
    host: str
    port: int
    auth_required: bool = False
    tls_required: bool = False
    tls_verify: bool = False
    tls_ocsp_peer_verify: bool = False
    ip: str = ""
    connect_urls: list[str] = Field(default_factory=list)
    ws_connect_urls: list[str] = Field(default_factory=list)
    max_connections: int
    max_subscriptions: int = 0
    ping_interval: Duration
    ping_max: int
    http_host: str
    http_port: int
    http_base_path: str
    https_port: int
    auth_timeout: float
    max_control_line: int
    max_payload: int
    max_pending: int
    cluster: dict[str, Any]
    gateway: dict[str, Any]
    leaf: dict[str, Any]
    mqtt: dict[str, Any]
    websocket: dict[str, Any]
    jetstream: VarzJetStream
    tls_timeout: float
    tls_cert_not_after: Time | None = None
    write_deadline: Duration
    write_timeout: str = ""
    start: Time
    uptime: str
    mem: int
    cores: int
    gomaxprocs: int
    gomemlimit: int = 0
    cpu: float
    connections: int
    total_connections: int
    routes: int
    remotes: int
    leafnodes: int
    in_msgs: int
    in_bytes: int
    in_client_msgs: int = 0
    in_client_bytes: int = 0
    out_msgs: int
    out_bytes: int
    out_client_msgs: int = 0
    out_client_bytes: int = 0
    slow_consumers: int
    stale_connections: int = 0
    stalled_clients: int = 0
    subscriptions: int
    http_req_stats: dict[str, int] = Field(default_factory=dict)
    config_load_time: Time
    config_digest: str = ""
    tags: list[str] = Field(default_factory=list)
    metadata: dict[str, str] = Field(default_factory=dict)
    feature_flags: dict[str, bool] = Field(default_factory=dict)
    trusted_operators_jwt: list[str] = Field(default_factory=list)
    trusted_operators_claim: list[dict[str, Any]] = Field(default_factory=list)
    system_account: str = ""
    pinned_account_fails: int = 0
    ocsp_peer_cache: dict[str, Any] | None = None
    slow_consumer_stats: ConnectionStats
    stale_connection_stats: ConnectionStats | None = None
    disk_io_wait_stats: DiskWaits | None = None
    proxies: dict[str, Any] | None = None
    config: dict[str, Any] | None = Field(
        default=None, description="Every key, with `config=1`; of this server."
    )
    pyjs_faults: dict[str, int] = Field(
        default_factory=dict, description="Unexpected errors; of this server."
    )
    pyjs_workers: list[Worker] = Field(
        default_factory=list, description="Its processes, with `workers`; of this server."
    )


# -- /connz and /subsz -------------------------------------------------------------------------------------------


class SubscriptionDetail(Answer):
    """A subscription, as /subsz and /connz show it."""

    account: str = ""
    account_tag: str = ""
    subject: str
    qgroup: str = ""
    sid: str
    msgs: int
    max: int = 0
    cid: int


class TlsPeerCert(Answer):
    """A certificate presented by a client."""

    subject: str = ""
    spki_sha256: str = ""
    cert_sha256: str = ""


class Connection(Answer):
    """A connection, open or closed."""

    cid: int
    kind: str = ""
    type: str = ""
    ip: str
    port: int
    start: Time
    last_activity: Time
    stop: Time | None = None
    reason: str = ""
    rtt: str = ""
    uptime: str
    idle: str
    pending_bytes: int
    in_msgs: int
    out_msgs: int
    in_bytes: int
    out_bytes: int
    stalls: int = 0
    subscriptions: int
    name: str = ""
    lang: str = ""
    version: str = ""
    tls_version: str = ""
    tls_cipher_suite: str = ""
    tls_peer_certs: list[TlsPeerCert] = Field(default_factory=list)
    tls_first: bool = False
    authorized_user: str = ""
    account: str = ""
    subscriptions_list: list[str] = Field(default_factory=list)
    subscriptions_list_detail: list[SubscriptionDetail] = Field(default_factory=list)
    jwt: str = ""
    issuer_key: str = ""
    name_tag: str = ""
    tags: list[str] = Field(default_factory=list)
    mqtt_client: str = ""
    proxy: dict[str, Any] | None = None


class Connz(Page):
    """The page /connz."""

    num_connections: int
    total: int
    offset: int
    limit: int
    connections: list[Connection] | None = Field(description="None: there is no such account.")


class SublistStats(Answer):
    """The counters of the subscription lists of one account, or of all accounts."""

    num_subscriptions: int
    num_cache: int
    num_inserts: int
    num_removes: int
    num_matches: int
    cache_hit_rate: float
    max_fanout: int
    avg_fanout: float


class Subsz(Page, SublistStats):
    """The page /subsz."""

    total: int
    offset: int
    limit: int
    subscriptions_list: list[SubscriptionDetail] = Field(default_factory=list)


# -- /accountz, /accstatz and /healthz ---------------------------------------------------------------------------


class AccountzDetail(Answer):
    """An account, as /accountz?acc=NAME shows it."""

    account_name: str
    update_time: Time
    is_system: bool = False
    expired: bool
    complete: bool
    jetstream_enabled: bool
    leafnode_connections: int
    client_connections: int
    subscriptions: int
    name_tag: str = ""
    issuer_key: str = ""
    jwt: str = ""
    exports: list[dict[str, Any]] = Field(default_factory=list)
    imports: list[dict[str, Any]] = Field(default_factory=list)
    mappings: dict[str, Any] = Field(default_factory=dict)
    sublist_stats: SublistStats | None = None


class Accountz(Page):
    """The page /accountz."""

    system_account: str = ""
    accounts: list[str] = Field(default_factory=list)
    account_detail: AccountzDetail | None = None


class Flow(Answer):
    """Counters of messages and bytes in one direction."""

    msgs: int
    bytes: int
    gateways: dict[str, int] = Field(default_factory=dict)
    routes: dict[str, int] = Field(default_factory=dict)
    leafs: dict[str, int] = Field(default_factory=dict)


class AccountStats(Answer):
    """An account, as /accstatz shows it."""

    acc: str
    name: str = ""
    conns: int
    leafnodes: int
    total_conns: int
    num_subscriptions: int
    sent: Flow
    received: Flow
    slow_consumers: int


class Accstatz(Page):
    """The page /accstatz."""

    account_statz: list[AccountStats]


class HealthError(Answer):
    """A failed check of /healthz."""

    type: str
    account: str = ""
    stream: str = ""
    consumer: str = ""
    error: str


class Healthz(Answer):
    """The page /healthz."""

    status: str
    status_code: int = 200
    error: str = ""
    errors: list[HealthError] = Field(default_factory=list)


# -- /declaredz --------------------------------------------------------------------------------------------------


class DeclaredChange(Answer):
    """An option whose declared and stored values differ; a long value is cut."""

    field: str
    old: Any = None
    new: Any = None


class DeclaredAsset(Answer):
    """A declared stream, consumer or bucket, and the action that a reload would take."""

    account: str
    kind: str  # stream, consumer, kv or object_store
    name: str
    action: str  # create, update, same or refuse
    changes: list[DeclaredChange]
    reason: str = ""
    text: str


class NotInFile(Answer):
    """The streams and consumers of one account that the file does not name."""

    account: str
    total: int
    names: list[str]  # the first ones


class Declaredz(Page):
    """The page /declaredz of this server: declared assets, and whether clients have changed them."""

    server_name: str
    compared: Time | None = None  # left out if the file declares nothing
    changes: bool
    counts: dict[str, int]  # assets by action
    errors: dict[str, str]  # by account: why its streams cannot be listed
    total: int
    offset: int
    limit: int
    assets: list[DeclaredAsset]
    not_in_file: list[NotInFile]
