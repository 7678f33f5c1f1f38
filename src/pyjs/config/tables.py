"""The option tables of the top level and of the jetstream block.

Knows nothing of how the options are used. Defaults are in options.py, beside their types. Rows follow the
order of Options. A row that is not reloadable keeps its old value when a running server reads its file again.

Source: nats.docs "Configuration"; nats-server 2.15.1, compared in tests/unit/config/test_peer.py.
"""

from __future__ import annotations

from pyjs.config import unsupported
from pyjs.config.accounts import (
    ACCOUNT,
    ACCOUNT_JETSTREAM,
    ACCOUNT_LIMITS,
    AUTHORIZATION,
    PERMISSIONS,
    RESPONSES,
    USER,
    read_accounts,
    read_authorization,
    read_switch,
)
from pyjs.config.errors import Refused, suggestion
from pyjs.config.kinds import (
    BOOL,
    DURATION,
    DURATION_OR_SECONDS,
    INT,
    INT32_MAX,
    LISTEN,
    SIZE,
    STORAGE_SIZE,
    STRING,
    STRING_MAP,
    STRINGS,
    at_least,
    between,
    count_31,
    port_in_range,
    positive_duration,
    read_listen,
    read_map,
)
from pyjs.config.options import NS_PER_S, JetStreamLimits, JetStreamOptions, Options
from pyjs.config.table import Key, Kind, Reading, Table, read_block
from pyjs.config.tls import TLS, read_tls
from pyjs.config.values import Value

FEATURE_FLAGS = ["js_ack_fc_v2"]
CIPHERS = {"chacha": "chacha", "chachapoly": "chacha", "aes": "aes"}

_size_63 = between(0, (1 << 63) - 1, "use a positive size, 64MB for instance")
_or_none = between(-1, INT32_MAX, "use a number from 1, or -1 for no limit")
_dynamic = between(-1, (1 << 63) - 1, "use a size, or -1 to let the server choose")


def _check_server_name(reading: Reading, key: Key, value: Value, data: object) -> None:
    if " " in str(data):
        raise Refused(value.place, "server name cannot contain spaces", "use - or _ in place of the space")


def _check_store_dir(reading: Reading, key: Key, value: Value, data: object) -> None:
    first = reading.places.get("jetstream.store_dir")
    if first is not None:
        cause = f"Duplicate 'store_dir' configuration, first at {first}"
        raise Refused(value.place, cause, "keep one of the two")


def _check_domain(reading: Reading, key: Key, value: Value, data: object) -> None:
    text = str(data)
    if any(char in ".*>" or char.isspace() for char in text):
        cause = f'"domain" is "{text}", which is no name'
        raise Refused(value.place, cause, "leave out spaces, dots, * and >")


def _check_client_advertise(reading: Reading, key: Key, value: Value, data: object) -> None:
    host, colon, port = str(data).rpartition(":")
    if not colon or str(data).endswith("]"):
        return
    if not port.isdigit() or int(port) > 65535 or (":" in host and not host.startswith("[")):
        cause = f'"client_advertise" is "{data}", which is no host or host:port'
        raise Refused(value.place, cause, 'write "example.com:4222", or "[::1]:4222" for IPv6')


def _read_listen(reading: Reading, key: Key, value: Value, target: object) -> object:
    host, port = read_listen(reading, key, value, target)
    default = Options()
    return host or default.host, port or default.port


def _read_tags(reading: Reading, key: Key, value: Value, target: object) -> object:
    tags = STRINGS.read(reading, key, value, target)
    assert isinstance(tags, tuple)
    return tuple(dict.fromkeys(tag.strip().lower() for tag in tags))


def _read_pair(reading: Reading, key: Key, value: Value, target: object) -> object:
    """Read a bool that sets two attributes alike."""
    on = BOOL.read(reading, key, value, target)
    return on, on


def _read_max_connections(reading: Reading, key: Key, value: Value, target: object) -> object:
    """Read a count; nothing and less refuse every client, which -1 stands for."""
    count = INT.read(reading, key, value, target)
    assert isinstance(count, int)
    return count if count > 0 else -1


def _read_max_subscriptions(reading: Reading, key: Key, value: Value, target: object) -> object:
    count = INT.read(reading, key, value, target)
    return 0 if count == -1 else count


