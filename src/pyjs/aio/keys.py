"""The keys of the configuration as keyword arguments: their names and the Python types of their values.

What a key means stands in docs/configuration.md; the tables of pyjs.config check the values. A value is written as
in the configuration file: a duration is text with a unit ("30s"), a size is a number of bytes, and in the block
jetstream also text ("10GB"); a path may be a pathlib.Path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, TypeAlias, TypedDict

Block: TypeAlias = Mapping[str, Any]  # of keys as in the configuration file
Directory: TypeAlias = str | PathLike[str]


class JetStreamKeys(TypedDict, total=False):
    """The block `jetstream`."""

    enabled: bool
    store_dir: Directory
    max_mem: int | str
    max_file: int | str
    sync_interval: str
    sync_always: bool
    scrub_rate: int
    key: str
    prev_key: str
    cipher: str
    domain: str
    unique_tag: str
    strict: bool
    limits: Block


class ConfigKeys(TypedDict, total=False):
    """The top level of the configuration."""

    listen: str | int
    host: str
    port: int
    client_advertise: str
    server_name: str
    server_tags: str | Sequence[str]
    server_metadata: Mapping[str, str]
    debug: bool
    trace: bool
    trace_verbose: bool
    logtime: bool
    logtime_utc: bool
    log_file: Directory
    log_size_limit: int
    log_max_num: int
    max_traced_msg_len: int
    pid_file: Directory
    ports_file_dir: Directory
    http: str | int
    http_port: int
    http_base_path: str
    max_payload: int
    max_pending: int
    max_control_line: int
    max_connections: int
    max_subscriptions: int
    max_sub_tokens: int
    ping_interval: str
    ping_max: int
    write_deadline: str
    lame_duck_duration: str
    lame_duck_grace_period: str
    no_header_support: bool
    no_fast_producer_stall: bool
    max_closed_clients: int
    disable_sublist_cache: bool
    authorization: Block
    no_auth_user: str
    tls: Block
    allow_non_tls: bool
    accounts: Block
    system_account: str
    no_system_account: bool
    feature_flags: Mapping[str, bool]
    jetstream: bool | JetStreamKeys
    store_dir: Directory
