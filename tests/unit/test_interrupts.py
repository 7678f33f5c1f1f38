"""A run that a shell has started in the background reacts to SIGINT, and so do the programs that it starts."""

import signal

from tests.conftest import hear_interrupts


def test_a_run_that_ignores_interrupts_reacts_to_them_again() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        hear_interrupts()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_handler_of_interrupts_stays() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        hear_interrupts()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, before)
