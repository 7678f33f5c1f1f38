"""The option table of the top level, and a list of all tables by the path of their block.

This module knows nothing of the use of the options. Defaults are in options.py, beside their types. Rows have the
order of the attributes of Options. An option whose row is not reloadable keeps its value when a running server reads
its file again.

Source: nats.docs "Configuration"; nats-server 2.15.1, compared in tests/unit/config/test_peer.py.
"""

from __future__ import annotations

from pyjs.base.units import INT64_MAX
from pyjs.config import unsupported
from pyjs.config.access.accounts import (
    ACCOUNT,
    ACCOUNT_JETSTREAM,
    ACCOUNT_LIMITS,
    MSG_TRACE,
    read_accounts,
)
from pyjs.config.access.authorization import AUTHORIZATION, CALLOUT, read_authorization
from pyjs.config.access.operators import OPERATOR_KEYS
from pyjs.config.access.permissions import PERMISSIONS, RESPONSES
from pyjs.config.access.proxies import PROXIES, PROXIES_BLOCK, PROXY
from pyjs.config.access.resolver import RESOLVER
from pyjs.config.access.users import USER
from pyjs.config.errors import Refused, suggestion
from pyjs.config.exchange.read import DESTINATION, EXPORT, IMPORT, LATENCY, MAPPINGS, REMOTE
from pyjs.config.jetstream import (
    JETSTREAM,
    JETSTREAM_BATCH,
    JETSTREAM_LIMITS,
    check_store_dir,
    read_jetstream,
)
from pyjs.config.kinds import (
    BOOL,
    DURATION,
    DURATION_OR_SECONDS,
    INT,
    INT32_MAX,
    LISTEN,
    PATH,
    SIZE,
    STRING,
    STRING_MAP,
    STRINGS,
    AtLeast,
    Between,
    count_31,
    port_in_range,
    positive_duration,
    read_listen_here,
    read_lower,
    read_map,
)
from pyjs.config.options import LOG_FORMATS, NS_PER_S, Options
from pyjs.config.ports.advertised import check_advertised
from pyjs.config.ports.cluster import CLUSTER, CLUSTER_LOGIN, read_cluster
from pyjs.config.ports.http_login import HTTP_LOGIN, HTTP_LOGIN_BLOCK
from pyjs.config.ports.websocket import LOGINS, WEBSOCKET, read_websocket
from pyjs.config.ports.workers import RANGE_FIX, WORKERS_MAX
from pyjs.config.table import Key, Kind, Reading, Table
from pyjs.config.tls import TLS, TLS_BLOCK
from pyjs.config.values import Value

FEATURE_FLAGS = ["js_ack_fc_v2"]

_size_63 = Between(0, INT64_MAX, "use a positive size, 64MB for instance")
_or_none = Between(-1, INT32_MAX, "use a number from 1, or -1 for no limit")


def _check_server_name(reading: Reading, key: Key, value: Value, data: object) -> None:
    if " " in str(data):
        raise Refused(value.place, "server name cannot contain spaces", "use - or _ in place of the space")


def _read_listen(reading: Reading, key: Key, value: Value, target: object) -> object:
    host, port = read_listen_here(reading, key, value, target)
    return host, port or Options().port


def _read_tags(reading: Reading, key: Key, value: Value, target: object) -> object:
    tags = STRINGS.read(reading, key, value, target)
    assert isinstance(tags, tuple)
    return tuple(dict.fromkeys(tag.strip().lower() for tag in tags))


def _read_log_format(reading: Reading, key: Key, value: Value, target: object) -> str:
    text = read_lower(reading, key, value, target)
    if text not in LOG_FORMATS:
        fix = suggestion(text, LOG_FORMATS, "use text or json")
        raise Refused(value.place, f'"log_format" is "{value.data}"', fix)
    return text


def _read_pair(reading: Reading, key: Key, value: Value, target: object) -> object:
    """Read a bool and return it twice, since the key sets two attributes."""
    on = BOOL.read(reading, key, value, target)
    return on, on


def _read_max_connections(reading: Reading, key: Key, value: Value, target: object) -> object:
    """Read a count; 0 and negative numbers, which refuse every client, are stored as -1."""
    count = INT.read(reading, key, value, target)
    assert isinstance(count, int)
    return count if count > 0 else -1


