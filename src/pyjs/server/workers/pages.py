"""The monitoring pages of one worker. The server requests them, and combines the pages of all workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.monitor.response import Response, text_response
from pyjs.monitor.router import Router
from pyjs.monitor.state import Monitored
from pyjs.server.failures import log_exception
from pyjs.server.system.process import SystemProcess
from pyjs.server.tls.context import certificate_ends

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from pyjs.config.options import Options
    from pyjs.monitor.own.declaredz import DeclaredReport
    from pyjs.server.driver import Driver


class Pages:
    """The monitoring pages of one worker; each iteration of the event loop runs one step of one page."""

    def __init__(
        self,
        driver: Driver,
        options: Options,
        loaded_ns: int,
        declared: Callable[[], Generator[Any, None, DeclaredReport]],
    ) -> None:
        node = driver.node
        now_ns = node.clock.now_ns()
        self._loop = driver.loop
        self._log = node.log
        self._monitored = Monitored(
            node,
            options,
            SystemProcess(now_ns),
            loaded_ns,
            ready=True,
            certificate_ends=certificate_ends,
            take_loop=driver.take_loop,
            declared=declared,
        )
        self._router = Router(self._monitored, node.clock, node.log)

    def reloaded(self, options: Options) -> None:
        """Apply the options of a reload."""
        self._monitored.options = options
        self._monitored.config_loaded_at_ns = self._monitored.node.clock.now_ns()

    def answer(self, target: str, done: Callable[[Response], None]) -> None:
        """Compose the page `target`, then call `done` with the response."""
        self._step(self._router.answer(target), done)

    def _step(self, steps: Generator[Any, None, Response], done: Callable[[Response], None]) -> None:
        try:
            wait = next(steps)
        except StopIteration as ended:
            done(ended.value)
        except Exception as error:
            log_exception(self._log, "Error answering a page", error)
            done(text_response(500, "Internal Server Error"))
        else:
            if wait is not None:
                wait.add_done_callback(lambda _: self._step(steps, done))
            else:
                self._loop.call_soon(self._step, steps, done)
