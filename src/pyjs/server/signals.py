"""Signals to the command, under the names that log lines give them.

Source: nats.docs "Signals"; lines as nats-server 2.15.1.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyjs.server.loop import EventLoop

# As Go names them in "Trapped" lines.
NAMES = {
    signal.SIGINT: "interrupt",
    signal.SIGTERM: "terminated",
    signal.SIGUSR1: "user defined signal 1",
    signal.SIGUSR2: "user defined signal 2",
    signal.SIGHUP: "hangup",
}


def install(
    loop: EventLoop, actions: Mapping[signal.Signals, Callable[[], None]], say: Callable[[str], None]
) -> None:
    """Let `loop` act on signals; only possible in the main thread. `say` writes the log line."""

    def trapped(number: signal.Signals) -> None:
        say(f'Trapped "{NAMES[number]}" signal')
        actions[number]()

    def noted(number: int, frame: object) -> None:  # runs between any two steps of the program
        loop.call_soon_threadsafe(trapped, signal.Signals(number))

    signal.set_wakeup_fd(loop.wake_write, warn_on_full_buffer=False)  # a loop that sleeps has to see it
    for number in actions:
        signal.signal(number, noted)
