"""The flow control window of a push consumer, from request to confirmation."""

from __future__ import annotations

import pytest

from pyjs.jetstream.consumer.delivery.push import FlowControl

MIB = 1 << 20


@pytest.fixture
def flow() -> FlowControl:
    flow = FlowControl()
    flow.switch(True)
    return flow


def test_a_confirmation_doubles_the_window_up_to_32_mib(flow: FlowControl) -> None:
    windows = []
    for _ in range(6):
        flow.ask(b"r")
        assert flow.confirm(b"r")
        windows.append(flow.window // MIB)

    assert windows == [4, 8, 16, 32, 32, 32]


def test_the_answer_to_another_request_changes_nothing(flow: FlowControl) -> None:
    flow.ask(b"r")

    assert not flow.confirm(b"other")
    assert (flow.window, flow.reply) == (2 * MIB, b"r")


def test_a_confirmation_counts_once(flow: FlowControl) -> None:
    flow.ask(b"r")

    assert flow.confirm(b"r")
    assert not flow.confirm(b"r")
    assert flow.window == 4 * MIB


def test_a_change_that_leaves_it_on_keeps_the_window(flow: FlowControl) -> None:
    flow.ask(b"r")
    flow.confirm(b"r")

    flow.switch(True)

    assert flow.window == 4 * MIB


def test_without_it_no_answer_is_taken(flow: FlowControl) -> None:
    flow.ask(b"r")

    flow.switch(False)

    assert not flow.confirm(b"r")
    assert flow.window == 0
