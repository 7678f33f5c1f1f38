"""Damaged store directories of nats-server: an import takes or refuses each stream, reports it, and leaves no files.

PYJS_IMPORT_CASES and PYJS_FUZZ_SEED set the number of cases and their seed; `make fuzz` runs more.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
from tests.support.nats_stores import NAMES, Imports, make_source

from pyjs.server.system.scratch import UnsyncedDisk
from pyjs.testing import VirtualNode

CASES = int(os.environ.get("PYJS_IMPORT_CASES", "200"))
SEED = int(os.environ.get("PYJS_FUZZ_SEED", "1"))


def damage(rng: random.Random, root: Path) -> None:
    """Apply one kind of damage to one of the files."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.stat().st_size)
    path, kind = rng.choice(files), rng.randrange(8)
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data))
    if kind == 0:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        data = data[:at]
    elif kind == 2:
        data[at : at + 8] = rng.randbytes(8)
    elif kind == 3:
        data += rng.randbytes(rng.randrange(1, 200))
    elif kind == 4:
        data = bytearray(rng.choice(files).read_bytes())
    elif kind == 5:
        data[at : at + rng.randrange(1, 40)] = b""
    path.unlink()
    if kind == 6:
        path.mkdir()
    elif kind < 6:
        path.write_bytes(data)


@pytest.mark.timeout(600)
def test_damaged_directories_are_taken_or_refused(tmp_path: Path) -> None:
    # given
    rng, whole = random.Random(SEED), make_source(tmp_path / "whole")
    incomplete = 0
    for case in range(CASES):
        source, imports = tmp_path / f"source{case}", Imports(tmp_path / f"case{case}")
        imports.disk = UnsyncedDisk()
        shutil.copytree(whole, source)
        for _ in range(rng.randrange(1, 4)):
            damage(rng, source)
        # when
        code = imports.run(str(source))
        # then
        told = f"seed {SEED} case {case}: {imports.out}{imports.err}"
        assert code in (0, 1), told
        assert sum(f"$G > {name}: " in imports.out for name in NAMES) == len(NAMES), told
        assert imports.left() == [], told
        incomplete += code
        with VirtualNode(imports.options) as node:
            assert not [text for level, text in node.log.lines if level == "ERR"], told
        shutil.rmtree(source)
        shutil.rmtree(imports.store)
    assert incomplete > CASES // 2
