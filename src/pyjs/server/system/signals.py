"""Signals of the command, and their names in log lines.

Source: nats.docs "Signals"; lines as nats-server 2.15.1.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping


# The names of signals in Go, for lines with "Trapped".
NAMES = {
    signal.SIGINT: "interrupt",
    signal.SIGTERM: "terminated",
    signal.SIGUSR1: "user defined signal 1",
    signal.SIGUSR2: "user defined signal 2",
    signal.SIGHUP: "hangup",
}


def install(
    loop: asyncio.AbstractEventLoop,
    actions: Mapping[signal.Signals, Callable[[], object]],
    say: Callable[[str], None],
) -> None:
    """Install a handler for each signal of `actions`; call this in the main thread.

    A handler writes a log line with `say`, and then calls the action of its signal.
    """

    def trapped(number: signal.Signals) -> None:
        say(f'Trapped "{NAMES[number]}" signal')
        actions[number]()

    for number in actions:
        loop.add_signal_handler(number, trapped, number)
