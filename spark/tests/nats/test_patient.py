"""Requests of a plan while the connection is lost or the server is down."""

from __future__ import annotations

import time

import pytest
from spark.tests.conftest import JETSTREAM, Filler, Start
from spark.tests.support.proxy import CuttingProxy
from tests.conformance.harness.process import ServerProcess

from pyjs_spark.errors import (
    AccessDenied,
    ApiError,
    ConnectionLost,
    NoResponders,
    ServerUnreachable,
    SparkError,
    is_passing,
)
from pyjs_spark.nats.client import connected
from pyjs_spark.nats.retry import PatientApi
from pyjs_spark.nats.settings import ConnectSettings


def settings(port: int) -> ConnectSettings:
    return ConnectSettings(servers=(f"nats://127.0.0.1:{port}",), timeout_s=2.0)


def test_a_connection_that_is_cut_in_the_middle_of_an_answer_is_made_again(
    server: ServerProcess, filler: Filler
) -> None:
    filler.create()
    proxy = CuttingProxy(server.port, cuts=[4000, 4321, 5432])
    api = PatientApi(settings(proxy.port), patience_s=10.0)
    api.api("INFO")

    answers = [api.api(f"STREAM.INFO.{filler.name}")["config"]["name"] for _ in range(20)]

    assert answers == [filler.name] * 20
    assert proxy.connections == 4
    connected(settings(proxy.port)).close()
    proxy.close()


def test_a_server_that_never_answered_is_told_at_once() -> None:
    began_s = time.monotonic()

    with pytest.raises(ServerUnreachable):
        PatientApi(settings(1), patience_s=60.0).api("INFO")

    assert time.monotonic() - began_s < 30.0


def test_a_server_that_stays_away_is_told_when_patience_ends(start_peer: Start) -> None:
    process = start_peer(JETSTREAM)
    api = PatientApi(settings(process.port), patience_s=0.2)
    api.api("INFO")
    process.kill()

    with pytest.raises((ServerUnreachable, ConnectionLost)):
        api.api("INFO")


def test_an_error_of_the_api_is_no_reason_to_wait(server: ServerProcess) -> None:
    api = PatientApi(settings(server.port), patience_s=60.0)
    api.api("INFO")

    with pytest.raises(ApiError, match="stream not found"):
        api.api("STREAM.INFO.NONE_SUCH")


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (ApiError(503, 10008, "JetStream system temporarily unavailable"), True),
        (ApiError(404, 10059, "stream not found"), False),
        (NoResponders("x"), True),
        (ConnectionLost("x"), True),
        (AccessDenied("x"), False),
    ],
)
def test_some_errors_pass(error: SparkError, passes: bool) -> None:
    assert is_passing(error) is passes
