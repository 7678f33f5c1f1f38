from pyjs.cluster.cluster import Cluster
from pyjs.cluster.route import Route
from pyjs.core.link import Link
from pyjs.core.sink import Turn

class RouteWriter:
    def __init__(self, route: Route, cluster: Cluster, link: Link, turn: Turn, pending_max: int) -> None: ...
