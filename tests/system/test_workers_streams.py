"""Streams in all workers of a server: any worker's clients, kills, lists, mirrors, pages, other numbers of workers."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.harness.cluster import NodeClient
from tests.system.test_workers import Workers, asked, requested

SPREAD = 'jetstream: {store_dir: "<<store>>", spread_workers: true}'


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    server = Workers(tmp_path_factory.mktemp("spread"), SPREAD, 3)
    yield server
    server.end()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Workers]]:
    started: list[Workers] = []

    def begin(config: str = SPREAD, count: int = 2) -> Workers:
        directory = tmp_path / str(len(started))
        directory.mkdir()
        started.append(Workers(directory, config, count))
        return started[-1]

    yield begin
    for each in started:
        each.end()


def api(client: NodeClient, words: str, body: object = None) -> dict[str, Any]:
    """Return the answer to an API request."""
    data = b"" if body is None else json.dumps(body).encode()
    answer: dict[str, Any] = json.loads(requested(client, b"$JS.API." + words.encode(), data))
    return answer


def add(client: NodeClient, name: str, **config: object) -> dict[str, Any]:
    """Create a stream; return its answer."""
    answer = api(client, f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"]} | config)
    assert "error" not in answer, answer
    return answer


def worker_of(server: Workers, name: str) -> int:
    """Return the worker that has a stream in its store."""
    for store in server.directory.rglob("jetstream"):
        if (store / "$G/streams" / name).is_dir():
            return 1
        for path in (store / ".workers").glob(f"*/$G/streams/{name}"):
            return int(path.parts[-4])
    raise AssertionError(f"no worker has {name}")


def pull(client: NodeClient, stream: str, count: int) -> list[bytes]:
    """Return the bodies of the first messages of a stream, by a new pull consumer."""
    config = {"durable_name": "d", "ack_policy": "explicit"}
    answer = api(client, f"CONSUMER.DURABLE.CREATE.{stream}.d", {"stream_name": stream, "config": config})
    assert "error" not in answer, answer
    body = b'{"batch":%d}' % count
    client.frames.clear()
    client.send(b"SUB in.d d\r\n")
    while True:
        client.send(
            b"PUB $JS.API.CONSUMER.MSG.NEXT.%b.d in.d %d\r\n%b\r\n" % (stream.encode(), len(body), body)
        )
        client.wait_for_messages(1)
        if b"503" not in client.frames[0][3]:
            break
        client.frames.clear()  # this worker does not know the consumer yet
    client.wait_for_messages(count)
    client.send(b"UNSUB d\r\n")
    return [frame[4] for frame in client.take()]


def published(client: NodeClient, subject: bytes, body: bytes) -> dict[str, Any]:
    """Publish until a stream answers; return the PubAck."""
    while b"503" in (frame := asked(client, subject, body))[3]:
        pass
    answer: dict[str, Any] = json.loads(frame[4])
    return answer


def test_a_stream_of_worker_2_is_published_through_1_pulled_from_3_and_survives_kill_9(
    start: Callable[..., Workers],
) -> None:
    server = start(count=3)
    one, two, three = server.clients()
    for name in "ABC":
        add(one, name)
    assert sorted(worker_of(server, name) for name in "ABC") == [1, 2, 3]
    name = next(name for name in "ABC" if worker_of(server, name) == 2)
    subject = b"%b.x" % name.encode()
    for number in range(10):
        answer = published(one, subject, b"%d" % number)
        assert (answer["stream"], answer["seq"]) == (name, number + 1)
    assert pull(three, name, 10) == [b"%d" % number for number in range(10)]
    assert api(two, f"STREAM.INFO.{name}")["state"]["messages"] == 10
    os.kill(server.worker(2)["pid"], signal.SIGKILL)
    server.wait_page("/varz", lambda page: page["pyjs_workers"][1]["restarts"] == 1)
    server.wait_page("/varz", lambda page: page["pyjs_workers"][1]["state"] == "ready")
    assert published(one, subject, b"more")["seq"] == 11
    assert api(three, f"STREAM.INFO.{name}")["state"]["messages"] == 11
    assert api(three, f"CONSUMER.INFO.{name}.d")["num_ack_pending"] == 10
