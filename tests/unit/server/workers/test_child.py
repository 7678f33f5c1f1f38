"""A worker process, and messages that arrive at awkward times."""

from __future__ import annotations

import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import orjson

from pyjs.config.options import Worker
from pyjs.server.workers.channel import HEAD
from pyjs.server.workers.process import MODULE


def framed(message: object) -> bytes:
    text = orjson.dumps(message)
    return HEAD.pack(len(text), 0) + text


def test_a_worker_that_is_stopped_together_with_its_first_message_ends(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    worker = asdict(Worker(2, 2, "N" + "A" * 55, 0, 0, str(tmp_path)))  # the first one never starts
    first = {"config": None, "flags": {"addr": "127.0.0.1", "port": -1}, "worker": worker, "stands_in": False}
    with ours, theirs:
        ours.sendall(framed(first) + framed({"do": "stop"}))
        process = subprocess.Popen(
            [sys.executable, "-m", MODULE, str(theirs.fileno())], pass_fds=(theirs.fileno(),)
        )
        try:
            assert process.wait(20) == 0
        finally:
            process.kill()