def _read_jetstream(reading: Reading, key: Key, value: Value, target: object) -> JetStreamOptions:
    assert isinstance(target, Options)
    jetstream = target.jetstream  # a store_dir at the top may have been set before
    if not isinstance(value.data, dict):
        jetstream.enabled = read_switch(key, value)
        return jetstream
    jetstream.enabled = True
    read_block(reading, JETSTREAM, read_map(key, value, "store_dir: ./data"), jetstream)
    for name in ("cipher", "prev_key"):
        if f"jetstream.{name}" in reading.places and not jetstream.key:
            place = reading.places[f"jetstream.{name}"]
            reading.warn(
                place, f'"{name}" changes nothing without "key"', "set key to encrypt what is stored"
            )
    return jetstream


def _read_sync_interval(reading: Reading, key: Key, value: Value, target: object) -> object:
    assert isinstance(target, JetStreamOptions)
    if str(value.data).lower() == "always":
        return target.sync_interval_ns, True
    if isinstance(value.data, str) and value.data.isalpha():
        cause = f'"sync_interval" is "{value.data}", neither a duration nor always'
        raise Refused(value.place, cause, suggestion(value.data, ["always"], 'write always or "10s"'))
    interval_ns = DURATION_OR_SECONDS.read(reading, key, value, target)
    positive_duration(reading, key, value, interval_ns)
    return interval_ns or target.sync_interval_ns, target.sync_always


def _read_cipher(reading: Reading, key: Key, value: Value, target: object) -> str:
    text = _read_lower(reading, key, value, target)
    if text not in CIPHERS:
        names = sorted(set(CIPHERS.values()))
        fix = suggestion(text, names, f"use {' or '.join(names)}")
        raise Refused(value.place, f'Unknown cipher type: "{value.data}"', fix)
    return CIPHERS[text]


def _read_lower(reading: Reading, key: Key, value: Value, target: object) -> str:
    text = STRING.read(reading, key, value, target)
    assert isinstance(text, str)
    return text.strip().lower()


def _read_feature_flags(reading: Reading, key: Key, value: Value, target: object) -> dict[str, bool]:
    """Read the flags that change something here."""
    flags: dict[str, bool] = {}
    for name, entry in read_map(key, value, "js_ack_fc_v2: true").items():
        if name not in FEATURE_FLAGS:
            cause = f'"{name}" is no feature flag that changes something here'
            raise Refused(
                entry.value.place, cause, suggestion(name, FEATURE_FLAGS, f"use {FEATURE_FLAGS[0]}")
            )
        flags[name] = bool(BOOL.read(reading, key, entry.value, target))
    return flags


def _read_limits(reading: Reading, key: Key, value: Value, target: object) -> JetStreamLimits:
    limits = JetStreamLimits()
    read_block(reading, JETSTREAM_LIMITS, read_map(key, value, "max_ack_pending: 1000"), limits)
    return limits


JETSTREAM_LIMITS = Table(
    "jetstream.limits",
    (
        Key("max_ack_pending", INT, check=_or_none),
        Key("max_request_batch", INT, check=_or_none),
        Key("duplicate_window", DURATION, check=positive_duration),
        Key("default_max_consumers", INT, check=_or_none, zero_is_default=True),
    ),
    unsupported.JETSTREAM_LIMITS,
)

JETSTREAM = Table(
    "jetstream",
    (
        Key("enabled", BOOL, ("enable",), reloadable=True),
        Key("store_dir", STRING, ("storedir", "store"), _check_store_dir),
        Key(
            "max_mem",
            STORAGE_SIZE,
            ("max_mem_store", "max_memory_store"),
            _dynamic,
            attrs=("max_memory",),
            reloadable=True,
        ),
        Key("max_file", STORAGE_SIZE, ("max_file_store",), _dynamic, attrs=("max_storage",), reloadable=True),
        Key(
            "sync_interval",
            Kind('duration or "always"', _read_sync_interval),
            ("sync",),
            attrs=("sync_interval_ns", "sync_always"),
        ),
        Key("sync_always", BOOL),
        Key("scrub_rate", SIZE, check=_size_63),
        Key("key", STRING, ("ek", "encryption_key"), secret=True),
        Key("prev_key", STRING, ("prev_ek", "prev_encryption_key"), secret=True),
        Key("cipher", Kind("chacha or aes", _read_cipher)),
        Key("domain", STRING, check=_check_domain),
        Key("unique_tag", Kind("string", _read_lower)),
        Key("strict", BOOL),
        Key("limits", Kind("map", _read_limits)),
    ),
    unsupported.JETSTREAM,
)