def _read_max_subscriptions(reading: Reading, key: Key, value: Value, target: object) -> object:
    count = INT.read(reading, key, value, target)
    return 0 if count == -1 else count


def _read_feature_flags(reading: Reading, key: Key, value: Value, target: object) -> dict[str, bool]:
    """Read a map of feature flags; refuse a flag that has no effect in this server."""
    flags: dict[str, bool] = {}
    for name, entry in read_map(key, value, "js_ack_fc_v2: true").items():
        if name not in FEATURE_FLAGS:
            cause = f'"{name}" is no feature flag that changes something here'
            raise Refused(
                entry.value.place, cause, suggestion(name, FEATURE_FLAGS, f"use {FEATURE_FLAGS[0]}")
            )
        flags[name] = bool(BOOL.read(reading, key, entry.value, target))
    return flags


TOP = Table(
    "",
    (
        Key(
            "listen",
            Kind("host:port", _read_listen, "str | int"),
            "The address and port for clients, or a port alone.",
            attrs=("host", "port"),
        ),
        Key("host", STRING, "The address for clients.", ("net",), zero_is_default=True),
        Key(
            "port", INT, "The port for clients; -1: any free port.", check=port_in_range, zero_is_default=True
        ),
        Key(
            "workers",
            INT,
            "Number of processes that share the port for clients; each can use one core.",
            check=Between(1, WORKERS_MAX, RANGE_FIX),
        ),
        Key(
            "client_advertise",
            STRING,
            "The address that INFO advertises to clients, `host` or `host:port`.",
            check=check_advertised,
            reloadable=True,
        ),
        Key(
            "server_name",
            STRING,
            "The name of the server, without spaces; empty: its id.",
            check=_check_server_name,
        ),
        Key(
            "server_tags",
            Kind("list of strings", _read_tags, "str | Sequence[str]"),
            "Tags that monitoring shows.",
            reloadable=True,
        ),
        Key(
            "server_metadata",
            STRING_MAP,
            "Names and values that monitoring shows.",
            reloadable=True,
        ),
        Key("debug", BOOL, "Log events of connections.", attrs=("log.debug",), reloadable=True),
        Key("trace", BOOL, "Log every protocol message.", attrs=("log.trace",), reloadable=True),
        Key(
            "trace_verbose",
            Kind("bool", _read_pair, "bool"),
            "Log the messages of the system account too; turns `trace` on.",
            attrs=("log.trace_verbose", "log.trace"),
            reloadable=True,
        ),
        Key("logtime", BOOL, "Begin log lines with the time.", attrs=("log.logtime",), reloadable=True),
        Key("logtime_utc", BOOL, "Log times in UTC.", attrs=("log.logtime_utc",), reloadable=True),
        Key(
            "log_format",
            Kind("text or json", _read_log_format, "str"),
            "`text`: log lines as in nats-server; `json`: one JSON object per line.",
            attrs=("log.log_format",),
            reloadable=True,
        ),
        Key(
            "log_file",
            PATH,
            "The file for log lines; empty: standard error.",
            ("logfile",),
            attrs=("log.log_file",),
            reloadable=True,
        ),
        Key(
            "log_size_limit",
            SIZE,
            "Size in bytes at which the log file is rotated; 0: never.",
            ("logfile_size_limit",),
            _size_63,
            attrs=("log.log_size_limit",),
            reloadable=True,
        ),
        Key(
            "log_max_num",
            INT,
            "Number of log files that rotation keeps, including the current one; 0: all.",
            ("logfile_max_num",),
            count_31,
            attrs=("log.log_max_num",),
            reloadable=True,
        ),
        Key(
            "max_traced_msg_len",
            INT,
            "Number of bytes of a message that `trace` shows; 0: all.",
            check=count_31,
            attrs=("log.max_traced_msg_len",),
            reloadable=True,
        ),
        Key("pid_file", PATH, "The file for the process id.", ("pidfile",), reloadable=True),
        Key("ports_file_dir", PATH, "The directory for the file that lists the open ports.", reloadable=True),
        Key(
            "http",
            LISTEN,
            "The address and port of the monitoring pages, or a port alone.",
            attrs=("monitoring.host", "monitoring.http_port"),
        ),
        Key(
            "http_port",
            INT,
            "The port of the monitoring pages; 0: none, -1: any free port.",
            ("monitor_port",),
            port_in_range,
            ("monitoring.http_port",),
        ),
        Key(
            "https",
            LISTEN,
            "The address and port of the monitoring pages over TLS, or a port alone; needs `tls`.",
            attrs=("monitoring.host", "monitoring.https_port"),
        ),
        Key(
            "https_port",
            INT,
            "The port of the monitoring pages over TLS; 0: none, -1: any free port.",
            check=port_in_range,
            attrs=("monitoring.https_port",),
        ),
        Key(
            "http_base_path",
            STRING,
            "The prefix of the paths of the monitoring pages.",
            attrs=("monitoring.base_path",),
        ),
        Key(
            "http_authorization",
            HTTP_LOGIN_BLOCK,
            "The login for the monitoring pages; without this block, everyone can read them.",
            attrs=("monitoring.login",),
        ),
        Key(
            "max_payload",
            SIZE,
            "Maximum size of a message (headers and payload) in bytes; -1: no limit.",
            check=_or_none,
            attrs=("limits.max_payload",),
            reloadable=True,
            zero_is_default=True,
        ),
        Key(
            "max_pending",
            SIZE,
            "Maximum bytes of output that wait for one client; a client with more is disconnected.",
            check=_size_63,
            attrs=("limits.max_pending",),
            zero_is_default=True,
        ),
        Key(
            "max_control_line",
            SIZE,
            "Maximum length of a protocol line in bytes.",
            check=count_31,
            attrs=("limits.max_control_line",),
            reloadable=True,
            zero_is_default=True,
        ),
        Key(
            "max_connections",
            Kind("int", _read_max_connections, "int"),
            "Maximum number of client connections; 0 or less: every client is refused.",
            ("max_conn",),
            attrs=("limits.max_connections",),
            reloadable=True,
        ),
        Key(
            "max_subscriptions",
            Kind("int", _read_max_subscriptions, "int"),
            "Maximum number of subscriptions of one connection; 0 and -1: no limit.",
            ("max_subs",),
            count_31,
            attrs=("limits.max_subscriptions",),
        ),
        Key(
            "max_sub_tokens",
            INT,
            "Maximum number of tokens in the subject of a subscription; 0: no limit.",
            ("max_subscription_tokens",),
            Between(1, 255, "use a number from 1 to 255, or leave it out for no limit"),
            attrs=("limits.max_sub_tokens",),
        ),
        Key(
            "ping_interval",
            DURATION_OR_SECONDS,
            "The time between two pings of a connection.",
            check=positive_duration,
            attrs=("limits.ping_interval_ns",),
            reloadable=True,
            zero_is_default=True,
        ),
        Key(
            "ping_max",
            INT,
            "Number of unanswered pings after which a connection is closed.",
            check=count_31,
            attrs=("limits.ping_max",),
            reloadable=True,
            zero_is_default=True,
        ),
        Key(
            "write_deadline",
            DURATION_OR_SECONDS,
            "Maximum time for which output waits for a client; then the client is disconnected.",
            check=positive_duration,
            attrs=("limits.write_deadline_ns",),
            reloadable=True,
            zero_is_default=True,
        ),
        Key(
            "lame_duck_duration",
            DURATION,
            "The time over which lame duck mode closes the connections; at least 30s.",
            check=AtLeast(30 * NS_PER_S, "use 30s or more, so that clients do not all leave at once"),
        ),
        Key(
            "lame_duck_grace_period",
            DURATION,
            "The time before lame duck mode closes the first connection.",
            check=positive_duration,
            zero_is_default=True,
        ),
        Key("no_header_support", BOOL, "Turn message headers off.", attrs=("limits.no_header_support",)),
        Key(
            "no_fast_producer_stall",
            BOOL,
            "Do not slow down a publisher whose subscribers fall behind.",
            reloadable=True,
        ),
        Key(
            "max_closed_clients",
            INT,
            "Maximum number of closed connections that /connz shows.",
            check=count_31,
            attrs=("limits.max_closed_clients",),
            zero_is_default=True,
        ),
        Key(
            "disable_sublist_cache",
            BOOL,
            "Do not keep the list of a subject's receivers for longer than a turn.",
            ("no_sublist_cache",),
        ),
        Key(
            "authorization",
            Kind("map", read_authorization, "{}", AUTHORIZATION),
            "Users of the global account, or a single user or token.",
            reloadable=True,
        ),
        Key("no_auth_user", STRING, "The user of clients without credentials.", reloadable=True),
        Key(
            "tls",
            TLS_BLOCK,
            "Certificates and rules for encrypted client connections.",
            reloadable=True,
        ),
        Key(
            "websocket",
            Kind("map", read_websocket, "{}", WEBSOCKET),
            "The port for WebSocket clients.",
            ("ws",),
        ),
        Key(
            "cluster",
            Kind("map", read_cluster, "{}", CLUSTER),
            "The port for other servers of the cluster, and their addresses.",
            reloadable=True,
        ),
        Key(
            "proxy_protocol",
            BOOL,
            "Accept clients through a proxy that sends their address in a PROXY header (v1 or v2).",
        ),
        Key(
            "proxies",
            PROXIES_BLOCK,
            "Proxies through which clients may connect, by their public keys.",
            reloadable=True,
        ),
        Key(
            "allow_non_tls",
            BOOL,
            "Also accept clients without TLS.",
            attrs=("tls.allow_plain",),
            reloadable=True,
        ),
        Key(
            "accounts",
            Kind("map", read_accounts, "Mapping[str, {}] | Sequence[str]", ACCOUNT),
            "Accounts by name, or a list of names.",
            reloadable=True,
        ),
        Key(
            "mappings",
            MAPPINGS,
            "New subjects for messages that clients of the global account publish.",
            ("maps",),
            reloadable=True,
        ),
        Key(
            "system_account",
            STRING,
            "The account for events of the server and requests to it.",
            ("system",),
            zero_is_default=True,
        ),
        Key("no_system_account", BOOL, "Turn the system account off.", ("no_system", "no_sys_acc")),
        *OPERATOR_KEYS,
        Key(
            "feature_flags",
            Kind("map of bools", _read_feature_flags, "Mapping[str, bool]"),
            "Switches for features; the only one, `js_ack_fc_v2`, adds domain and account to ack subjects.",
        ),
        Key(
            "jetstream",
            Kind("bool or map", read_jetstream, "bool | {}", JETSTREAM),
            "JetStream: on, off, or its options.",
            reloadable=True,
        ),
        Key(
            "store_dir",
            PATH,
            "The same as `store_dir` of the `jetstream` block.",
            ("storedir",),
            check_store_dir,
            attrs=("jetstream.store_dir",),
        ),
    ),
    unsupported.TOP,
)

