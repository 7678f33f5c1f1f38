"""Signals to the command: end, reload, reopen the log, lame duck.

Source: nats.docs "Signals"; lines as nats-server 2.15.1.
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyjs.server.server import Server

# As Go names them in "Trapped" lines.
NAMES = {
    signal.SIGINT: "interrupt",
    signal.SIGTERM: "terminated",
    signal.SIGUSR1: "user defined signal 1",
    signal.SIGUSR2: "user defined signal 2",
    signal.SIGHUP: "hangup",
}


def install(loop: asyncio.AbstractEventLoop, server: Server) -> None:
    """Let `loop` act on signals for `server`; only possible in the main thread."""
    for number in NAMES:
        loop.add_signal_handler(number, _trapped, server, number)


def _trapped(server: Server, number: signal.Signals) -> None:
    server.log.info(f'Trapped "{NAMES[number]}" signal')
    if number == signal.SIGUSR1:
        server.reopen_log()
    elif number == signal.SIGHUP:
        server.reload()
    elif number == signal.SIGUSR2:
        server.start_lame_duck()
    elif number == signal.SIGINT or not server.lame_duck.active:  # SIGTERM does not cut a lame duck short
        server.request_stop()
