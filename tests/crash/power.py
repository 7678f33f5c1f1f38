"""Power loss: load on an ext4 image that is shut down without a flush of its journal, and the losses.

The server is stopped just before the image: a machine without power sends no answers. The kernel itself goes on, and
an fdatasync that meets the shutdown may return 0 although its blocks are lost. Without any server, one thread that
appends and syncs saw this in 7 of 40 shutdowns, each time in its last call and after the shutdown had begun.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.conformance.harness.process import ServerProcess
from tests.crash.ext4 import CannotMount, Ext4
from tests.crash.ledger import Ledger
from tests.crash.load import ACK_WAIT_NS, STREAM, Load, make_stream, next_due
from tests.crash.servers import make_server, read_messages, rng_of

CRASHES = 50
SECONDS = {"always": (0.5, 2.5), "default": (1.2, 4.5), "2s": (2.2, 6.0), "5s": (5.2, 11.0)}
NEVER = 1 << 60


def one_crash(args: argparse.Namespace, scratch: Path, number: int) -> dict[str, Any]:
    """Cut the power once; return the losses."""
    disk = Ext4(scratch)
    server = make_server(args.server, args.mode, scratch / "server", store=disk.path)
    ledger = Ledger()
    cut_at = 0.0
    try:
        server.start()
        make_stream(server.port)
        # the stream was created long before: nats-server syncs neither its files nor its directories
        disk.sync()

        def cut() -> None:
            nonlocal cut_at
            cut_at = time.monotonic()
            halt(server)
            disk.cut_power()
            server.kill()

        rng = rng_of(args.seed, "power", number)
        load = Load(server.port, ledger, "p", NEVER, cut)
        timer = threading.Timer(rng.uniform(*SECONDS[args.mode]), load.finish)
        timer.start()
        load.run(rng)
        timer.join()
        assert not load.failures, load.failures
        disk.unmount()
        disk.mount()
        server.start()
        return figures(server.port, ledger, cut_at, next_due_after_wait(server))
    finally:
        server.kill()
        disk.unmount()


def halt(server: ServerProcess) -> None:
    """Stop the threads of a server, which then send nothing more; their calls that wait for the disk go on."""
    server.signal("STOP")
    tasks = Path(f"/proc/{server.pid}/task")
    while any(state_of(task) not in "TD" for task in tasks.iterdir()):
        time.sleep(0.0005)  # polling: no event signals that all but the waiting threads have stopped


def state_of(task: Path) -> str:
    """Return the state of a thread: T is stopped, D waits in the kernel and stops before it returns from there."""
    return (task / "stat").read_text().rpartition(") ")[2][0]


def next_due_after_wait(server: ServerProcess) -> set[int]:
    """Return the sequences that the consumer delivers when every ack wait is over."""
    time.sleep(ACK_WAIT_NS / 1e9 + 0.1)
    try:
        return set(next_due(server))
    except AssertionError:
        return set()


def figures(port: int, ledger: Ledger, cut_at: float, due: set[int]) -> dict[str, Any]:
    """Return how many acknowledged messages are lost, and how old they were."""
    try:
        messages = read_messages(port, STREAM)
    except AssertionError as error:
        return {"acked": len(ledger.acked), "lost": len(ledger.acked), "stream gone": str(error)}
    last = max((seq for seq, _ in messages), default=0)
    lost = ledger.check_messages(messages, messages[0][0] if messages else 1, last)
    lost_seqs = {ledger.acked[each] for each in lost}
    kept = {seq for each, seq in ledger.acked.items() if each not in lost and seq not in ledger.delete_asked}
    newest = max(kept, default=0)
    in_the_middle = [seq for seq in lost_seqs if seq < newest]
    return {
        "acked": len(ledger.acked),
        "lost": len(lost),
        "oldest lost s": round(max((cut_at - ledger.acked_at[each] for each in lost), default=0.0), 3),
        "in the middle": len(in_the_middle),
        "settled": len(ledger.settled),
        "redelivered": len(again := due & set(ledger.settled) - lost_seqs),
        "oldest redelivered s": _age(again, ledger.settled, cut_at),
        "removals undone": len(risen := set(ledger.deleted) & {seq for seq, _ in messages}),
        "oldest removal undone s": _age(risen, ledger.deleted, cut_at),
        "violations": {name: count for name, count in ledger.found.items() if name != "risen"},
        "examples": ledger.examples[:3],
    }


def _age(seqs: set[int], times: dict[int, float], cut_at: float) -> float:
    """Return the age, when the power was cut, of the oldest confirmation among `seqs`."""
    return round(max((cut_at - times[seq] for seq in seqs), default=0.0), 3)


def run(args: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Cut the power as many times as the command line says."""
    crashes = []
    for number in range(args.cycles or CRASHES):
        try:
            crashes.append(one_crash(args, scratch / str(number), number))
        except CannotMount as reason:
            return {"skipped": str(reason)}
        (scratch / str(number) / "image").unlink()
        print(f"power {number}: {crashes[-1]}", file=sys.stderr, flush=True)
    sums = ("acked", "lost", "in the middle", "settled", "redelivered", "removals undone")
    ages = ("oldest lost s", "oldest redelivered s", "oldest removal undone s")
    return {
        "crashes": len(crashes),
        "crashes with loss": sum(each["lost"] > 0 for each in crashes),
        "streams gone": sum("stream gone" in each for each in crashes),
        **{key: sum(each.get(key, 0) for each in crashes) for key in sums},
        **{key: max(each.get(key, 0.0) for each in crashes) for key in ages},
        "crashes with violations": [each for each in crashes if each.get("violations")][:10],
    }
