"""Keys of nats-server 2.15 that are refused by name because they would have no effect on this server.

Data only. Each key has one row, with all its names and the reason that the error gives. When code makes a key
effective, its row moves to the table of its block.
"""

from __future__ import annotations

from pyjs.config.table import Unsupported

_NO_OCSP = "the server does not request the status of certificates"
_ONE_CLUSTER = "clusters cannot be connected to each other"
_ATTEMPTS = "one in sixty failed attempts to reach another server is logged"
_NO_QUEUE = "a publisher that outruns its stream is slowed down; messages do not queue up"
_OWN_LOG = "the metadata is in the same log as the streams, and is compacted with it"

TOP = (
    Unsupported(("gateway",), _ONE_CLUSTER),
    Unsupported(("leafnodes", "leaf"), "this server has no leafnode connections"),
    Unsupported(("mqtt",), "this server has no MQTT listener"),
    Unsupported(("connect_error_reports",), _ATTEMPTS),
    Unsupported(("reconnect_error_reports",), _ATTEMPTS),
    Unsupported(("default_js_domain",), "it is for leafnode connections, which this server does not have"),
    Unsupported(("ocsp",), _NO_OCSP),
    Unsupported(("ocsp_cache",), _NO_OCSP),
    Unsupported(
        ("resolver_tls",),
        "the certificate of an HTTP resolver is checked with the machine's certificate authorities",
    ),
    Unsupported(("syslog",), "logs go to `log_file` or standard error"),
    Unsupported(("remote_syslog",), "logs go to `log_file` or standard error"),
    Unsupported(("trace_headers",), "`trace` shows whole messages"),
    Unsupported(("prof_port",), "there is no profiling port"),
    Unsupported(("prof_block_rate",), "there is no profiling port"),
    Unsupported(("write_timeout",), "a client that exceeds `write_deadline` is always disconnected"),
)

JETSTREAM = (
    Unsupported(("tpm",), "keys come from the configuration or the environment"),
    Unsupported(("extension_hint",), _ONE_CLUSTER),
    Unsupported(("max_outstanding_catchup",), "a replica that catches up gets at most 64 MiB per second"),
    Unsupported(("meta_compact",), _OWN_LOG),
    Unsupported(("meta_compact_size",), _OWN_LOG),
    Unsupported(("meta_compact_sync",), _OWN_LOG),
    Unsupported(("max_concurrent_io",), "one thread syncs all files"),
    Unsupported(("max_buffered_msgs",), _NO_QUEUE),
    Unsupported(("max_buffered_size",), _NO_QUEUE),
)

ACCOUNT = (Unsupported(("nkey",), "an account is identified by its name"),)

ACCOUNT_LIMITS = (Unsupported(("max_leafnodes", "max_leafs"), "this server has no leafnode connections"),)

ACCOUNT_JETSTREAM = (
    Unsupported(("cluster_traffic",), "replicas of all accounts share the connections between servers"),
)
