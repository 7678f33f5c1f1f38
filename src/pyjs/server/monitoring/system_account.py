"""The system account of a running server, which answers requests for statistics and for reloads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.system_account.events import SystemEvents
from pyjs.system_account.requests import SystemRequests

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from pyjs.config.options import Options, TlsOptions
    from pyjs.server.driver import Driver
    from pyjs.system_account.answers import Answers


class SystemAccount:
    """The service that answers requests in the system account, for example for statistics or for a reload."""

    def __init__(
        self,
        driver: Driver,
        options: Options,
        certificate_ends: Callable[[TlsOptions], str],
        reload: Callable[[], asyncio.Future[str]],
        request_counts: dict[str, int],
    ) -> None:
        """Subscribe to the requests, and set the listener for the events of the node.

        `reload` applies the configuration file again; the result of its future is the error message, or "" on
        success. `request_counts` has the number of requests to the monitoring port by path.
        """
        self._driver = driver
        self._options = options
        self._certificate_ends = certificate_ends
        self._reload = reload
        self._request_counts = request_counts
        self._started_ns = self._loaded_ns = driver.node.clock.now_ns()
        self._requests = SystemRequests(driver.node, self._make_answers, self._reload_after_turn)
        self._requests.subscribe()
        driver.node.events = SystemEvents(
            driver.node, lambda: self._requests.answers, self._requests.subscribe
        )

    def reloaded(self, options: Options) -> None:
        """Apply the options of a reload."""
        self._options = options
        self._loaded_ns = self._driver.node.clock.now_ns()
        self._requests.subscribe()
        if self._requests.in_use:
            monitored = self._requests.answers.monitored
            monitored.options, monitored.config_loaded_at_ns = options, self._loaded_ns

    def _make_answers(self) -> Answers:
        # Imported lazily: the views are a third of the server's modules.
        from pyjs.monitor.state import Monitored
        from pyjs.server.system.process import SystemProcess
        from pyjs.system_account.answers import Answers

        process = SystemProcess(self._started_ns)
        node, ends = self._driver.node, self._certificate_ends
        counts = self._request_counts
        return Answers(
            Monitored(node, self._options, process, self._loaded_ns, True, ends, request_counts=counts)
        )

    def _reload_after_turn(self, then: Callable[[str], None]) -> None:
        def reloaded(asked: asyncio.Future[str]) -> None:
            then(asked.result())
            self._driver.wake()

        self._driver.endings.add(lambda: self._reload().add_done_callback(reloaded))
