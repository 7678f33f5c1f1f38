"""The blocks `jetstream` and `jetstream.limits`: their keys, and the readers of their values.

This module knows nothing of streams. Defaults are in options.py, beside their types. An option whose row is not
reloadable keeps its value when a running server reads its file again.

Source: nats.docs "Configuration"; nats-server 2.15.1, compared in tests/unit/config/test_peer.py.
"""

from __future__ import annotations

from pyjs.base.units import INT64_MAX
from pyjs.config import unsupported
from pyjs.config.declared import Block
from pyjs.config.errors import Refused, suggestion
from pyjs.config.kinds import (
    BOOL,
    DURATION,
    DURATION_OR_SECONDS,
    INT,
    INT32_MAX,
    PATH,
    SIZE,
    STORAGE_SIZE,
    STRING,
    Between,
    fill,
    map_kind,
    positive_duration,
    read_lower,
    read_map,
    read_switch,
)
from pyjs.config.options import BatchLimits, JetStreamLimits, JetStreamOptions, Options
from pyjs.config.table import Key, Kind, Reading, Table
from pyjs.config.values import Value

CIPHERS = {"chacha": "chacha", "chachapoly": "chacha", "aes": "aes"}

_or_default = Between(0, INT32_MAX, "use a number from 1, or 0 for the default")
_or_none = Between(-1, INT32_MAX, "use a number from 1, or -1 for no limit")
_size_63 = Between(0, INT64_MAX, "use a positive size, 64MB for instance")
_dynamic = Between(-1, INT64_MAX, "use a size, or -1 to let the server choose")


def check_store_dir(reading: Reading, key: Key, value: Value, data: object) -> None:
    """Raise Refused if a store directory was already set."""
    first = reading.places.get("jetstream.store_dir")
    if first is not None:
        cause = f"Duplicate 'store_dir' configuration, first at {first}"
        raise Refused(value.place, cause, "keep one of the two")


def _check_domain(reading: Reading, key: Key, value: Value, data: object) -> None:
    text = str(data)
    if any(char in ".*>" or char.isspace() for char in text):
        cause = f'"domain" is "{text}", which is no name'
        raise Refused(value.place, cause, "leave out spaces, dots, * and >")


def read_jetstream(reading: Reading, key: Key, value: Value, target: object) -> JetStreamOptions:
    """Read the block `jetstream`, or a switch that turns JetStream on or off.

    The options of `target` are changed and returned.
    """
    assert isinstance(target, Options)
    jetstream = target.jetstream  # a store_dir at the top level may already be set
    if not isinstance(value.data, dict):
        jetstream.enabled = read_switch(key, value)
        return jetstream
    jetstream.enabled = True
    fill(reading, JETSTREAM, key, value, "store_dir: ./data", jetstream)
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
    text = read_lower(reading, key, value, target)
    if text not in CIPHERS:
        names = sorted(set(CIPHERS.values()))
        fix = suggestion(text, names, f"use {' or '.join(names)}")
        raise Refused(value.place, f'Unknown cipher type: "{value.data}"', fix)
    return CIPHERS[text]


def _read_batch(reading: Reading, key: Key, value: Value, target: object) -> BatchLimits:
    default = BatchLimits()
    limits = BatchLimits(max_inflight_per_stream=0, max_inflight_total=0)
    fill(reading, JETSTREAM_BATCH, key, value, "max_msgs: 1000", limits)
    limits.max_fast_per_stream = limits.max_inflight_per_stream or default.max_fast_per_stream
    limits.max_fast_total = limits.max_inflight_total or default.max_fast_total
    limits.max_inflight_per_stream = limits.max_inflight_per_stream or default.max_inflight_per_stream
    limits.max_inflight_total = limits.max_inflight_total or default.max_inflight_total
    return limits


def read_declared(reading: Reading, key: Key, value: Value, target: object) -> Block:
    """Read a block of declared streams, consumers or buckets; the entries in it are not checked here."""
    return Block(read_map(key, value, "ORDERS { }"))


DECLARED = Kind("map", read_declared, "Mapping[str, Mapping[str, object]]")
DECLARED_BUCKETS = (
    Key(
        "kv",
        DECLARED,
        "Key-value buckets that must exist, by name.",
        attrs=("declared.kv",),
        reloadable=True,
    ),
    Key(
        "object_store",
        DECLARED,
        "Object stores that must exist, by name.",
        attrs=("declared.object_store",),
        reloadable=True,
    ),
)

JETSTREAM_BATCH = Table(
    "jetstream.limits.batch",
    (
        Key(
            "max_inflight_per_stream",
            INT,
            "Limit on open atomic batches of a stream. If set, it replaces the limit of 1000 fast batches.",
            check=_or_default,
            zero_is_default=True,
        ),
        Key(
            "max_inflight_total",
            INT,
            "Limit on open atomic batches of the server. If set, it replaces the limit of 50000 fast ones.",
            check=_or_default,
            zero_is_default=True,
        ),
        Key(
            "max_msgs",
            INT,
            "Maximum number of messages in an atomic batch.",
            check=_or_default,
            zero_is_default=True,
        ),
        Key(
            "timeout",
            DURATION,
            "Maximum time between two messages of a batch.",
            check=positive_duration,
            zero_is_default=True,
        ),
    ),
)

