"""The fsck command on the files of a real server that was killed, and the server after the repair."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.conformance.harness.process import our_command
from tests.support.raw import RawClient
from tests.system.conftest import StartServer

MESSAGES = 500


def fsck(*words: object) -> tuple[int, str, str]:
    """Run the command; return its exit code and output."""
    command = [*our_command(), "fsck", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def test_a_damaged_store_is_told_repaired_and_served(start_server: StartServer, tmp_path: Path) -> None:
    server, store = start_server(), tmp_path / "0/store"
    client = RawClient(server.port)
    client.api("STREAM.CREATE.S", name="S", subjects=["s"], max_bytes=400_000)
    for number in range(MESSAGES):
        client.request(b"s", b"%03d" % number + b"x" * 500)
    in_use = fsck(store)
    server.kill()
    killed = fsck(store)
    segment = next((store / "jetstream/$G/streams/S/msgs").glob("*01.seg"))
    data = segment.read_bytes()
    segment.write_bytes(data.replace(b"077xx", b"0?7xx"))

    damaged = fsck(store)
    repaired = fsck("--repair", store)
    again = fsck("--quiet", store)
    server.start()
    state = RawClient(server.port).api("STREAM.INFO.S", deleted_details=True)["state"]

    assert (in_use[0], killed[0], damaged[0], repaired[0], again[0]) == (2, 0, 1, 1, 0)
    assert "is in use: stop the server that works on it first" in in_use[2]
    assert f"$G > S: {MESSAGES} messages" in killed[1]
    assert "damaged bytes between records; lost: 78\n" in damaged[1]
    assert "  lost for good: 1 message: 78\n" in repaired[1]
    assert again[1] == f"1 stream, {MESSAGES - 1} messages, 0 consumers: clean\n"
    assert (state["messages"], state["last_seq"], state["deleted"]) == (MESSAGES - 1, MESSAGES, [78])
    assert "lost" not in state
