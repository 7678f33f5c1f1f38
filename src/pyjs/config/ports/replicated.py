"""The rules for JetStream in the configuration of a server in a cluster.

Streams with replicas need the consensus engine, which is a separate package. These rules, which `pyjs-server -t` also
checks, test only whether the engine is installed; only the start of the server shows whether it can be loaded.

Source: nats-server 2.15.1 refuses to start with the same causes, tests/unit/config/ports/test_replicated.py.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

from pyjs.base.gotext import quoted
from pyjs.config.errors import Place, Problem
from pyjs.config.options import Options

ENGINE = "pyjs_raft"  # the module; consensus/engine.py imports it
ENGINE_FIX = 'pip install "pyjs-server[cluster]", or make cluster in a checkout, or turn jetstream off'


def check_replicated(options: Options, at: Callable[[str], Place]) -> list[Problem]:
    """Return the problems of a configuration with JetStream in a cluster.

    A missing consensus engine is one of these problems.
    """
    problems: list[Problem] = []
    if not options.server_name:
        cause = "jetstream cluster requires `server_name` to be set"
        fix = "add server_name: n1, another one on each server (streams know their servers by it)"
        problems.append(Problem(at("cluster"), cause, fix))
    if not options.cluster.name:
        cause = "jetstream cluster requires `cluster.name` to be set"
        problems.append(Problem(at("cluster"), cause, "add name: EAST to the block, the same on each server"))
    prefix = options.jetstream.unique_tag
    if prefix and not any(tag.startswith(prefix) for tag in options.server_tags):
        cause = f"no tag of this server begins with the unique_tag {quoted(prefix)}: it would get no streams"
        problems.append(Problem(at("jetstream.unique_tag"), cause, f'add server_tags: ["{prefix}1"]'))
    if importlib.util.find_spec(ENGINE) is None:
        cause = (
            "JetStream in a cluster needs the consensus engine, and the package pyjs-raft is not installed"
        )
        problems.append(Problem(at("cluster"), cause, ENGINE_FIX))
    return problems


def expected_servers(options: Options, own_routes: int) -> int:
    """Return the number of servers in the cluster according to the routes, including this server.

    `own_routes` is the number of different route addresses that lead to this server itself.
    """
    return 1 + len(set(options.cluster.routes)) - own_routes
