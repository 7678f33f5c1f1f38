"""Each request has exactly one answer, whichever worker gets it first and whatever the workers know of its stream."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from raft.tests.conftest import is_here

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

from tests.support.simnet import LONG_NS, Wire, say
from tests.support.workernet import WorkerNet

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.cluster.route import Route
from pyjs.jetstream.config.stream import StreamConfig
from pyjs.jetstream.manage import streams
from pyjs.jetstream.spread.desk import WHOLE_NS
from pyjs.jetstream.spread.notes import Passed
from pyjs.testing.node import RawClient

NOT_FOUND = 10059
SLOW_NS = NS_PER_S // 2

Start = Callable[..., WorkerNet]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[WorkerNet] = []

    def begin(workers: int = 3, seed: int = 1, jitter_ns: int = 0) -> WorkerNet:
        started.append(WorkerNet(tmp_path, workers, seed, jitter_ns))
        return started[-1]

    yield begin
    for net in started:
        net.stop()


def create(net: WorkerNet, client: RawClient, name: str) -> None:
    answer = net.ask(client, f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"]})
    assert "error" not in answer


def create_in(net: WorkerNet, number: int, name: str) -> None:
    """Create a stream in a worker, after others that make it the one with the fewest streams."""
    client, first = net.worker(1).client(), net.worker(1)
    assert first.node.jetstream is not None
    js = first.node.jetstream.accounts["$G"]
    while first.spread.place(js, name, b"{}") != number:
        create(net, client, f"other{net.rng.getrandbits(32)}")
    create(net, client, name)
    assert name in net.worker(number).streams


def listening(net: WorkerNet, number: int, inbox: bytes = b"in") -> RawClient:
    """Return a client of a worker with a subscription to `inbox`."""
    client = net.worker(number).client()
    say(net, client, b"SUB %b 1\r\n" % inbox)
    client.frames()
    return client


def info(name: str, inbox: bytes = b"in") -> bytes:
    return b"PUB $JS.API.STREAM.INFO.%b %b 0\r\n\r\n" % (name.encode(), inbox)


def codes(client: RawClient) -> list[int]:
    """Return the error code of each answer that a client has received, 0 for success."""
    return [json.loads(each).get("error", {}).get("err_code", 0) for each in client.payloads()]


def route(net: WorkerNet, one: int, other: int) -> Route:
    """Return the route from one worker to another."""
    return net.worker(one).cluster.routes[net.worker(other).node.server_id]


def remembered(net: WorkerNet, number: int) -> list[object]:
    """Return everything that a worker remembers of requests: the state of its desk, and waiting work."""
    server = net.worker(number)
    turn, parts = server.node.turn_state, vars(server.spread.desk).values()
    held = [each for each in parts if isinstance(each, dict | set)]
    return [each for each in (*held, server.spread.waiters._waiting, turn.requests, turn.chores) if each]


def delay_notes(net: WorkerNet, one: int, other: int) -> None:
    """Delay notes from one worker to another by SLOW_NS, but no messages."""
    spread, carrier = net.worker(one).spread, net.worker(one).cluster.replication
    assert carrier is not None
    link = carrier.connections[spread._nodes[other]].link
    assert isinstance(link, Wire)
    link.arrives_ns = net.clock.now_ns() + SLOW_NS


@pytest.mark.parametrize("number", [1, 2, 3])
def test_equal_requests_with_one_reply_subject_have_an_answer_each(start: Start, number: int) -> None:
    net = start()
    create_in(net, 2, "S")
    client = listening(net, number)
    for count in (1, 2, 5):
        say(net, client, info("S") * count)
        assert codes(client) == [0] * count
    net.ask(client, "STREAM.DELETE.S")
    say(net, client, info("S") * 3)
    assert codes(client) == [NOT_FOUND] * 3
    create_in(net, 3, "S")
    say(net, client, info("S") * 4)
    assert codes(client) == [0] * 4


@pytest.mark.parametrize("seed", range(6))
def test_no_answer_is_lost_or_given_twice_while_streams_come_and_go(start: Start, seed: int) -> None:
    net = start(seed=seed, jitter_ns=20 * NS_PER_MS)
    clients = [listening(net, number, b"in.%d" % number) for number in (1, 2, 3)]
    changer = listening(net, 1 + seed % 3, b"changed")
    asked = [0, 0, 0]
    for at in range(120):
        number = net.rng.randrange(3)
        count = net.rng.randrange(1, 4)
        clients[number].send(info(net.rng.choice("STU"), b"in.%d" % (number + 1)) * count)
        asked[number] += count
        if at % 4 == 0:
            words, name = net.rng.choice(("CREATE", "DELETE")), net.rng.choice("STU")
            body = json.dumps({"name": name, "subjects": [name]}) if words == "CREATE" else ""
            request = f"PUB $JS.API.STREAM.{words}.{name} changed {len(body)}\r\n{body}\r\n"
            changer.send(request.encode())
        net.run(net.rng.randrange(20 * NS_PER_MS))
    net.run(3 * NS_PER_S)
    answers = [codes(client) for client in clients]
    assert [len(found) for found in answers] == asked
    assert {code for found in answers for code in found} == {0, NOT_FOUND}
    assert len(codes(changer)) == 30
    for number in (1, 2, 3):
        assert remembered(net, number) == []


def test_equal_requests_of_clients_of_all_workers_have_an_answer_each(start: Start) -> None:
    net = start(jitter_ns=20 * NS_PER_MS)
    create_in(net, 2, "S")
    clients = [listening(net, number) for number in (1, 2, 3)]
    for client in clients:
        client.send(info("S") * 5)
    net.run(NS_PER_S)
    assert [len(codes(client)) for client in clients] == [15, 15, 15]


def test_a_worker_that_does_not_know_a_new_stream_asks_the_first_one(start: Start) -> None:
    net = start()
    client = listening(net, 3)
    create(net, net.worker(1).client(), "A")
    assert net.worker(3).streams == ["A"]
    delay_notes(net, 1, 3)
    create_in(net, 2, "S")
    assert net.worker(3).spread.directory.find("$G", "S") is None
    say(net, client, info("S"))
    assert codes(client) == [0]


def test_a_request_waits_for_the_report_of_a_restored_stream(start: Start) -> None:
    net = start()
    client, second = listening(net, 3), net.worker(2)

    def work() -> Generator[Any, None, None]:
        delay_notes(net, 2, 1)
        yield from streams.create(second.spread.accounts["$G"], StreamConfig(name="S", subjects=("s",)))

    second.node.turn_state.go_on(second.spread.desk.add_steps("$G", work))
    second.wake()
    net.run(LONG_NS)
    assert second.streams == ["S"]
    say(net, client, info("S"))
    assert codes(client) == []
    net.run(SLOW_NS)
    assert codes(client) == [0]
    assert remembered(net, 1) == []


@pytest.mark.parametrize("number", [1, 3])
def test_a_stream_that_is_gone_or_has_moved_is_found_by_the_first_worker(start: Start, number: int) -> None:
    net = start()
    create_in(net, 2, "S")
    client = listening(net, 3)
    delay_notes(net, 1, 3)
    net.ask(net.worker(1).client(), "STREAM.DELETE.S")
    assert net.worker(3).spread.directory.find("$G", "S") is not None
    say(net, client, info("S"))
    assert codes(client) == [NOT_FOUND]
    if number == 1:
        create_in(net, 2, "T")
        create(net, net.worker(1).client(), "S")
        assert "S" in net.worker(1).streams
        say(net, client, info("S"))
        assert codes(client) == [0]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("size", [10, 100_000])
def test_a_request_follows_the_messages_of_its_client(start: Start, seed: int, size: int) -> None:
    net = start(2, seed, jitter_ns=20 * NS_PER_MS)
    net.run(NS_PER_S)
    create_in(net, 2, "S")
    client = listening(net, 1)
    for count in range(1, 6):
        client.send(b"PUB S.x %d\r\n%b\r\n" % (size, bytes(size)) + info("S"))
        net.run(NS_PER_S if count % 2 else NS_PER_MS)
    net.run(NS_PER_S)
    seen = [json.loads(each)["state"]["messages"] for each in client.payloads()]
    assert seen == [1, 2, 3, 4, 5]


def test_a_request_is_not_answered_by_a_worker_whose_client_reads_it(start: Start) -> None:
    net = start()
    create_in(net, 2, "S")
    readers = [listening(net, number, b"$JS.API.>") for number in (1, 2, 3)]
    client = listening(net, 3)
    say(net, client, info("S") + info("none"))
    assert sorted(codes(client)) == [0, NOT_FOUND]
    assert [len(reader.frames()) for reader in readers] == [2, 2, 2]


def test_a_request_without_a_reply_subject_is_carried_out_once(start: Start) -> None:
    net = start()
    create_in(net, 2, "S")
    client = net.worker(3).client()
    body = b'{"stream_name":"S","config":{"ack_policy":"none"}}'
    say(net, client, b"PUB $JS.API.CONSUMER.CREATE.S %d\r\n%b\r\n" % (len(body), body) * 2)
    assert net.ask(client, "STREAM.INFO.S")["state"]["consumer_count"] == 2


def test_the_answer_names_the_client_of_another_worker(start: Start) -> None:
    net = start()
    create_in(net, 2, "S")
    reader, client = listening(net, 1, b"$JS.EVENT.ADVISORY.API"), listening(net, 3)
    say(net, client, info("S"))
    (advisory,) = [json.loads(each) for each in reader.payloads()]
    assert (advisory["subject"], advisory["client"]["acc"]) == ("$JS.API.STREAM.INFO.S", "$G")
    assert (advisory["server"], advisory["client"]["server"]) == ("sim-2", "sim-3")


@pytest.mark.parametrize("name", [r"\ud800", r"\u0000", "n" * 3000])
def test_a_client_with_any_name_gets_an_answer(start: Start, name: str) -> None:
    net = start(2)
    create_in(net, 2, "S")
    client = net.worker(1).client()
    say(net, client, b'CONNECT {"name":"%b","headers":true}\r\nSUB in 1\r\n' % name.encode() + info("S"))
    assert codes(client) == [0]


def test_a_request_is_refused_while_its_worker_is_away(start: Start) -> None:
    net = start()
    create_in(net, 2, "S")
    clients = [listening(net, number) for number in (1, 3)]
    net.kill("sim-2")
    net.run(LONG_NS)
    for client in clients:
        say(net, client, info("S"))
        assert [frame.headers for frame in client.frames()] == [b"NATS/1.0 503\r\n\r\n"]
        for other in clients:
            other.frames()


@pytest.mark.parametrize("number", [1, 3])
def test_a_change_is_refused_while_its_worker_is_away(start: Start, number: int) -> None:
    net = start()
    create_in(net, 2, "S")
    client = listening(net, number)
    net.kill("sim-2")
    net.run(LONG_NS)
    say(net, client, b"PUB $JS.API.STREAM.DELETE.S in 0\r\n\r\n")
    assert [frame.headers for frame in client.frames()] == [b"NATS/1.0 503\r\n\r\n"]


@pytest.mark.parametrize("words", ["INFO", "DELETE"])
def test_a_stream_that_may_be_in_a_worker_without_a_report_is_waited_for_and_refused(
    start: Start, words: str
) -> None:
    net = start()
    client = listening(net, 3)
    net.kill("sim-2")
    net.worker(1).spread.directory.reported.discard(2)
    say(net, client, b"PUB $JS.API.STREAM.%b.S in 0\r\n\r\n" % words.encode())
    assert client.frames() == []
    net.run(WHOLE_NS)
    assert [frame.headers for frame in client.frames()] == [b"NATS/1.0 503\r\n\r\n"]


def test_streams_of_other_workers_are_served_while_the_first_one_is_away(start: Start) -> None:
    net = start()
    create_in(net, 2, "S")
    client = listening(net, 3)
    net.kill("sim-1")
    net.run(LONG_NS)
    say(net, client, info("S"))
    assert codes(client) == [0]
    for words in ("INFO.none", "DELETE.S", "NAMES"):
        say(net, client, b"PUB $JS.API.STREAM.%b in 0\r\n\r\n" % words.encode())
        assert [frame.headers for frame in client.frames()] == [b"NATS/1.0 503\r\n\r\n"]
    assert net.worker(2).streams == ["S"]


def test_a_bucket_is_written_through_the_prefix_of_the_domain_while_the_first_worker_is_away(
    start: Start,
) -> None:
    net = start()
    create_in(net, 2, "KV_b")
    body = b'{"name":"KV_b","subjects":["$KV.b.>"]}'
    client = listening(net, 3)
    say(net, client, b"PUB $JS.API.STREAM.UPDATE.KV_b in %d\r\n%b\r\n" % (len(body), body))
    assert codes(client) == [0]
    net.kill("sim-1")
    net.run(LONG_NS)
    say(net, client, b"PUB $JS.hub.API.$KV.b.key in 1\r\nx\r\n")
    assert [json.loads(each)["seq"] for each in client.payloads()] == [1]


def test_clients_of_the_system_account_watch_requests_on_every_worker(start: Start) -> None:
    net = start()
    create_in(net, 2, "S")
    system = net.worker(1).node.system_account
    received: list[bytes] = []
    assert system is not None
    system.subscribe_handler(b"$JS.API.>", lambda request: received.append(request.subject))
    client = listening(net, 3)
    say(net, client, info("S"))
    assert codes(client) == [0]
    assert received == [b"$JS.API.STREAM.INFO.S"]


@pytest.mark.parametrize("number", [1, 2])
def test_a_stream_that_was_deleted_after_its_restore_may_get_another_worker(
    start: Start, number: int
) -> None:
    net = start(2)
    client = net.worker(number).client()
    body: dict[str, object] = {"config": {"name": "S"}, "state": {"messages": 0}}
    net.ask(client, "STREAM.RESTORE.S", body)
    create(net, client, "S")
    assert net.worker(2).streams == ["S"]
    net.ask(client, "STREAM.DELETE.S")
    create(net, client, "T")
    create(net, client, "S")
    assert net.worker(1).streams == ["S"]


def test_a_request_that_a_worker_cannot_hand_over_is_refused(start: Start) -> None:
    net = start()
    create_in(net, 2, "S")
    client, second = listening(net, 3), net.worker(2).spread
    delay_notes(net, 1, 3)
    net.ask(net.worker(1).client(), "STREAM.DELETE.S")
    second.online.discard(1)
    say(net, client, info("S"))
    assert [frame.headers for frame in client.frames()] == [b"NATS/1.0 503\r\n\r\n"]


def test_a_request_of_an_account_without_jetstream_is_refused(start: Start) -> None:
    net = start(2)
    client = listening(net, 2)
    first, second = net.worker(1).spread, net.worker(2).spread
    js = first.accounts.pop("$G")
    note = Passed(0, True, "$G", b"$JS.API.STREAM.INFO.S", b"in", b"", b"", {})
    unknown = Passed(0, True, "NONE", b"$JS.API.STREAM.INFO.S", b"in", b"", b"", {})
    assert second.tell_in_order(1, note, None)
    assert second.tell_in_order(1, unknown, None)
    net.worker(2).wake()
    net.run(LONG_NS)
    first.accounts["$G"] = js
    assert [frame.headers for frame in client.frames()] == [b"NATS/1.0 503\r\n\r\n"]


def test_a_subject_without_an_endpoint_has_no_answer(start: Start) -> None:
    net = start(2)
    client, second = listening(net, 2), net.worker(2).spread
    assert second.tell_in_order(1, Passed(0, True, "$G", b"$JS.API.NONE", b"in", b"", b"", {}), None)
    assert second.tell_in_order(1, Passed(0, True, "$G", b"$JS.d.API.INFO", b"in", b"", b"", {}), None)
    net.worker(2).wake()
    net.run(LONG_NS)
    assert codes(client) == [0]


# -- hostile clients and damaged frames ------------------------------------------------------------------------------


def test_nothing_is_remembered_of_a_million_equal_or_different_requests(start: Start) -> None:
    net = start(2)
    create_in(net, 2, "S")
    client = listening(net, 1)
    for at in range(5):
        say(net, client, info("S") * 200 + b"".join(info(f"none{at}-{number}") for number in range(200)))
        net.run(NS_PER_S)
        assert codes(client).count(0) == 200
    for number in (1, 2):
        assert remembered(net, number) == []


def test_a_client_with_large_requests_to_a_slow_worker_is_slowed_down(start: Start) -> None:
    net = start(2)
    create_in(net, 2, "S")
    client = listening(net, 1)
    way = route(net, 1, 2)
    way.output_paused()
    for _ in range(60):
        client.send(b"PUB $JS.API.STREAM.INFO.S in 1000000\r\n%b\r\n" % bytes(1_000_000))
    first = net.worker(1).node
    assert way.pending_size <= first.settings.max_pending
    assert first.stalled_clients > 0
    assert way.closed_reason == ""


def test_a_request_that_is_too_large_for_a_frame_is_refused(start: Start) -> None:
    net = start(2)
    create_in(net, 2, "S")
    client = listening(net, 1)
    client.session.options.name = "n" * (66 << 20)
    say(net, client, info("S"))
    assert [frame.headers for frame in client.frames()] == [b"NATS/1.0 503\r\n\r\n"]
    assert net.whole()


def test_a_damaged_request_ends_the_route_which_opens_again(start: Start) -> None:
    net = start(2)
    create_in(net, 2, "S")
    client = listening(net, 1)
    assert route(net, 1, 2).send_request(b"S\x01", None)
    net.worker(1).wake()
    net.run(LONG_NS)
    assert any("a request of another worker: " in text for text in net.worker(2).errors())
    net.run_until(lambda: net.whole() and bool(net.worker(1).spread.online))
    say(net, client, info("S"))
    assert codes(client) == [0]


def test_a_request_to_a_worker_whose_route_is_closed_is_refused(start: Start) -> None:
    net = start(2)
    second = net.worker(2).spread
    note = Passed(0, True, "$G", b"$JS.API.INFO", b"", b"", b"", {})
    way = route(net, 2, 1)
    way.close("Test")
    assert not way.send_request(b"", None)
    assert not second.tell_in_order(1, note, None)