JETSTREAM_LIMITS = Table(
    "jetstream.limits",
    (
        Key(
            "max_ack_pending",
            INT,
            "Maximum `max_ack_pending` of a consumer; 0 and -1: no limit.",
            check=_or_none,
        ),
        Key(
            "max_request_batch",
            INT,
            "Maximum `batch` of a pull request; 0 and -1: no limit.",
            check=_or_none,
        ),
        Key(
            "max_ha_assets",
            INT,
            "Maximum number of replicated streams per server, the same on all servers; 0 and -1: no limit.",
            check=_or_none,
        ),
        Key(
            "duplicate_window",
            DURATION,
            "Maximum `duplicate_window` of a stream; 0: no limit.",
            check=positive_duration,
        ),
        Key(
            "default_max_consumers",
            INT,
            "The default `max_consumers` of a stream; -1: no limit.",
            check=_or_none,
            zero_is_default=True,
        ),
        Key("batch", Kind("map", _read_batch, "{}", JETSTREAM_BATCH), "Limits for atomic and fast batches."),
    ),
)

JETSTREAM = Table(
    "jetstream",
    (
        Key(
            "enabled",
            BOOL,
            "Turn JetStream on or off; without this key, the block turns it on.",
            ("enable",),
            reloadable=True,
        ),
        Key(
            "store_dir",
            PATH,
            "The directory that contains the store `jetstream`; empty: a temporary one, with a warning.",
            ("storedir", "store"),
            check_store_dir,
        ),
        Key(
            "max_mem",
            STORAGE_SIZE,
            "Maximum size of all memory streams in bytes; -1: three quarters of the memory, 0: none.",
            ("max_mem_store", "max_memory_store"),
            _dynamic,
            attrs=("max_memory",),
            reloadable=True,
        ),
        Key(
            "max_file",
            STORAGE_SIZE,
            "Maximum size of all file streams in bytes; -1: three quarters of the free disk space.",
            ("max_file_store",),
            _dynamic,
            attrs=("max_storage",),
            reloadable=True,
        ),
        Key(
            "sync_interval",
            Kind('duration or "always"', _read_sync_interval, "Duration"),
            "The time between two syncs of files; `always`: sync before each acknowledgement.",
            ("sync",),
            attrs=("sync_interval_ns", "sync_always"),
        ),
        Key("sync_always", BOOL, "Sync before each acknowledgement."),
        Key(
            "scrub_rate",
            SIZE,
            "Bytes per second that the background check of stored files reads; 0: no check.",
            check=_size_63,
        ),
        Key(
            "key",
            STRING,
            "The secret for the encryption of stored files; empty: no encryption.",
            ("ek", "encryption_key"),
            secret=True,
        ),
        Key(
            "prev_key",
            STRING,
            "The previous secret, to open files encrypted with it.",
            ("prev_ek", "prev_encryption_key"),
            secret=True,
        ),
        Key(
            "cipher",
            Kind("chacha or aes", _read_cipher, "str"),
            "The cipher of new streams: `chacha` or `aes`.",
        ),
        Key("domain", STRING, "The JetStream domain of this server.", check=_check_domain),
        Key(
            "unique_tag",
            Kind("string", read_lower, "str"),
            "A tag prefix; the replicas of a stream are on servers with different tags of this prefix.",
        ),
        Key(
            "spread_workers",
            BOOL,
            "With `workers`: distribute new streams among all workers; `false`: the first has all streams.",
        ),
        Key("strict", BOOL, "Refuse API requests with unknown fields."),
        Key(
            "request_queue_limit",
            INT,
            "Number of API requests that may wait.",
            check=_or_default,
            zero_is_default=True,
            reloadable=True,
        ),
        Key(
            "info_queue_limit",
            INT,
            "The same for requests for information; 0: as `request_queue_limit`.",
            check=_or_default,
            reloadable=True,
        ),
        Key(
            "limits",
            map_kind(JETSTREAM_LIMITS, "max_ack_pending: 1000", JetStreamLimits),
            "Limits for options of streams and consumers.",
        ),
        Key(
            "streams",
            DECLARED,
            "Streams of the global account that must exist, by name.",
            attrs=("declared.streams",),
            reloadable=True,
        ),
        Key(
            "consumers",
            DECLARED,
            "Consumers that must exist, by stream and name.",
            attrs=("declared.consumers",),
            reloadable=True,
        ),
        *DECLARED_BUCKETS,
    ),
    unsupported.JETSTREAM,
)
