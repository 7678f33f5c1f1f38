"""/whyz: streams and consumers that do not work, with the reasons."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.monitor.conftest import Site

from pyjs.config.options import AccountOptions, Options, UserOptions
from pyjs.monitor.own.disconnects import MEANINGS


@pytest.fixture
def site(tmp_path: Path) -> Site:
    options = Options()
    options.jetstream.enabled = True
    options.jetstream.store_dir = str(tmp_path)
    made = Site(options)
    made.node.start_jetstream()
    return made


def add(site: Site, name: str, **config: Any) -> None:
    body = {"name": name, "subjects": [name.lower()], "storage": "memory", **config}
    answer = site.client().request(f"$JS.API.STREAM.CREATE.{name}".encode(), json.dumps(body).encode())
    assert b'"error"' not in answer.payload, answer.payload


def add_sealed(site: Site, name: str) -> None:
    """Create a stream that refuses publishes."""
    add(site, name)
    body = json.dumps(
        {"name": name, "subjects": [name.lower()], "storage": "memory", "sealed": True}
    ).encode()
    assert b'"error"' not in site.client().request(f"$JS.API.STREAM.UPDATE.{name}".encode(), body).payload


def add_consumer(site: Site, stream: str, name: str, **config: Any) -> None:
    body = {"stream_name": stream, "config": {"durable_name": name, "ack_policy": "explicit", **config}}
    subject = f"$JS.API.CONSUMER.CREATE.{stream}.{name}".encode()
    answer = site.client().request(subject, json.dumps(body).encode())
    assert b'"error"' not in answer.payload, answer.payload


def test_a_server_on_which_everything_works_lists_nothing(site: Site) -> None:
    add(site, "A")

    answer = site.json("/whyz")
    assert (answer["total"], answer["streams"], answer["clients"]) == (0, [], [])
    assert [row["stream"] for row in site.json("/whyz?all=1")["streams"]] == ["A"]


def test_streams_with_a_stuck_consumer_or_refused_publishes_are_listed(site: Site) -> None:
    add(site, "A")
    add(site, "B")
    add_sealed(site, "C")
    add_consumer(site, "B", "STUCK")
    site.client().request(b"b", b"x")

    found = site.json("/whyz")["streams"]
    assert [(row["stream"], row["accepts"]) for row in found] == [("B", True), ("C", False)]
    assert [each["kind"] for each in found[0]["silent_consumers"]] == ["no_waiting_pull"]
    assert [each["kind"] for each in found[1]["reasons"]] == ["sealed"]


def test_a_page_of_streams_has_its_place(site: Site) -> None:
    for number in range(5):
        add_sealed(site, f"S{number}")

    answer = site.json("/whyz?offset=1&limit=2")
    assert (answer["total"], [row["stream"] for row in answer["streams"]]) == (5, ["S1", "S2"])


def test_one_stream_and_one_consumer_are_reported(site: Site) -> None:
    add(site, "A")
    add_consumer(site, "A", "C")

    assert site.json("/whyz?stream=A")["accepts"] is True
    assert site.json("/whyz?stream=A&consumer=C")["reasons"][0]["kind"] == "stream_empty"


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("stream=X", 'there is no stream "X" on this server'),
        ("stream=A&consumer=X", 'stream "A" has no consumer "X"'),
        ("consumer=X", "consumer without stream: add stream=<name>"),
        ("acc=X", 'there is no account "X" on this server'),
        ("acc=$SYS&stream=A", 'account "$SYS" has no JetStream on this server'),
    ],
)
def test_unknown_names_are_refused(site: Site, query: str, text: str) -> None:
    add(site, "A")

    assert site.refused(f"/whyz?{query}") == text


def test_a_stream_whose_files_could_not_be_opened_says_what_to_do(tmp_path: Path) -> None:
    options = Options()
    options.jetstream.enabled = True
    options.jetstream.store_dir = str(tmp_path)
    stream = tmp_path / "$G" / "streams" / "A"
    stream.mkdir(parents=True)
    (stream / "meta.a").write_bytes(b"?")
    site = Site(options)
    site.node.start_jetstream()

    (row,) = site.json("/whyz")["streams"]
    assert (row["stream"], row["accepts"], row["reasons"][0]["kind"]) == ("A", False, "unrecovered")
    assert "pyjs-server fsck" in row["reasons"][0]["text"]
    site.node.stop()


def test_clients_that_the_server_disconnected_are_listed_newest_first(site: Site) -> None:
    site.client().send(b"nonsense\r\n")
    site.client().send(b"PUB a 99999999\r\n")
    site.client().session.close("Client Closed")

    found = site.json("/whyz")["clients"]
    assert [each["reason"] for each in found] == ["Maximum Message Payload Exceeded", "Protocol Violation"]
    assert found[0]["text"] == MEANINGS["Maximum Message Payload Exceeded"]
    assert len(site.json("/whyz?all=1")["clients"]) > 2


def test_an_account_without_jetstream_has_clients_but_no_streams(tmp_path: Path) -> None:
    options = Options()
    for name in ("B", "C"):
        user = UserOptions(user=name.lower(), password="pw", account=name)
        options.accounts[name] = AccountOptions(name=name, users=(user,))
    options.jetstream.enabled = True
    options.jetstream.store_dir = str(tmp_path)
    site = Site(options)
    site.node.start_jetstream()
    for name in ("b", "c"):
        site.client(user=name).send(b"nonsense\r\n")

    answer = site.json("/whyz?acc=C")
    assert (answer["total"], answer["streams"]) == (0, [])
    assert [each["account"] for each in answer["clients"]] == ["C"]


def test_without_jetstream_only_clients_are_listed() -> None:
    site = Site(Options())

    assert site.json("/whyz")["streams"] == []
    assert site.refused("/whyz?stream=A").startswith("JetStream is not enabled on this server")
