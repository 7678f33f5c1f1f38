"""Stored files with hostile numbers and matching checksums: damage to one stream affects no other stream.

An undamaged stream is served as before; starts, the usual requests and checks end soon and use bounded memory.
"""

from __future__ import annotations

import os
import resource
import shutil
import time
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
from tests.fuzz.hostile_files import hostile_purge, mutation_of
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.base.disk import OsDisk
from pyjs.config.options import JetStreamOptions, Options
from pyjs.fsck.check import StoreCheck
from pyjs.fsck.progress import Progress
from pyjs.fsck.text import json_of, lines_of

CASES = int(os.environ.get("PYJS_FUZZ_CASES", "50000")) // 100
SEED = int(os.environ.get("PYJS_FUZZ_SEED", "1"))
SLOW_S = 1.0  # seconds of CPU: no case may take this long
GROWTH_MAX = 300 << 20  # maximum growth of the process in bytes, over all cases
HURT, HEALTHY = "$G/streams/HURT", "$G/streams/HEALTHY"
NS = 1_000_000_000
NOW_NS = 1_800_000_000 * NS


def options_of(root: Path) -> Options:
    return Options(jetstream=JetStreamOptions(enabled=True, store_dir=str(root)))


def fill(js: JetStreamFixture, name: str) -> None:
    """Create a stream with removed messages, TTLs, message ids and two consumers with state."""
    subjects = [f"{name}.>"]
    js.add(name, subjects=subjects, storage="file", allow_msg_ttl=True, allow_direct=True, max_bytes=1 << 20)
    for at in range(40):
        headers = {"Nats_Msg_Id": f"id-{at}"} if at % 2 else {"Nats_TTL": "3600s"}
        js.publish(f"{name}.{at % 4}", b"%02d" % at * 100, **headers)
    for seq in (3, 4, 17):
        js.api(f"STREAM.MSG.DELETE.{name}", {"seq": seq, "no_erase": seq == 4})
    for durable, policy in (("c", "explicit"), ("d", "last_per_subject")):
        config: dict[str, Any] = {"durable_name": durable, "ack_policy": "explicit"}
        last: dict[str, Any] = {"deliver_policy": policy, "filter_subject": f"{name}.>"}
        config |= last if durable == "d" else {"backoff": [NS, 2 * NS], "max_deliver": 3}
        js.api(f"CONSUMER.CREATE.{name}.{durable}", {"stream_name": name, "config": config})
        pull(js, name, durable, ack=5)


def pull(js: JetStreamFixture, name: str, durable: str, ack: int = 0) -> int:
    """Pull all messages, acknowledge some of them, and return their number."""
    js.user.send(b"SUB _INBOX.d d\r\n")
    body = b'{"batch":20,"no_wait":true}'
    js.user.send(
        f"PUB $JS.API.CONSUMER.MSG.NEXT.{name}.{durable} _INBOX.d {len(body)}\r\n".encode() + body + b"\r\n"
    )
    js.turn()
    replies = [frame.reply for frame in js.user.frames() if frame.reply]
    for at, reply in enumerate(replies[:ack]):
        ack_body = [b"+ACK", b"-NAK", b'-NAK {"delay":5000000000}', b"+WPI", b"+TERM"][at % 5]
        js.user.send(b"PUB %b %d\r\n%b\r\n" % (reply, len(ack_body), ack_body))
    js.user.send(b"UNSUB d\r\n")
    js.turn()
    return len(replies)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a stopped server with both streams, by path."""
    root = tmp_path_factory.mktemp("template")
    js = JetStreamFixture(options_of(root), now_ns=NOW_NS)
    for name in ("HURT", "HEALTHY"):
        fill(js, name)
    js.node.stop()
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def written(root: Path, files: dict[str, bytes]) -> None:
    shutil.rmtree(root, ignore_errors=True)
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


def hostile(files: dict[str, bytes], chance: Random) -> dict[str, bytes]:
    """Return the files, with hostile values in some of those of one stream."""
    names = [name for name in files if name.startswith(HURT) and mutation_of(name.rpartition("/")[2])]
    out = dict(files)
    for name in chance.sample(names, chance.choice([1, 1, 2, 3])):
        mutation = mutation_of(name.rpartition("/")[2])
        assert mutation is not None
        out[name] = mutation(files[name], chance)
        both = name.removesuffix(".a").removesuffix(".b")
        if both != name:  # the same damage in both copies
            out[f"{both}.a"] = out[f"{both}.b"] = out[name]
        elif "/snap." in name or "/log." in name:
            other = name.replace("/snap.", "/log.") if "/snap." in name else name.replace("/log.", "/snap.")
            out.pop(other, None)
    if chance.random() < 0.1:
        out[f"{HURT}/purge"] = hostile_purge("HURT.*", chance)
    if chance.random() < 0.5:
        out = {
            name: data for name, data in out.items() if not (name.startswith(HURT) and name.endswith(".idx"))
        }
    return out


def use(js: JetStreamFixture) -> None:
    """Use the damaged stream as clients do, if it is served."""
    if "HURT" not in js.engine.streams:
        return
    js.state("HURT")
    js.user.send(b"PUB HURT.new 3\r\nnew\r\n")  # its subjects may have changed, and it may give no PubAcks
    js.turn()
    js.api("STREAM.MSG.GET.HURT", {"seq": 20})
    js.api("STREAM.MSG.GET.HURT", {"last_by_subj": "HURT.1"})
    for durable in ("c", "d", "e"):
        config = {"durable_name": durable, "ack_policy": "explicit", "filter_subject": "HURT.2"}
        if durable == "e":
            js.api("CONSUMER.CREATE.HURT.e", {"stream_name": "HURT", "config": config})
        if durable in js.stream("HURT").consumers:
            pull(js, "HURT", durable, ack=3)
            js.api(f"CONSUMER.INFO.HURT.{durable}")
    js.advance(seconds=6)


def check_healthy(js: JetStreamFixture) -> None:
    assert js.state("HEALTHY")["messages"] == 37
    assert js.payloads("HEALTHY")[-1] == b"39" * 100
    assert sorted(js.stream("HEALTHY").consumers) == ["c", "d"]
    assert js.publish("HEALTHY.new", b"new")["seq"] == 41
    assert js.api("CONSUMER.INFO.HEALTHY.c")["num_pending"] == 18
    assert pull(js, "HEALTHY", "c") > 0


def run_case(root: Path) -> None:
    js = JetStreamFixture(options_of(root), now_ns=NOW_NS)
    try:
        use(js)
        check_healthy(js)
    finally:
        js.node.stop()


def test_hostile_files_of_one_stream_cost_the_others_nothing(
    tmp_path: Path, template: dict[str, bytes]
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for case in range(CASES):
        chance = Random(f"{SEED}:{case}")
        root = tmp_path / "store"
        written(root, hostile(template, chance))
        began = time.process_time()
        try:
            report = StoreCheck(OsDisk(), str(root), Progress()).run()
            assert report.exit_code() in (0, 1, 2)
            assert orjson.loads(json_of(report))
            assert lines_of(report, quiet=False)
            run_case(root)
        except BaseException as error:
            raise AssertionError(f"case {case} of seed {SEED}: {error!r}") from error
        assert time.process_time() - began < SLOW_S, f"case {case} of seed {SEED} takes long"
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
        assert grown < GROWTH_MAX, f"case {case} of seed {SEED} takes memory"
