"""/varz: the server as a whole, its limits and its counters.

The order of the fields and the omitted fields are those of nats-server 2.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs import __version__
from pyjs.base.gotext import time_text, uptime_text
from pyjs.claims.token import decode
from pyjs.monitor.json_text import JsonDict, JsonValue, filled, number
from pyjs.monitor.jsz import jetstream_block
from pyjs.node import PEER_VERSION, PYTHON_VERSION

if TYPE_CHECKING:
    from pyjs.monitor.state import Monitored

NS_PER_S = 1_000_000_000
FEATURE_FLAGS = ("js_ack_fc_v2", "js_api_reply_v2", "js_raft_delete_range", "js_snapshot_sources")
NO_STATS = ("clients", "routes", "gateways", "leafs")


def varz(monitored: Monitored, now_ns: int) -> JsonDict:
    """Return the body of /varz, with the data about the whole server."""
    return (
        _identity(monitored)
        | _limits(monitored)
        | _blocks(monitored)
        | _runtime(monitored, now_ns)
        | _counters(monitored)
        | _configuration(monitored)
        | _stats(monitored)
        | _proxies(monitored)
    )


def _identity(monitored: Monitored) -> JsonDict:
    node, options = monitored.node, monitored.options
    answer: JsonDict = {
        "server_id": node.server_id,
        "server_name": node.server_name,
        "version": PEER_VERSION,
        "proto": 1,
        "git_commit": f"pyjs-{__version__}",
        "go": PYTHON_VERSION,
        "host": options.host,
        "port": node.port,
    }
    if node.authenticator.required:
        answer["auth_required"] = True
    tls = options.tls
    if node.cluster is not None:
        answer |= filled({"connect_urls": [*node.cluster.client_urls()]})
    return answer | filled(
        {"tls_required": bool(tls.certificates) and not tls.allow_plain, "tls_verify": tls.verify}
    )


def _limits(monitored: Monitored) -> JsonDict:
    options = monitored.options
    answer: JsonDict = {"max_connections": options.limits.max_connections}
    return (
        answer
        | filled({"max_subscriptions": options.limits.max_subscriptions})
        | {
            "ping_interval": options.limits.ping_interval_ns,
            "ping_max": options.limits.ping_max,
            "http_host": options.monitoring.host or options.host,
            "http_port": options.monitoring.http_port,
            "http_base_path": options.monitoring.base_path,
            "https_port": options.monitoring.https_port,
            "auth_timeout": number(options.authorization.timeout_ns / NS_PER_S),
            "max_control_line": options.limits.max_control_line,
            "max_payload": monitored.node.settings.max_payload,
            "max_pending": options.limits.max_pending,
        }
    )


def _blocks(monitored: Monitored) -> JsonDict:
    tls = monitored.options.tls
    jetstream: JsonDict = {}
    if monitored.node.jetstream is not None:
        jetstream = jetstream_block(monitored)
    return {
        "cluster": _cluster(monitored),
        "gateway": {},
        "leaf": {},
        "mqtt": {},
        "websocket": _websocket(monitored),
        "jetstream": jetstream,
        "tls_timeout": number(tls.timeout_ns / NS_PER_S),
        "write_deadline": monitored.options.limits.write_deadline_ns,
        **filled({"tls_cert_not_after": monitored.certificate_ends(tls)}),
    }


def _cluster(monitored: Monitored) -> JsonDict:
    cluster = monitored.node.cluster
    if cluster is None:
        return {}
    block = cluster.options
    return filled(
        {
            "name": block.name,
            "addr": block.host,
            "cluster_port": cluster.port,
            "auth_timeout": number(block.authorization.timeout_ns / NS_PER_S),
            "urls": [f"{url.host}:{url.port}" for url in block.routes],
            "pool_size": 1,
        }
    )


def _websocket(monitored: Monitored) -> JsonDict:
    block = monitored.options.websocket
    if not block.port:
        return {}
    return filled(
        {
            "host": block.host,
            "port": monitored.node.websocket_port,
            "advertise": block.advertise,
            "no_auth_user": block.no_auth_user,
            "jwt_cookie": block.jwt_cookie,
            "handshake_timeout": block.handshake_timeout_ns,
            "auth_timeout": number(block.authorization.timeout_ns / NS_PER_S),
            "no_tls": block.no_tls,
            "tls_map": block.tls.verify_and_map,
            "tls_pinned_certs": list(block.tls.pinned_certs),
            "same_origin": block.same_origin,
            "allowed_origins": list(block.allowed_origins),
            "compression": block.compression,
            "tls_cert_not_after": monitored.certificate_ends(block.tls),
        }
    )


def _runtime(monitored: Monitored, now_ns: int) -> JsonDict:
    node, process = monitored.node, monitored.process
    return {
        "start": time_text(node.started_at_ns),
        "now": time_text(now_ns),
        "uptime": uptime_text(now_ns - node.started_at_ns),
        "mem": process.memory_size(),
        "cores": process.cores,
        "gomaxprocs": 1,  # threads that handle messages: one event loop
        "cpu": number(process.cpu_percent(now_ns)),
        "connections": len(node.sessions),
        "total_connections": node.total_connections,
        "routes": 0 if node.cluster is None else len(node.cluster.routes),
        "remotes": 0 if node.cluster is None else len(node.cluster.routes),
        "leafnodes": 0,
    }


def _counters(monitored: Monitored) -> JsonDict:
    node, counts = monitored.node, monitored.request_counts
    in_msgs, in_bytes, out_msgs, out_bytes = node.counters()
    routes = (0, 0, 0, 0) if node.cluster is None else node.cluster.counters()
    return {
        "in_msgs": in_msgs + routes[0],
        "in_bytes": in_bytes + routes[1],
        "in_client_msgs": in_msgs,
        "in_client_bytes": in_bytes,
        "out_msgs": out_msgs + routes[2],
        "out_bytes": out_bytes + routes[3],
        "out_client_msgs": out_msgs,
        "out_client_bytes": out_bytes,
        "slow_consumers": node.slow_consumers,
        "stale_connections": node.stale_connections,
        "stalled_clients": node.stalled_clients,
        "subscriptions": sum(map(monitored.num_subscriptions, node.accounts.values())),
        "http_req_stats": {path: counts[path] for path in sorted(counts)},
        **filled({"pyjs_faults": dict(sorted(node.faults.counts.items()))}),
    }


def _configuration(monitored: Monitored) -> JsonDict:
    options = monitored.options
    answer: JsonDict = {
        "config_load_time": time_text(monitored.config_loaded_at_ns),
        "config_digest": options.config_digest,
    }
    answer |= filled({"tags": [*options.server_tags], "metadata": dict(options.server_metadata)})
    answer["feature_flags"] = {name: options.feature_flags.get(name, False) for name in FEATURE_FLAGS}
    operators = options.operators
    trust = monitored.node.trust
    return answer | filled(
        {
            "trusted_operators_jwt": [each.jwt for each in operators],
            "trusted_operators_claim": [decode(each.jwt).claims for each in operators],
            "system_account": options.system_account,
            "pinned_account_fails": 0 if trust is None else trust.pinned_failures,
        }
    )


def _proxies(monitored: Monitored) -> JsonDict:
    trusted: list[JsonValue] = [{"key": key} for key in monitored.options.proxies.keys]
    return {"proxies": {"trusted": trusted}} if trusted else {}


def _stats(monitored: Monitored) -> JsonDict:
    node = monitored.node
    nothing: JsonDict = dict.fromkeys(NO_STATS, 0)
    return {
        "slow_consumer_stats": nothing | {"clients": node.slow_consumers},
        "stale_connection_stats": nothing | {"clients": node.stale_connections},
        "disk_io_wait_stats": {"waiters": 0, "waits": 0, "wait_time": 0, "max_wait_time": 0},
    }
