"""The monitoring pages of a server with workers: sums, merged lists, metrics and reasons."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.harness.cluster import NodeClient
from tests.system.test_workers import JETSTREAM, Workers, add_stream, requested

from pyjs.models.monitoring import Accstatz, Connz, Jsz, Subsz, Varz


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Workers]:
    """Return a server with three workers."""
    started = Workers(tmp_path, JETSTREAM, 3)
    yield started
    started.end()


def test_pages_add_up_all_workers(server: Workers) -> None:
    clients = server.clients()
    before = server.wait_page("/varz", lambda page: page["connections"] == 3)  # others were tried
    for client in clients:
        client.send(b"SUB a.b 1\r\nSUB a.c 2\r\nPUB nothing 5\r\nhello\r\n")
        client.fence()
    after = server.page("/varz")
    assert after["subscriptions"] - before["subscriptions"] == 6
    assert after["in_msgs"] - before["in_msgs"] == 3
    assert after["in_bytes"] - before["in_bytes"] == 15
    assert after["server_name"] == "W"
    assert [each["connections"] for each in after["pyjs_workers"]] == [1, 1, 1]
    connections = server.page("/connz?sort=subs&limit=2")
    assert connections["num_connections"] == 2
    assert connections["total"] == 3
    assert [each["subscriptions"] for each in connections["connections"]] == [2, 2]
    listed = server.page("/connz")["connections"]
    assert [each["cid"] for each in listed] == sorted(each["cid"] for each in listed)
    assert server.page(f"/connz?cid={listed[2]['cid']}")["connections"][0]["cid"] == listed[2]["cid"]
    subscriptions = server.page("/subsz?subs=1&test=a.b&acc=$G")
    assert subscriptions["total"] == 3
    assert {each["cid"] for each in subscriptions["subscriptions_list"]} == {each["cid"] for each in listed}
    assert server.page("/accstatz")["account_statz"][0]["conns"] == 3
    assert server.page("/accountz?acc=$G")["account_detail"]["client_connections"] == 3
    assert server.page("/routez")["num_routes"] == 0
    assert server.page("/healthz") == {"status": "ok"}
    add_stream(clients[1])
    assert server.page("/jsz?streams=1")["account_details"][0]["stream_detail"][0]["name"] == "S"
    check_metrics(server, server.page("/varz"))
    check_models(server)
    check_reasons(server, clients)
    check_front(server)


def check_front(server: Workers) -> None:
    """The front page links to no page that is not served."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.process.http_port}/") as front:
        links = front.read()
    assert b'href="/varz"' in links
    assert b'href="/metrics"' in links
    assert b'href="/dashboard"' not in links
    with pytest.raises(urllib.error.HTTPError) as refused:
        server.page("/dashboard")
    assert (refused.value.code, refused.value.read()) == (404, b"/dashboard is not served with workers")


def check_metrics(server: Workers, varz: dict[str, Any]) -> None:
    """Compare the metrics of three workers, each with a client, with the pages."""
    samples = server.samples("/metrics")
    names = [key for key in samples if key[0] in ("gnatsd_varz_in_msgs", "gnatsd_connz_num_connections")]
    assert names == [
        (name, (("server_id", "W"),)) for name in ("gnatsd_varz_in_msgs", "gnatsd_connz_num_connections")
    ]
    assert [samples[key] for key in names] == [varz["in_msgs"], 3]
    found = {name: dict(labels) for name, labels in samples}
    assert found["jetstream_stream_total_messages"]["stream_name"] == "S"
    assert found["jetstream_server_total_streams"]["server_id"] == "W"
    turns = [dict(labels)["worker"] for name, labels in samples if name == "pyjs_loop_turns_total"]
    assert turns == ["1", "2", "3"]
    assert all(value > 0 for (name, _), value in samples.items() if name == "pyjs_loop_turns_total")
    ready = {
        dict(labels)["worker"]: value
        for (name, labels), value in samples.items()
        if name == "pyjs_worker_ready"
    }
    assert ready == {"1": 1, "2": 1, "3": 1}
    assert (
        sum(name == "gnatsd_connz_in_msgs_total" for name, _ in server.samples("/metrics?connz_detailed=1"))
        == 4
    )
    assert samples[("gnatsd_accstatz_current_connections", (*account_labels("$G"), ("server_id", "W")))] == 3
    with pytest.raises(urllib.error.HTTPError) as refused:
        server.page("/metrics?prefix=-")
    assert (refused.value.code, refused.value.read()[:7]) == (400, b"prefix:")


def account_labels(name: str) -> tuple[tuple[str, str], ...]:
    return ("account", name), ("account_id", name), ("account_name", name)


def check_reasons(server: Workers, clients: list[NodeClient]) -> None:
    """Compare the reasons on the page with those that a client of any worker gets."""
    body = {"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "explicit"}}
    requested(clients[0], b"$JS.API.CONSUMER.CREATE.S.C", json.dumps(body).encode())
    page = server.page("/whyz?stream=S&consumer=C")
    assert (page["delivers"], page["reasons"][0]["kind"]) == (False, "stream_empty")
    for client in clients:
        report = json.loads(requested(client, b"$JS.API.PYJS.WHY.S.C", b""))
        assert [each["kind"] for each in report["reasons"]] == [each["kind"] for each in page["reasons"]]
    clients[1].send(b"NONSENSE\r\n")
    clients[2].send(b"NONSENSE\r\n")
    found = server.wait_page("/whyz", lambda page: len(page["clients"]) == 2)
    assert [each["reason"] for each in found["clients"]] == ["Protocol Violation"] * 2
    assert found["clients"][0]["stop"] > found["clients"][1]["stop"]
    assert server.page("/whyz?all=1")["total"] == 1
    for query, text in (
        ("stream=NONE", b'there is no stream "NONE" on this server'),
        ("stream=S&consumer=D", b'stream "S" has no consumer "D"'),
        ("offset=x", b"Error decoding"),
    ):
        with pytest.raises(urllib.error.HTTPError) as refused:
            server.page(f"/whyz?{query}")
        assert refused.value.read().startswith(text)


def check_models(server: Workers) -> None:
    """Parse each page with its model, which knows all fields."""
    pages = (("/varz", Varz), ("/connz", Connz), ("/subsz", Subsz), ("/accstatz", Accstatz), ("/jsz", Jsz))
    parsed = {path: model.model_validate(server.page(path), extra="forbid") for path, model in pages}
    varz = parsed["/varz"]
    assert isinstance(varz, Varz)
    assert [(each.number, each.state) for each in varz.pyjs_workers] == [
        (number, "ready") for number in (1, 2, 3)
    ]