# Every table by its path of keys, for the docs, for tests, and for the comparison at a reload.
TABLES: dict[str, Table] = {
    "": TOP,
    "jetstream": JETSTREAM,
    "jetstream.limits": JETSTREAM_LIMITS,
    "jetstream.limits.batch": JETSTREAM_BATCH,
    "authorization": AUTHORIZATION,
    "authorization.auth_callout": CALLOUT,
    "http_authorization": HTTP_LOGIN,
    "tls": TLS,
    "cluster": CLUSTER,
    "cluster.authorization": CLUSTER_LOGIN,
    "proxies": PROXIES,
    "proxies.trusted.*": PROXY,
    "websocket": WEBSOCKET,
    "websocket.authorization": LOGINS,
    "resolver": RESOLVER,
    "accounts.*": ACCOUNT,
    "accounts.*.limits": ACCOUNT_LIMITS,
    "accounts.*.msg_trace": MSG_TRACE,
    "accounts.*.jetstream": ACCOUNT_JETSTREAM,
    "accounts.*.exports.*": EXPORT,
    "accounts.*.exports.*.latency": LATENCY,
    "accounts.*.imports.*": IMPORT,
    "accounts.*.imports.*.stream": REMOTE,
    "mappings.*": DESTINATION,
    "users.*": USER,
    "permissions": PERMISSIONS,
    "permissions.allow_responses": RESPONSES,
}
