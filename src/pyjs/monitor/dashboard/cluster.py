"""The cluster as this server sees it: its routes, and the metadata group with its servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.monitor.routez import routes_page

if TYPE_CHECKING:
    from pyjs.monitor.arguments import Arguments
    from pyjs.monitor.dashboard.site import Site, Steps


def cluster(site: Site, arguments: Arguments) -> Steps:
    """Return the routes and, if JetStream is replicated, the metadata group; yield between steps."""
    now_ns, node = site.clock.now_ns(), site.monitored.node
    page = yield from routes_page(site.monitored, listed=False, detail=False, now_ns=now_ns)
    member = None if node.jetstream is None else node.jetstream.shared.member
    return {
        "name": node.server_name,
        "cluster": "" if node.cluster is None else node.cluster.options.name,
        "routes": page["routes"],
        "meta": None if member is None else member.reports.meta(),
        "at": now_ns,
    }
