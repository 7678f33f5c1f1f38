"""A thread loads the API; requests that arrive earlier wait for it."""

from __future__ import annotations

import json
import sys

import pytest
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.jetstream.api.subscriptions import ROUTER, is_loaded

CREATE = b'{"name":"S","storage":"memory"}'


def unloaded(monkeypatch: pytest.MonkeyPatch) -> JetStreamFixture:
    """Return a node whose API is not loaded because its thread is busy."""
    js = JetStreamFixture()
    monkeypatch.setitem(sys.modules, ROUTER, sys.modules[__name__])
    monkeypatch.delitem(sys.modules, ROUTER)
    js.hold_jobs = True
    js.user.send(b"SUB a 1\r\n")
    return js


def kinds(js: JetStreamFixture) -> list[str]:
    """Return the types of the answers received since the last call."""
    return [json.loads(payload)["type"].rpartition(".")[2] for payload in js.user.payloads()]


def test_requests_wait_for_the_thread_that_loads_the_api_and_are_answered_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given requests that come before the API is loaded, while a client pings
    js = unloaded(monkeypatch)
    js.user.send(b"PUB $JS.API.STREAM.CREATE.S a %d\r\n%b\r\n" % (len(CREATE), CREATE))
    js.user.send(b"PUB $JS.API.STREAM.INFO.S a 0\r\n\r\nPING\r\n")
    # then no other client waits
    assert js.user.take() == b"PONG\r\n"
    assert not is_loaded()
    assert len(js.node.turn_state.jobs) == 1
    # and when it is loaded, they are answered
    js.hold_jobs = False
    js.turn()
    assert kinds(js) == ["stream_create_response", "stream_info_response"]


def test_a_request_that_comes_when_others_still_wait_is_answered_after_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given a request that waits, and a thread that has loaded the API a moment ago
    js = unloaded(monkeypatch)
    js.user.send(b"PUB $JS.API.STREAM.CREATE.S a %d\r\n%b\r\n" % (len(CREATE), CREATE))
    (loading,) = js.node.turn_state.jobs
    loading.run()
    assert is_loaded()
    # when
    js.user.send(b"PUB $JS.API.STREAM.INFO.S a 0\r\n\r\n")
    assert kinds(js) == []
    js.hold_jobs = False
    js.turn()
    # then
    assert kinds(js) == ["stream_create_response", "stream_info_response"]


def test_a_request_after_the_api_is_loaded_is_answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    js = unloaded(monkeypatch)
    js.hold_jobs = False
    js.user.send(b"PUB $JS.API.INFO a 0\r\n\r\n")
    assert kinds(js) == ["account_info_response"]
    js.hold_jobs = True
    js.user.send(b"PUB $JS.API.INFO a 0\r\n\r\n")
    assert kinds(js) == ["account_info_response"]


def test_the_api_is_loaded_after_the_start_without_any_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, ROUTER, sys.modules[__name__])
    monkeypatch.delitem(sys.modules, ROUTER)
    js = JetStreamFixture()
    js.turn()
    assert not is_loaded()
    js.advance(seconds=1)
    assert is_loaded()
