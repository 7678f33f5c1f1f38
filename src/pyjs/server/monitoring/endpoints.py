"""The monitoring endpoints of a server: their state, port and connections.

Imported only if there is a monitoring port, since the views are a third of the server's modules.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pyjs.monitor.router import Router
from pyjs.monitor.state import Monitored
from pyjs.server.monitoring.files import asset
from pyjs.server.monitoring.pages import Pages
from pyjs.server.monitoring.turns import in_turns
from pyjs.server.system.process import SystemProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from pyjs.config.options import Options, TlsOptions
    from pyjs.monitor.own.declaredz import DeclaredReport
    from pyjs.server.driver import Driver
    from pyjs.server.tls.port import TlsPort


class Monitoring:
    """The open monitoring port of one server."""

    def __init__(
        self,
        driver: Driver,
        options: Options,
        tls: TlsPort,
        certificate_ends: Callable[[TlsOptions], str],
        declared: Callable[[], Generator[Any, None, DeclaredReport]],
    ) -> None:
        """Listen on the port of `options`; new connections use the current settings of `tls`.

        `declared` returns in steps a report on how the streams and consumers differ from the declared ones.

        Raises:
            StartFailed: the server cannot listen on the port.
        """
        node = driver.node
        now_ns = node.clock.now_ns()
        self._clock = node.clock
        self._monitored = Monitored(
            node,
            options,
            SystemProcess(now_ns),
            now_ns,
            certificate_ends=certificate_ends,
            asset=asset,
            take_loop=driver.take_loop,
            declared=declared,
            in_turns=partial(in_turns, driver),
        )
        router = Router(self._monitored, node.clock, node.log)
        self.pages = Pages(driver.loop, options, tls, router.answer, node.log)

    @property
    def request_counts(self) -> dict[str, int]:
        """The number of requests by path; the dict is updated with each request."""
        return self._monitored.request_counts

    async def start(self) -> None:
        """Start answering requests."""
        await self.pages.start()

    def ready(self) -> None:
        """Make /healthz report the server as ready from now on."""
        self._monitored.ready = True

    def reloaded(self, options: Options) -> None:
        """Apply the options of a reload."""
        self._monitored.options = options
        self._monitored.config_loaded_at_ns = self._clock.now_ns()
