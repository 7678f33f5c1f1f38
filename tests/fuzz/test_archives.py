"""Damaged archives: a restore creates a complete stream or nothing, and the node keeps working.

PYJS_ARCHIVE_CASES and PYJS_FUZZ_SEED set the number of cases and their seed; `make fuzz` runs more.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from tests.support import archive_bytes as made

CASES = int(os.environ.get("PYJS_ARCHIVE_CASES", "10000"))
SEED = int(os.environ.get("PYJS_FUZZ_SEED", "1"))


def mutated(rng: random.Random, parts: list[bytes]) -> bytes:
    """Return an archive with one fault: in its frames, its entries, or their order."""
    kind = rng.randrange(6)
    if kind == 0:
        data = bytearray(made.archive(parts))
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        return bytes(data)
    if kind == 1:
        data = bytearray(made.archive(parts))
        return bytes(data[: rng.randrange(len(data))])
    parts = list(parts)
    at = rng.randrange(len(parts))
    if kind == 2:
        parts.insert(at, parts[rng.randrange(len(parts))])
    elif kind == 3:
        del parts[at]
    elif kind == 4:
        parts[at] = bytes(rng.randbytes(rng.randrange(1, 12))) + parts[at]
    else:
        damaged = bytearray(parts[at])
        damaged[rng.randrange(len(damaged))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        parts[at] = bytes(damaged)
    return made.archive(parts)


@pytest.mark.timeout(600)
def test_damaged_archives_leave_a_whole_stream_or_nothing(tmp_path: Path) -> None:
    # given
    restores, rng = made.Restores(tmp_path), random.Random(SEED)
    parts, refused = made.entries(), 0
    for case in range(CASES):
        # when
        storage = "file" if case % 20 == 0 else "memory"
        answer = restores.restore(mutated(rng, parts), storage=storage, chunk_size=rng.choice((40, 1000)))
        # then
        if "error" in answer:
            refused += 1
            assert made.names(restores.client) == [], f"seed {SEED} case {case}"
        else:
            assert restores.ask("STREAM.DELETE.S")["success"], f"seed {SEED} case {case}"
    restores.node.turn()
    assert refused > CASES // 2
    assert restores.left() == []
    restores.node.node.stop()
