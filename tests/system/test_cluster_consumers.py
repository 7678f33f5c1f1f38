"""Consumers of a replicated stream on three real processes: kill -9 of their leader, and restarts of all servers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from raft.tests.conftest import is_here
from tests.conformance.harness.asker import Asker
from tests.conformance.harness.cluster import NAMES, WAIT_S, NodeClient, ThreeServers, three
from tests.conformance.harness.process import our_command

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

pytestmark = pytest.mark.timeout(300)  # seconds: servers start many times, on a busy machine
JETSTREAM = 'jetstream { store_dir: "<<store>>", max_file_store: 1GB, max_memory_store: 100MB }'
NEXT = "$JS.API.CONSUMER.MSG.NEXT.R.c"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeServers]:
    with three(our_command(), tmp_path_factory.mktemp("cluster"), JETSTREAM) as running:
        yield running


def info(servers: ThreeServers, through: str) -> dict[str, Any]:
    """Wait until the consumer has a leader; return its info."""
    asker = Asker(servers.client(through))
    return asker.until("$JS.API.CONSUMER.INFO.R.c", lambda answer: "ack_floor" in answer)


def work(client: NodeClient, ends: Callable[[set[int]], bool]) -> tuple[set[int], set[int]]:
    """Pull and acknowledge messages until `ends`; return the sequences that were delivered and those confirmed."""
    client.send(b"SUB in.> 9\r\n")
    body = json.dumps({"batch": 100, "expires": 1_000_000_000}).encode()
    pull = b"PUB %b in.m %d\r\n%b\r\n" % (NEXT.encode(), len(body), body)
    seen, confirmed = set[int](), set[int]()
    deadline = time.monotonic() + WAIT_S
    client.send(pull)
    while not ends(confirmed):
        assert time.monotonic() < deadline, (seen, confirmed)
        client.fence()
        for subject, _, reply, _, _ in client.take():
            if reply.startswith(b"$JS.ACK."):
                seq = int(reply.split(b".")[-4])
                seen.add(seq)
                client.send(b"PUB %b in.ack.%d 0\r\n\r\n" % (reply, seq))
            elif subject.startswith(b"in.ack."):
                confirmed.add(int(subject[7:]))
            elif subject == b"in.m":  # the leader changed, there is none, or the request has expired
                time.sleep(0.05)  # polling: no event signals that no answer will come
                client.send(pull)
    return seen, confirmed


def create(asker: Asker) -> None:
    """Create the stream and its consumer, if they do not exist yet."""
    config = {"name": "R", "subjects": ["r.>"], "num_replicas": 3, "retention": "workqueue"}
    asker.until("$JS.API.STREAM.CREATE.R", lambda answer: "config" in answer, config)
    body = {"stream_name": "R", "config": {"durable_name": "c", "ack_policy": "explicit", "ack_wait": 10**9}}
    asker.until("$JS.API.CONSUMER.CREATE.R.c", lambda answer: "config" in answer, body)


def test_a_consumer_outlives_its_leader_and_new_starts(servers: ThreeServers) -> None:
    asker = Asker(servers.client("a"))
    create(asker)
    for n in range(30):
        asker.until("r.x", lambda ack: "seq" in ack, {"n": n})

    _, confirmed = work(servers.client("b"), lambda confirmed: len(confirmed) >= 10)
    first = info(servers, "a")["cluster"]["leader"]
    left = [name for name in NAMES if name != first]
    servers.release()
    servers.server(first).kill()
    asker = Asker(servers.client(left[0]))
    for n in range(20):
        asker.until("r.x", lambda ack: "seq" in ack, {"n": n})
    seen, _ = work(servers.client(left[1]), lambda _: messages(asker) == 0)
    assert not confirmed & seen

    servers.release()
    for name in left:
        servers.server(name).kill()
    servers.start_processes(*NAMES)
    found = info(servers, first)
    assert (found["num_pending"], found["num_ack_pending"]) == (0, 0)
    assert messages(Asker(servers.client("b"))) == 0


def test_waiting_requests_are_told_of_the_change_of_the_leader(servers: ThreeServers) -> None:
    create(Asker(servers.client("a")))
    before = info(servers, "a")["cluster"]["leader"]
    name = next(name for name in NAMES if name != before)
    client, asker = servers.client(name), Asker(servers.client(name))
    client.send(b"SUB in.> 9\r\n")
    pull_until_waiting(client, asker)
    client.fence()
    client.take()  # messages of leaders that have changed by themselves
    asker.until("$JS.API.CONSUMER.LEADER.STEPDOWN.R.c", lambda answer: answer.get("success") is True)

    client.wait_for_any()
    frame, *_ = client.take()
    assert (frame[0], frame[3]) == (b"in.m", b"NATS/1.0 409 Leadership Change\r\n\r\n")
    asker.until("$JS.API.CONSUMER.INFO.R.c", lambda answer: answer.get("num_waiting") == 0)


def pull_until_waiting(client: NodeClient, asker: Asker) -> None:
    """Send a pull request, and repeat it if the leader changes, until the present leader has one."""
    body = json.dumps({"batch": 7, "max_bytes": 900, "expires": 600 * 10**9}).encode()
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        client.send(b"PUB %b in.m %d\r\n%b\r\n" % (NEXT.encode(), len(body), body))
        client.fence()
        for _ in range(10):
            found = asker.until("$JS.API.CONSUMER.INFO.R.c", lambda answer: "num_waiting" in answer)
            if found["num_waiting"]:
                return
    raise AssertionError("no request waits")


def messages(asker: Asker) -> int:
    """Return the number of messages in the stream."""
    answer = asker.until("$JS.API.STREAM.INFO.R", lambda answer: "state" in answer)
    count: int = answer["state"]["messages"]
    return count


def test_dead_letters_are_stored_once_over_a_change_of_the_leader(servers: ThreeServers) -> None:
    """The leader of the consumer is killed while letters are on their way."""
    # given
    asker = Asker(servers.client("a"))
    letters = {"name": "DEAD", "subjects": ["$DLQ.>"], "num_replicas": 3}
    asker.until("$JS.API.STREAM.CREATE.DEAD", lambda answer: "config" in answer, letters)
    metadata = {"_pyjs.dead_letter_stream": "DEAD"}
    queue = {
        "name": "Q",
        "subjects": ["q"],
        "num_replicas": 3,
        "retention": "workqueue",
        "metadata": metadata,
    }
    refused = {**queue, "name": "X", "subjects": ["x"], "metadata": {"_pyjs.dead_letter_stream": "NONE"}}
    answer = asker.until("$JS.API.STREAM.CREATE.X", lambda answer: "error" in answer, refused)
    assert answer["error"]["err_code"] == 20005
    asker.until("$JS.API.STREAM.CREATE.Q", lambda answer: "config" in answer, queue)
    config = {"durable_name": "c", "ack_policy": "explicit", "max_deliver": 1, "ack_wait": 500_000_000}
    body = {"stream_name": "Q", "config": config}
    asker.until("$JS.API.CONSUMER.CREATE.Q.c", lambda answer: "config" in answer, body)
    for n in range(100):
        asker.until("q", lambda ack: "seq" in ack, {"n": n})
    # when
    leader = asker.until("$JS.API.CONSUMER.INFO.Q.c", lambda answer: "ack_floor" in answer)["cluster"][
        "leader"
    ]
    left = next(name for name in NAMES if name != leader)
    client = servers.client(left)
    client.send(b'SUB in.> 9\r\nPUB $JS.API.CONSUMER.MSG.NEXT.Q.c in.m 14\r\n{"batch": 100}\r\n')
    client.wait_for_messages(100)
    for _, _, reply, _, _ in client.take():
        client.send(b"PUB %b 8\r\n+TERM no\r\n" % reply)
    client.fence()
    servers.release()
    servers.server(leader).kill()
    # then
    asker = Asker(servers.client(left))
    state = "$JS.API.STREAM.INFO.%s"
    asker.until(state % "DEAD", lambda answer: answer.get("state", {}).get("messages") == 100)
    asker.until(state % "Q", lambda answer: answer.get("state", {}).get("messages") == 0)
    found = asker.until(state % "DEAD", lambda answer: "state" in answer)["state"]
    assert (found["messages"], found["num_subjects"]) == (100, 100)
    # and back
    answer = asker.until(
        "$JS.API.PYJS.DEAD_LETTERS.REPLAY.DEAD", lambda answer: "replayed" in answer, {"limit": 7}
    )
    assert (answer["replayed"], answer["failed"]) == (7, 0)
    asker.until(state % "DEAD", lambda answer: answer.get("state", {}).get("messages") == 93)
    servers.start_processes(leader)
