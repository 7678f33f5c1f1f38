"""Mutated protocol sequences: no crash, and no session, subscription or memory remains.

PYJS_FUZZ_CASES and PYJS_FUZZ_SEED set the number of cases and their seed; `make fuzz` runs a million.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

from tests.fuzz.mutate import case, cases
from tests.support.node import options_with_store

from pyjs.testing import VirtualNode

CASES = int(os.environ.get("PYJS_FUZZ_CASES", "50000"))
SEED = int(os.environ.get("PYJS_FUZZ_SEED", "1"))
# bytes above the state after the first cases; a leak of one kilobyte per case would be twice that
GROWTH_MAX = 48 << 20


def run_case(node: VirtualNode, reads: list[bytes]) -> bytes:
    """Play one connection and return the bytes that the server sent."""
    client = node.client(connect=None)
    for read in reads:
        if not client.session.receive_data(read):
            break
        node.turn()
    client.session.connection_lost()
    node.turn()
    return client.take()


def test_mutated_sequences_leave_nothing_behind(tmp_path: Path) -> None:
    options = options_with_store(tmp_path)
    options.limits.max_closed_clients = 10
    node = VirtualNode(options)
    node.node.start_jetstream()
    subscriptions = len(node.node.accounts["$G"].subs)
    warm = 0
    for number, reads in cases(SEED, CASES):
        run_case(node, reads)
        if number == CASES // 10:
            warm = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            subscriptions = len(node.node.accounts["$G"].subs)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - warm
    assert node.node.sessions == {}
    assert len(node.node.accounts["$G"].subs) <= subscriptions + 8
    assert grown < GROWTH_MAX
    errors = [text for level, text in node.log.lines if "Traceback" in text or "unexpected failure" in text]
    assert errors == []


def test_the_reply_does_not_depend_on_how_the_bytes_were_cut() -> None:
    for number in range(500):
        reads = case(SEED + 1, number)
        whole, cut = VirtualNode(), VirtualNode()
        assert run_case(whole, [b"".join(reads)]) == run_case(cut, reads), number
