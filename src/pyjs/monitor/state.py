"""The input of the monitoring views: the node, its options, and statistics of the process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from pyjs.config.options import Options, TlsOptions
    from pyjs.core.account import Account
    from pyjs.core.chore import Step
    from pyjs.monitor.own.declaredz import DeclaredReport
    from pyjs.node import Node


def no_certificate(tls: TlsOptions) -> str:
    """Return "": a server without certificates has no expiry time to show."""
    return ""


def no_report() -> Generator[Any, None, DeclaredReport]:
    """Return the steps of a report about a server that declares nothing."""
    from pyjs.monitor.own.declaredz import nothing_declared  # an idle server does not need the module

    return nothing_declared()


def no_asset(name: str) -> bytes | None:
    """Return None: there is no file for the dashboard."""
    return None


def no_turns(steps: Iterator[Step]) -> Generator[Any, None, None]:
    """Run none of the steps; this is for answers that change nothing, and so do not need the turns of the node."""
    yield from ()


class LoopStats(NamedTuple):
    """Statistics of the event loop's turns since the start."""

    turns: int = 0
    busy_ns: int = 0  # total time in turns
    overruns: int = 0  # turns of more than 20 ms
    longest_ns: int = 0  # the longest turn since the statistics were last read


class ProcessStats:
    """Statistics of the process. The server overrides the methods, which return 0 here."""

    cores = 1  # processors that the process may use
    command: tuple[str, ...] = ()

    def memory_size(self) -> int:
        """Return the resident memory in bytes."""
        return 0

    def cpu_percent(self, now_ns: int) -> float:
        """Return the recent CPU usage, as a percentage of one core."""
        return 0.0


@dataclass(eq=False, repr=False, slots=True)
class Monitored:
    """One server, as the monitoring views see it."""

    node: Node
    options: Options  # a reload replaces them
    process: ProcessStats
    config_loaded_at_ns: int
    ready: bool = False  # whether clients are accepted
    # returns the expiry time of a port's certificate; "": it has none
    certificate_ends: Callable[[TlsOptions], str] = no_certificate
    asset: Callable[[str], bytes | None] = (
        no_asset  # returns a file of the dashboard by name; None: no such file
    )
    take_loop: Callable[[], LoopStats] = LoopStats
    # returns, in steps, the declared assets that differ; a step may yield a future to wait for
    declared: Callable[[], Generator[Any, None, DeclaredReport]] = no_report
    # runs steps in the turns of the node, as a chore; a step may yield a future to wait for
    in_turns: Callable[[Iterator[Step]], Generator[Any, None, None]] = no_turns
    request_counts: dict[str, int] = field(default_factory=dict)  # requests by path; http_req_stats in /varz

    @property
    def shown_name(self) -> str:
        """The name of the server, without the number of the worker."""
        worker, name = self.options.worker, self.node.server_name
        return name if worker is None else name.removesuffix(f"-{worker.number}")

    def num_subscriptions(self, account: Account) -> int:
        """Return the number of subscriptions in an account, except those reported by other workers."""
        cluster = self.node.cluster
        others = cluster.num_remote(account) if cluster is not None and self.options.worker is not None else 0
        return len(account.subs) - others

    def count_request(self, path: str) -> None:
        """Count one request for `path`."""
        self.request_counts[path] = self.request_counts.get(path, 0) + 1
