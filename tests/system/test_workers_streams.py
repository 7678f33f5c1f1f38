"""Streams in all workers: clients of any worker, kills, lists, sources, pages, and changed numbers of workers."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from tests.conformance.harness.cluster import NodeClient
from tests.conformance.harness.process import our_command
from tests.system.test_workers import (
    JETSTREAM,
    WAIT_S,
    Workers,
    asked,
    refusal,
    requested,
    wait_gone,
    wait_until,
)

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
    """Return the number of the worker whose store has the stream."""
    for store in server.directory.rglob("jetstream"):
        if (store / "$G/streams" / name).is_dir():
            return 1
        for path in (store / ".workers").glob(f"*/$G/streams/{name}"):
            return int(path.parts[-4])
    raise AssertionError(f"no worker has {name}")


def back(server: Workers, number: int) -> None:
    """Wait until a worker that was killed is ready again."""
    wanted = {"state": "ready", "restarts": 1}
    server.wait_page(
        "/varz", lambda page: {name: page["pyjs_workers"][number - 1][name] for name in wanted} == wanted
    )


def pull(client: NodeClient, stream: str, count: int) -> list[bytes]:
    """Return the payloads of the first messages of a stream, read with a new pull consumer."""
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
        client.frames.clear()  # this worker may not know the consumer yet
    client.wait_for_messages(count)
    client.send(b"UNSUB d\r\n")
    return [frame[4] for frame in client.take()]


def published(client: NodeClient, subject: bytes, body: bytes) -> dict[str, Any]:
    """Publish, repeatedly if necessary, until a stream acknowledges; return the PubAck."""
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
    back(server, 2)
    assert published(one, subject, b"more")["seq"] == 11
    assert api(three, f"STREAM.INFO.{name}")["state"]["messages"] == 11
    assert api(three, f"CONSUMER.INFO.{name}.d")["num_ack_pending"] == 10


def clients(server: Workers) -> list[NodeClient]:
    """Return a client of each worker."""
    return [server.client(number) for number in range(1, server.count + 1)]


@pytest.fixture(scope="module")
def trio(shared: Workers) -> tuple[NodeClient, ...]:
    """Clients of the three workers of a server with the streams A, B and C, one on each worker."""
    made = clients(shared)
    for name in "ABC":
        add(made[1], name)
    assert sorted(worker_of(shared, name) for name in "ABC") == [1, 2, 3]
    return tuple(made)


def test_every_worker_gives_the_same_answers_about_all_streams(trio: tuple[NodeClient, ...]) -> None:
    for name in "ABC":
        published(trio[0], b"%b.x" % name.encode(), b"message")
    answers = [
        (
            api(client, "STREAM.NAMES")["streams"],
            [each["config"]["name"] for each in api(client, "STREAM.LIST")["streams"]],
            [api(client, f"STREAM.INFO.{name}")["state"]["messages"] for name in "ABC"],
            api(client, "STREAM.NAMES", {"subject": "B.x"})["streams"],
            api(client, "STREAM.INFO.none")["error"]["err_code"],
        )
        for client in trio
    ]
    assert answers == [(["A", "B", "C"], ["A", "B", "C"], [1, 1, 1], ["B"], 10059)] * 3
    info = api(trio[2], "INFO")
    assert info["streams"] == 3
    assert info["storage"] == sum(api(trio[0], f"STREAM.INFO.{name}")["state"]["bytes"] for name in "ABC")


def test_a_stream_is_checked_against_those_of_other_workers(trio: tuple[NodeClient, ...]) -> None:
    def refused(name: str, **config: object) -> int:
        answer = api(trio[1], f"STREAM.CREATE.{name}", {"name": name} | config)
        code: int = answer["error"]["err_code"]
        return code

    for name in "ABC":
        assert refused("N", subjects=[f"{name}.new"]) == 10065
        assert refused(name, subjects=["other"]) == 10058
        assert add(trio[1], name)["config"]["name"] == name
    assert refused("N", num_replicas=3) == 10074
    for name in "ABC":
        answer = api(trio[2], f"STREAM.UPDATE.{name}", {"name": name, "subjects": ["A.x", "B.x", "C.x"]})
        assert answer["error"]["err_code"] == 10065


def test_many_streams_are_created_and_deleted_at_once(shared: Workers, trio: tuple[NodeClient, ...]) -> None:
    names = [f"M{number}" for number in range(30)]
    for words, code in (("CREATE", None), ("INFO", None), ("DELETE", None), ("INFO", 10059)):
        for number, client in enumerate(trio):
            client.take()
            client.send(b"SUB many.%d.> many\r\n" % number)
            for name in names[number::3]:
                body = json.dumps({"name": name, "subjects": [name]}).encode() if words == "CREATE" else b""
                subject = f"$JS.API.STREAM.{words}.{name} many.{number}.{name} {len(body)}\r\n".encode()
                client.send(b"PUB " + subject + body + b"\r\n")
        for number, client in enumerate(trio):
            client.wait_for_messages(10)
            client.fence()
            answers = [frame for frame in client.take() if frame[0].startswith(b"many.")]
            wanted = sorted(f"many.{number}.{name}".encode() for name in names[number::3])
            assert sorted(frame[0] for frame in answers) == wanted
            errors = {json.loads(frame[4]).get("error", {}).get("err_code") for frame in answers}
            assert errors == {code}, words
            client.send(b"UNSUB many\r\n")
        if words == "CREATE":
            places = [worker_of(shared, name) for name in names]
            assert [places.count(number) for number in (1, 2, 3)] == [10, 10, 10]
    assert api(trio[0], "STREAM.NAMES")["streams"] == ["A", "B", "C"]


def test_every_request_has_one_answer_while_its_stream_comes_and_goes(
    shared: Workers, trio: tuple[NodeClient, ...]
) -> None:
    choices = random.Random(7)
    wanted: list[list[bytes]] = [[], [], []]
    for number, client in enumerate(trio):
        client.take()
        client.send(b"SUB one.%d.> one\r\n" % number)
        client.fence()
    for at in range(300):
        number, name = choices.randrange(3), f"X{choices.randrange(4)}"
        words = choices.choice(("CREATE", "CREATE", "DELETE", "INFO", "PURGE", "UPDATE"))
        body = (
            json.dumps({"name": name, "subjects": [name]}).encode() if words in ("CREATE", "UPDATE") else b""
        )
        reply = f"one.{number}.{at}".encode()
        wanted[number].append(reply)
        subject = b"$JS.API.STREAM.%b.%b" % (words.encode(), name.encode())
        trio[number].send(b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(body), body))
    answers: list[bytes] = []
    for number, client in enumerate(trio):
        client.wait_for_messages(len(wanted[number]))
    api(trio[0], "STREAM.NAMES")
    for client in trio:
        client.fence()
        frames = [frame for frame in client.take() if frame[0].startswith(b"one.")]
        answers += [frame[0] for frame in frames]
        assert not [frame for frame in frames if b"503" in frame[3]]
        client.send(b"UNSUB one\r\n")
    assert sorted(answers) == sorted(reply for replies in wanted for reply in replies)
    for name in api(trio[0], "STREAM.NAMES")["streams"]:
        if name.startswith("X"):
            assert api(trio[1], f"STREAM.DELETE.{name}")["success"]


def test_equal_requests_with_one_reply_subject_have_an_answer_each(trio: tuple[NodeClient, ...]) -> None:
    for round_ in range(3):
        add(trio[round_], "EQUAL")
        for number, client in enumerate(trio):
            client.take()
            client.send(b"SUB equal.%d equal\r\n" % number)
            client.send(b"PUB $JS.API.STREAM.INFO.EQUAL equal.%d 0\r\n\r\n" % number * 7)
        for client in trio:
            client.wait_for_messages(7)
        assert api(trio[2 - round_], "STREAM.DELETE.EQUAL")["success"]
        api(trio[0], "STREAM.NAMES")
        for client in trio:
            client.fence()
            answers = [json.loads(frame[4]) for frame in client.take() if frame[0].startswith(b"equal.")]
            assert [answer["config"]["name"] for answer in answers] == ["EQUAL"] * 7
            client.send(b"UNSUB equal\r\n")


def test_a_stream_has_sources_in_other_workers(shared: Workers, trio: tuple[NodeClient, ...]) -> None:
    for name in "ABC":
        published(trio[0], b"%b.x" % name.encode(), b"source")
    total = sum(api(trio[0], f"STREAM.INFO.{name}")["state"]["messages"] for name in "ABC")
    add(trio[0], "SUM", subjects=[], sources=[{"name": name} for name in "ABC"])

    def wait_for(count: int) -> None:
        while api(trio[1], "STREAM.INFO.SUM")["state"]["messages"] < count:
            pass

    wait_for(total)
    for name in "ABC":
        published(trio[2], b"%b.y" % name.encode(), b"later")
    wait_for(total + 3)
    api(trio[1], "STREAM.DELETE.B")
    add(trio[1], "B")
    assert published(trio[1], b"B.again", b"of another stream")["seq"] == 1
    wait_for(total + 4)
    assert api(trio[2], "STREAM.INFO.SUM")["state"]["messages"] == total + 4
    api(trio[2], "STREAM.DELETE.SUM")


def test_key_value_and_object_stores_are_used_from_every_worker(shared: Workers) -> None:
    async def client(number: int) -> Client:
        while True:
            made = await nats.connect(f"nats://127.0.0.1:{shared.process.port}")
            if made._server_info["server_name"] == f"W-{number}":
                return made
            await made.close()

    async def used() -> None:
        one, three = await client(1), await client(3)
        for bucket in ("K1", "K2"):
            made = await three.jetstream().create_key_value(bucket=bucket, history=3)
            watched = await (await one.jetstream().key_value(bucket)).watchall()
            assert await watched.updates(5) is None
            assert await made.put("key", b"1") == 1
            assert await made.update("key", b"2", 1) == 2
            assert [(await watched.updates(5)).value for _ in range(2)] == [b"1", b"2"]
            assert (await (await one.jetstream().key_value(bucket)).get("key")).value == b"2"
        for bucket in ("O1", "O2"):
            await (await three.jetstream().create_object_store(bucket)).put("object", bytes(300_000))
            found = await (await one.jetstream().object_store(bucket)).get("object")
            assert found.data == bytes(300_000)
        for name in ("KV_K1", "KV_K2", "OBJ_O1", "OBJ_O2"):
            await one.jetstream().delete_stream(name)
        for each in (one, three):
            await each.close()

    asyncio.run(used())


def test_pages_add_up_the_streams_of_all_workers(shared: Workers, trio: tuple[NodeClient, ...]) -> None:
    page = shared.page("/jsz?streams=1")
    assert page["streams"] == 3
    assert sorted(each["name"] for each in page["account_details"][0]["stream_detail"]) == ["A", "B", "C"]
    total = sum(api(trio[0], f"STREAM.INFO.{name}")["state"]["bytes"] for name in "ABC")
    assert page["storage"] == page["account_details"][0]["storage"] == total
    assert shared.page("/varz")["jetstream"]["stats"]["storage"] == total
    for name in "ABC":
        assert shared.page(f"/healthz?account=$G&stream={name}") == {"status": "ok"}
    with pytest.raises(urllib.error.HTTPError) as error:
        shared.page("/healthz?account=$G&stream=none")
    assert error.value.code == 404
    samples = shared.samples("/metrics")
    found = {(name, dict(labels).get("stream_name")): value for (name, labels), value in samples.items()}
    assert found[("jetstream_server_total_streams", None)] == 3
    assert found[("jetstream_account_storage_used", None)] == total
    leaders = {
        dict(labels)["stream_name"]: dict(labels)["stream_leader"]
        for name, labels in samples
        if name == "jetstream_stream_total_bytes"
    }
    assert leaders == {name: f"W-{worker_of(shared, name)}" for name in "ABC"}


def test_reasons_are_told_by_the_worker_of_the_stream(shared: Workers, trio: tuple[NodeClient, ...]) -> None:
    for name in "ABC":
        for client in trio:  # consumers that other tests have left may end at any time
            page = shared.page(f"/whyz?stream={name}")
            assert page["stream"] == name
            assert api(client, f"PYJS.WHY.{name}")["num_consumers"] == page["num_consumers"]
    assert [each["stream"] for each in shared.page("/whyz?all=1&offset=1&limit=1")["streams"]] == ["B"]
    with pytest.raises(urllib.error.HTTPError) as error:
        shared.page("/whyz?stream=A&consumer=none")
    assert error.value.read() == b'stream "A" has no consumer "none"'
    for client in trio:
        assert api(client, "PYJS.WHY.none")["error"]["err_code"] == 10059


def test_others_go_on_while_a_worker_is_away(start: Callable[..., Workers]) -> None:
    server = start(count=3)
    one, _, three = clients(server)
    for name in "ABC":
        add(one, name)
    away = next(name for name in "ABC" if worker_of(server, name) == 2)
    there = next(name for name in "ABC" if worker_of(server, name) == 3)
    pid = server.worker(2)["pid"]
    server.process.signal("STOP")  # then it starts no other process
    os.kill(pid, signal.SIGKILL)
    while "missing" not in (listed := api(three, "STREAM.LIST")):
        pass
    assert listed["missing"] == [away]
    assert [each["config"]["name"] for each in listed["streams"]] == sorted({*"ABC"} - {away})
    assert b"503" in asked(three, b"$JS.API.STREAM.INFO.%b" % away.encode())[3]
    for words in ("UPDATE", "DELETE", "CREATE"):
        body = json.dumps({"name": away, "subjects": ["other"]}).encode() if words != "DELETE" else b""
        assert b"503" in asked(one, f"$JS.API.STREAM.{words}.{away}".encode(), body)[3]
    published(one, b"%b.x" % there.encode(), b"goes on")
    assert api(three, "STREAM.NAMES")["streams"] == ["A", "B", "C"]
    server.process.signal("CONT")
    back(server, 2)
    assert published(three, b"%b.x" % away.encode(), b"back")["seq"] == 1
    assert api(one, f"STREAM.INFO.{away}")["state"]["messages"] == 1


def until_refused(client: NodeClient, subject: bytes) -> None:
    """Ask until the answer is status 503: what reaches a worker in the moment of its death has no answer."""
    deadline = time.monotonic() + WAIT_S
    client.send(b"SUB refused refused\r\n")
    while not any(frame[0] == b"refused" and b"503" in frame[3] for frame in client.take()):
        assert time.monotonic() < deadline, subject
        client.send(b"PUB %b refused 0\r\n\r\n" % subject)
        client.fence()
    client.send(b"UNSUB refused\r\n")


def test_streams_of_other_workers_survive_the_death_of_the_first_one(start: Callable[..., Workers]) -> None:
    server = start()
    _, two = clients(server)
    add(two, "A")
    add(two, "B")
    away, there = sorted("AB", key=lambda name: worker_of(server, name))
    before = published(two, b"%b.x" % there.encode(), b"1")["seq"]
    pid = server.worker(1)["pid"]
    server.process.signal("STOP")  # then it starts no other process
    os.kill(pid, signal.SIGKILL)
    wait_gone(pid)
    assert published(two, b"%b.x" % there.encode(), b"2")["seq"] == before + 1
    until_refused(two, f"$JS.API.STREAM.INFO.{away}".encode())
    assert api(two, f"STREAM.INFO.{there}")["state"]["last_seq"] == before + 1
    for words in ("NAMES", f"CREATE.{there}", f"DELETE.{there}", "CREATE.N"):
        assert b"503" in asked(two, f"$JS.API.STREAM.{words}".encode())[3]
    server.process.signal("CONT")
    back(server, 1)
    while b"503" in asked(two, b"$JS.API.STREAM.NAMES")[3]:
        pass
    assert api(two, "STREAM.NAMES")["streams"] == ["A", "B"]
    assert (
        api(two, f"STREAM.CREATE.{there}", {"name": there, "subjects": ["z"]})["error"]["err_code"] == 10058
    )
    assert published(two, b"%b.x" % away.encode(), b"1")["seq"] == 1


def test_a_store_of_one_process_gets_streams_in_other_workers_which_are_never_left_behind(
    tmp_path: Path,
) -> None:
    def begin(config: str, count: int) -> Workers:
        (tmp_path / "d").mkdir(exist_ok=True)
        return Workers(tmp_path / "d", config, count)

    server = begin(JETSTREAM, 2)  # then all streams are in the first worker
    one = server.client(1)
    for name in "AB":
        add(one, name)
    published(one, b"A.x", b"kept")
    server.process.stop()
    server = begin(SPREAD, 3)
    three = server.client(3)
    for name in "MN":
        add(three, name)
        published(three, b"%b.x" % name.encode(), b"new")
    assert [worker_of(server, name) for name in "ABMN"] == [1, 1, 3, 2]
    assert api(three, "STREAM.INFO.A")["state"]["messages"] == 1
    add(three, "Q", retention="workqueue", sources=[{"name": "M"}])  # in worker 3, and its copy in worker 1
    add(three, "COPY", sources=[{"name": "A"}, {"name": "Q"}])
    assert [worker_of(server, name) for name in ("Q", "COPY")] == [3, 1]
    wait_until(lambda: api(three, "STREAM.INFO.COPY")["state"]["messages"] == 2, "the copies")
    assert api(three, "STREAM.INFO.Q")["state"]["consumer_count"] == 1
    server.process.stop()
    shutil.copytree(server.directory / "store/jetstream/$G/streams/A", server.directory / "copy")
    twice = server.directory / "store/jetstream/.workers/2/$G/streams/A"
    (server.directory / "copy").rename(twice)
    (tmp_path / "twice.conf").write_text(SPREAD.replace("<<store>>", str(server.directory / "store")))
    said = refusal("", "-c", str(tmp_path / "twice.conf"), "-a", "127.0.0.1", "-p", "-1", "--workers", "3")
    assert f"jetstream/$G/streams/A and {twice} are two streams of one name" in said
    shutil.rmtree(twice)
    file = tmp_path / "other.conf"
    file.write_text(JETSTREAM.replace("<<store>>", str(server.directory / "store")))
    for flags in ((), ("--workers", "2")):
        said = refusal("", "-c", str(file), "-a", "127.0.0.1", "-p", "-1", *flags)
        assert re.search(
            r"\d streams are in \S+/2(, \S+/3)?, stores of workers above 1: start with spread", said
        ), said
        assert re.search(r"at least [23] workers; with spread_workers and fewer, they move", said), said
    checked = subprocess.run(
        [*our_command(), "fsck", str(server.directory / "store")],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert checked.returncode == 0, checked.stdout
    assert "$G > N: 1 message" in checked.stdout
    server = begin(SPREAD, 2)  # the stream of worker 3 moves to another one
    two = server.client(2)
    assert [worker_of(server, name) for name in "ABMN"] == [1, 1, 1, 2]
    assert [api(two, f"STREAM.INFO.{name}")["state"]["messages"] for name in "ABMN"] == [1, 0, 1, 1]
    wait_until(
        lambda: api(two, "STREAM.INFO.Q")["state"]["consumer_count"] == 0, "the end of the former consumer"
    )
    published(two, b"Q.x", b"later")
    wait_until(lambda: api(two, "STREAM.INFO.COPY")["state"]["messages"] == 3, "the copy")
    wait_until(lambda: api(two, "STREAM.INFO.Q")["state"]["messages"] == 0, "the end of what is copied")
    assert "2 streams of workers that are not started were moved to the first worker" in server.log()
    server.end()


def test_waiting_pulls_of_every_worker_hear_of_the_shutdown(start: Callable[..., Workers]) -> None:
    server = start()
    one, two = clients(server)
    body = b'{"expires":600000000000}'
    for client, name in ((two, "A"), (one, "B")):
        add(client, name)
        config = {"durable_name": "d", "ack_policy": "explicit"}
        api(client, f"CONSUMER.DURABLE.CREATE.{name}.d", {"stream_name": name, "config": config})
        client.take()
        client.send(b"SUB in.d d\r\n")
    for name in "AB":
        client = two if worker_of(server, name) == 1 else one
        client.send(b"SUB in.%b e\r\n" % name.encode())
        client.fence()
        while api(client, f"CONSUMER.INFO.{name}.d")["num_waiting"] < 1:
            subject = b"$JS.API.CONSUMER.MSG.NEXT.%b.d in.%b %d" % (name.encode(), name.encode(), len(body))
            client.send(b"PUB %b\r\n%b\r\n" % (subject, body))
            client.fence()
    server.process.signal("TERM")
    for client in (one, two):
        client.wait_for_any()
        assert any(frame[3].startswith(b"NATS/1.0 409 Server Shutdown") for frame in client.take())
    server.process.stop()


def test_the_limit_of_the_server_holds_for_all_workers_together(start: Callable[..., Workers]) -> None:
    server = start('jetstream: {store_dir: "<<store>>", spread_workers: true, max_mem: 64KB}')
    one, two = clients(server)
    for name in "AB":
        add(one, name, storage="memory")
    assert sorted(worker_of_memory(server, name) for name in "AB") == [1, 2]
    size = 0
    while "error" not in (
        answer := published(two, b"%b.x" % b"AB"[size // 1000 % 2 : size // 1000 % 2 + 1], bytes(1000))
    ):
        size += 1000
        assert size < 100_000
    assert answer["error"]["err_code"] in (10023, 10028, 10077)
    assert size > 40_000


def worker_of_memory(server: Workers, name: str) -> int:
    """Return the worker that leads a memory stream."""
    details = server.page("/jsz?streams=1")["account_details"][0]["stream_detail"]
    leader: str = next(each["cluster"]["leader"] for each in details if each["name"] == name)
    return int(leader.rpartition("-")[2])


def test_streams_of_all_workers_are_back_after_jetstream_was_off(start: Callable[..., Workers]) -> None:
    server = start('jetstream: {store_dir: "<<store>>", spread_workers: true, enabled: true}')
    one, two = clients(server)
    for name in "AB":
        add(one, name)
    config = server.directory / "server.conf"
    for count, (old, new) in enumerate(
        (("enabled: true", "enabled: false"), ("enabled: false", "enabled: true"))
    ):
        config.write_text(config.read_text().replace(old, new))
        server.process.signal("HUP")
        wait_until(lambda count=count: server.log().count("Reloaded server configuration (sha") > count, new)
        wanted = {"A", "B"} if new == "enabled: true" else set[str]()
        server.wait_page("/jsz?streams=1", lambda page, wanted=wanted: streams_in(page) == wanted)
    for client in (one, two):
        while b"503" in asked(client, b"$JS.API.STREAM.NAMES")[3]:
            pass
        assert api(client, "STREAM.NAMES")["streams"] == ["A", "B"]
        assert (
            api(client, "STREAM.CREATE.N", {"name": "N", "subjects": ["A.n", "B.n"]})["error"]["err_code"]
            == 10065
        )
    assert published(two, b"A.x", b"1")["seq"] == published(two, b"B.x", b"1")["seq"] == 1


def streams_in(page: dict[str, Any]) -> set[str]:
    """Return the names of the streams on a page of JetStream."""
    details = page.get("account_details", ())
    return {stream["name"] for account in details for stream in account.get("stream_detail", ())}