TOP = Table(
    "",
    (
        Key("listen", Kind("host:port", _read_listen), attrs=("host", "port")),
        Key("host", STRING, ("net",), zero_is_default=True),
        Key("port", INT, check=port_in_range, zero_is_default=True),
        Key("client_advertise", STRING, check=_check_client_advertise, reloadable=True),
        Key("server_name", STRING, check=_check_server_name),
        Key("server_tags", Kind("list of strings", _read_tags), reloadable=True),
        Key("server_metadata", STRING_MAP, reloadable=True),
        Key("debug", BOOL, reloadable=True),
        Key("trace", BOOL, reloadable=True),
        Key("trace_verbose", Kind("bool", _read_pair), attrs=("trace_verbose", "trace"), reloadable=True),
        Key("logtime", BOOL, reloadable=True),
        Key("logtime_utc", BOOL, reloadable=True),
        Key("log_file", STRING, ("logfile",), reloadable=True),
        Key("log_size_limit", SIZE, ("logfile_size_limit",), _size_63, reloadable=True),
        Key("log_max_num", INT, ("logfile_max_num",), count_31, reloadable=True),
        Key("max_traced_msg_len", INT, check=count_31, reloadable=True),
        Key("pid_file", STRING, ("pidfile",), reloadable=True),
        Key("ports_file_dir", STRING, reloadable=True),
        Key("http", LISTEN, attrs=("http_host", "http_port")),
        Key("http_port", INT, ("monitor_port",), port_in_range),
        Key("http_base_path", STRING),
        Key("max_payload", SIZE, check=_or_none, reloadable=True, zero_is_default=True),
        Key("max_pending", SIZE, check=_size_63, zero_is_default=True),
        Key("max_control_line", SIZE, check=count_31, reloadable=True, zero_is_default=True),
        Key("max_connections", Kind("int", _read_max_connections), ("max_conn",), reloadable=True),
        Key("max_subscriptions", Kind("int", _read_max_subscriptions), ("max_subs",), count_31),
        Key(
            "max_sub_tokens",
            INT,
            ("max_subscription_tokens",),
            between(1, 255, "use a number from 1 to 255, or leave it out for no limit"),
        ),
        Key(
            "ping_interval",
            DURATION_OR_SECONDS,
            check=positive_duration,
            reloadable=True,
            zero_is_default=True,
        ),
        Key("ping_max", INT, check=count_31, reloadable=True, zero_is_default=True),
        Key(
            "write_deadline",
            DURATION_OR_SECONDS,
            check=positive_duration,
            reloadable=True,
            zero_is_default=True,
        ),
        Key(
            "lame_duck_duration",
            DURATION,
            check=at_least(30 * NS_PER_S, "use 30s or more, so that clients do not all leave at once"),
        ),
        Key("lame_duck_grace_period", DURATION, check=positive_duration, zero_is_default=True),
        Key("no_header_support", BOOL),
        Key("no_fast_producer_stall", BOOL, reloadable=True),
        Key("max_closed_clients", INT, check=count_31, zero_is_default=True),
        Key("disable_sublist_cache", BOOL, ("no_sublist_cache",)),
        Key("authorization", Kind("map", read_authorization), reloadable=True),
        Key("no_auth_user", STRING, reloadable=True),
        Key("tls", Kind("map", read_tls), reloadable=True),
        Key("allow_non_tls", BOOL, attrs=("tls.allow_plain",), reloadable=True),
        Key("accounts", Kind("map", read_accounts), reloadable=True),
        Key("system_account", STRING, ("system",), zero_is_default=True),
        Key("no_system_account", BOOL, ("no_system", "no_sys_acc")),
        Key("feature_flags", Kind("map of bools", _read_feature_flags)),
        Key("jetstream", Kind("bool or map", _read_jetstream), reloadable=True),
        Key("store_dir", STRING, ("storedir",), _check_store_dir, attrs=("jetstream.store_dir",)),
    ),
    unsupported.TOP,
)

# Every table under the way to it through the keys, for documents, tests and the comparison at reload.
TABLES: dict[str, Table] = {
    "": TOP,
    "jetstream": JETSTREAM,
    "jetstream.limits": JETSTREAM_LIMITS,
    "authorization": AUTHORIZATION,
    "tls": TLS,
    "accounts.*": ACCOUNT,
    "accounts.*.limits": ACCOUNT_LIMITS,
    "accounts.*.jetstream": ACCOUNT_JETSTREAM,
    "users.*": USER,
    "permissions": PERMISSIONS,
    "permissions.allow_responses": RESPONSES,
}
