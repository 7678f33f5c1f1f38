"""A real process with a low limit of file descriptors serves many streams with several segments each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.conformance.harness.process import ServerProcess, our_command
from tests.support.raw import RawClient

LIMIT = 128
STREAMS = 70
SMALL = {"max_bytes": 1 << 18}  # so that segments have 64 KiB
MESSAGE = b"x" * 40_000  # each message fills a segment
JETSTREAM = 'jetstream: {store_dir: "<<store>>", sync_interval: %s}'


@pytest.mark.parametrize("interval", ["2m", "always"])
def test_few_descriptors_serve_many_streams_and_segments(tmp_path: Path, interval: str) -> None:
    # given
    command = ["prlimit", f"--nofile={LIMIT}:{LIMIT}", *our_command()]
    server = ServerProcess(command, JETSTREAM % interval, tmp_path, with_http=False)
    server.start()
    try:
        client = RawClient(server.port)
        for number in range(STREAMS):
            client.api(f"STREAM.CREATE.S{number}", name=f"S{number}", subjects=[f"s.{number}"], **SMALL)
        # when
        for life, end in enumerate((server.stop, server.kill, server.kill), 1):
            publish(client, life)
            read(client, life)
            end()
            server.start()
            client = RawClient(server.port)
        # then
        publish(client, 4)
        read(client, 4)
        log = (tmp_path / "log").read_text("utf-8")
        assert "[ERR]" not in log
        assert "[WRN]" not in log
    finally:
        server.kill()


def publish(client: RawClient, life: int) -> None:
    for number in range(STREAMS):
        assert json.loads(client.request(b"s.%d" % number, MESSAGE))["seq"] == life


def read(client: RawClient, life: int) -> None:
    for seq in range(1, life + 1):
        for number in range(STREAMS):
            found = client.api(f"STREAM.MSG.GET.S{number}", seq=seq)
            assert found["message"]["subject"] == f"s.{number}"
