"""The key `workers`: a check against other keys that exclude it, and the options of one worker.

A worker reads the same file and flags as its server. `place_worker` then removes the options that the main process
applies itself (files, log, pages) and adds the paths of the sockets between workers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyjs.config.errors import Place, Problem
from pyjs.config.options import ClusterOptions, MonitoringOptions, Options, RouteUrl, Worker

WORKERS_MAX = 64  # Msg.told has 64 bits: one for each other worker, and one unused
RANGE_FIX = f"use a number from 1 to {WORKERS_MAX}"


def check_workers(options: Options, at: Callable[[str], Place]) -> list[Problem]:
    """Return the problems of the option `workers`, by itself and in combination with other options."""
    place = at("workers")
    if not 1 <= options.workers <= WORKERS_MAX:
        return [Problem(place, f'"workers" is {options.workers}', RANGE_FIX)]
    if options.workers == 1:
        return []
    found = []
    if options.cluster.port or options.cluster.routes:
        cause = "workers in a cluster of several servers are not supported yet"
        found.append(Problem(place, cause, "remove workers, or the block cluster"))
    if options.resolver is not None and options.resolver.kind in ("full", "cache"):
        kind = options.resolver.kind
        cause = (
            f"workers with a resolver of type {kind} are not supported yet: one process owns its directory"
        )
        found.append(Problem(place, cause, "use resolver: MEMORY or a URL, or remove workers"))
    if options.jetstream.spread_workers and options.operator_keys:
        cause = "spread_workers with accounts of an operator is not supported yet: each worker learns them by itself"
        found.append(Problem(at("jetstream.spread_workers"), cause, "remove spread_workers"))
    limits = options.limits
    if limits.max_payload > limits.max_pending // 4:
        sizes = (
            f"max_payload ({limits.max_payload}) is more than a quarter of max_pending ({limits.max_pending})"
        )
        cause = f"{sizes}, so that workers cannot pass on such messages"
        found.append(Problem(place, cause, "raise max_pending"))
    return found


def place_worker(options: Options, worker: Worker) -> Options:
    """Return a copy of `options` for one worker; blocks that do not differ are shared with `options`."""
    placed = replace(options)
    placed.worker = worker
    placed.server_name = f"{options.server_name or worker.name}-{worker.number}"
    placed.port = worker.port
    placed.websocket = replace(options.websocket)
    if options.websocket.port:
        placed.websocket.port = worker.websocket_port
    placed.pid_file = placed.ports_file_dir = ""
    placed.log = replace(options.log, log_file="", log_size_limit=0, log_max_num=0)
    placed.monitoring = MonitoringOptions()
    placed.cluster = ClusterOptions(
        host=socket_path(worker, worker.number),
        port=worker.number,
        routes=tuple(RouteUrl(socket_path(worker, each), each) for each in range(1, worker.number)),
        no_advertise=True,
        local=True,
    )
    return placed


def socket_path(worker: Worker, number: int) -> str:
    """Return the path of the socket on which worker `number` listens for the other workers of its server."""
    return f"{worker.directory}/{number}"
