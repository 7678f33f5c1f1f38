"""After any operations on a stream, a check after a stop or a kill finds it clean, with the same counts."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from tests.unit.fsck.store_files import check, served, start
from tests.unit.jetstream.jsfixture import JetStreamFixture

CONFIGS: list[dict[str, object]] = [
    {},
    {"max_msgs_per_subject": 3},
    {"retention": "workqueue"},
    {"retention": "interest"},
    {"max_msgs": 50},
]


def publish(js: JetStreamFixture, rng: random.Random) -> None:
    for _ in range(rng.randrange(1, 12)):
        js.user.send(b"PUB s.%d 900\r\n%b\r\n" % (rng.randrange(20), b"x" * 900))


def delete(js: JetStreamFixture, rng: random.Random) -> None:
    state = js.state("S")
    if state["messages"]:
        seq = rng.randrange(state["first_seq"], state["last_seq"] + 1)
        js.ask("$JS.API.STREAM.MSG.DELETE.S", {"seq": seq, "no_erase": rng.random() < 0.5})


def purge(js: JetStreamFixture, rng: random.Random) -> None:
    js.ask("$JS.API.STREAM.PURGE.S", rng.choice([{}, {"keep": 5}, {"filter": "s.3"}]))


def keep_up(js: JetStreamFixture, rng: random.Random) -> None:
    """Sync, and compact sparse segments."""
    js.stream("S").store.sync_now()
    for kept in js.node.turn_state.take("upkeep"):
        while (job := kept.begin_upkeep()) is not None:
            kept.finish_upkeep(job())
    js.stream("S").store.sync_now()


def consume(js: JetStreamFixture, rng: random.Random) -> None:
    js.user.send(b"SUB _INBOX.d d\r\nPUB $JS.API.CONSUMER.MSG.NEXT.S.c _INBOX.d 1\r\n3\r\n")
    for frame in js.user.frames():
        if frame.reply.startswith(b"$JS.ACK") and rng.random() < 0.7:
            js.user.send(b"PUB %b 4\r\n+ACK\r\n" % frame.reply)
    js.user.send(b"UNSUB d\r\n")


@pytest.mark.parametrize("seed", range(10))
def test_a_check_of_a_living_store_agrees_with_the_server(seed: int, tmp_path: Path) -> None:
    rng, root = random.Random(seed), tmp_path / "stopped"
    js = start(root)
    js.add("S", subjects=["s.>"], storage="file", max_bytes=260_000, **CONFIGS[seed % len(CONFIGS)])
    js.api(
        "CONSUMER.CREATE.S.c", {"stream_name": "S", "config": {"durable_name": "c", "ack_policy": "explicit"}}
    )
    for _ in range(60):
        rng.choice([publish, publish, publish, publish, delete, purge, keep_up, consume])(js, rng)
        if rng.random() < 0.05:
            js.node.stop()
            js = start(root).at(js.clock.now_ns())
    shutil.copytree(root, tmp_path / "killed")
    js.node.stop()

    for place in (root, tmp_path / "killed"):
        report = check(place)
        stream, state = report.streams[0], served(place)["S"]["state"]
        assert report.exit_code() == 0, [finding.what for finding in report.all_findings()]
        assert (stream.messages, stream.bytes, stream.first_seq, stream.last_seq) == tuple(
            state[field] for field in ("messages", "bytes", "first_seq", "last_seq")
        )
