"""Declared streams of a real process: kill -9 in the middle, buckets as clients create them, invalid files."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import nats
from tests.conformance.harness.process import ServerProcess, our_command
from tests.support.raw import RawClient

COUNT = 150  # streams
BUCKETS = """
kv {
  py { history: 5, ttl: "1h", allow_msg_ttl: true, allow_direct: false, description: "of nats.py" }
  go { history: 3, limit_marker_ttl: "1m", max_value_size: 1000, compression: true, max_bytes: 1MB }
  copy { mirror: { name: go } }
  all { sources: [{ name: go }, { name: KV_py }] }
}
object_store { pictures { ttl: "24h", description: "of nats.py" }, plain {} }
"""
# the streams that nats.go creates for the same buckets
GO = {
    "KV_go": {
        "subjects": ["$KV.go.>"],
        "max_msgs_per_subject": 3,
        "max_msg_size": 1000,
        "max_bytes": 1 << 20,
        "compression": "s2",
        "allow_direct": True,
        "allow_msg_ttl": True,
        "subject_delete_marker_ttl": 60_000_000_000,
        "mirror_direct": False,
    },
    "KV_copy": {
        "mirror": {"name": "KV_go"},
        "mirror_direct": True,
        "max_msgs_per_subject": 1,
        "allow_direct": True,
    },
    "KV_all": {
        "subjects": ["$KV.all.>"],
        "max_msgs_per_subject": 1,
        "allow_direct": True,
        "sources": [
            {"name": "KV_go", "subject_transforms": [{"src": "$KV.go.>", "dest": "$KV.all.>"}]},
            {"name": "KV_py", "subject_transforms": [{"src": "$KV.py.>", "dest": "$KV.all.>"}]},
        ],
    },
}
GO_KV: dict[str, Any] = {
    "max_bytes": -1,
    "max_msg_size": -1,
    "max_msgs": -1,
    "max_consumers": -1,
    "storage": "file",
    "num_replicas": 1,
    "discard": "new",
    "deny_delete": True,
    "allow_rollup_hdrs": True,
    "duplicate_window": 120_000_000_000,
}
GO_OBJECTS = {
    "name": "OBJ_plain",
    "subjects": ["$O.plain.C.>", "$O.plain.M.>"],
    "max_bytes": -1,
    "storage": "file",
    "num_replicas": 1,
    "discard": "new",
    "allow_rollup_hdrs": True,
    "allow_direct": True,
}


def declaring(directory: Path, blocks: str) -> ServerProcess:
    config = f'jetstream {{ store_dir: "<<store>>"\n{blocks} }}'
    return ServerProcess(our_command(), config, directory, with_http=False, may_fork=True)


async def test_buckets_are_those_that_clients_make(tmp_path: Path) -> None:
    server = declaring(tmp_path, BUCKETS)
    server.start()
    try:
        raw = RawClient(server.port)
        for name, config in GO.items():
            raw.api(f"STREAM.CREATE.{name}", name=name, **(GO_KV | config))
        raw.api("STREAM.CREATE.OBJ_plain", **GO_OBJECTS)
        raw.close()
        client = await nats.connect(f"nats://127.0.0.1:{server.port}")
        js = client.jetstream()
        bucket = await js.create_key_value(bucket="py", history=5, ttl=3600, description="of nats.py")
        await bucket.put("a", b"1")
        await (await js.key_value("go")).put("b", b"2")
        assert (await bucket.get("a")).value == b"1"
        pictures = await js.create_object_store("pictures", ttl=86400, description="of nats.py")
        await pictures.put("one", b"picture")
        assert (await pictures.get("one")).data == b"picture"
        await client.close()
    finally:
        server.kill()


def test_kill_in_the_middle_is_finished_by_the_next_start(tmp_path: Path) -> None:
    entries = "\n".join(f'S{number} {{ description: "{number}" }}' for number in range(COUNT))
    server = declaring(tmp_path, f"streams {{ {entries} }}\nconsumers {{ S0 {{ c {{}} }} }}")
    server._spawn()
    made = tmp_path / "store/jetstream/$G/streams"
    deadline = time.monotonic() + 60
    while not made.is_dir() or len(os.listdir(made)) < 20:
        assert time.monotonic() < deadline
        time.sleep(0.001)  # a directory has no event to wait for
    server.kill()
    before = len(os.listdir(made))

    server.start()
    try:
        client = RawClient(server.port)
        page = client.api("STREAM.NAMES")
        assert client.api(f"STREAM.INFO.S{COUNT - 1}")["config"]["description"] == str(COUNT - 1)
        assert client.api("CONSUMER.NAMES.S0")["consumers"] == ["c"]
        client.close()
    finally:
        server.kill()
    assert before < COUNT
    assert page["total"] == COUNT


def test_the_command_compares_and_the_sample_is_valid(tmp_path: Path) -> None:
    sample = Path("conf/declared.conf").read_text("utf-8")
    blocks = sample.partition("store_dir: ./data")[2].rpartition("# An account")[0].rstrip().removesuffix("}")
    server = declaring(tmp_path, blocks)
    server.start()
    command = [*our_command(), "plan", "-c", str(server.config_path), "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    server.kill()
    assert ran.returncode == 0, ran.stderr
    assets = json.loads(ran.stdout)["accounts"][0]["assets"]
    assert [each["name"] for each in assets] == [
        "ORDERS",
        "ORDERS_COPY",
        "settings",
        "pictures",
        "ORDERS > bakery",
    ]
