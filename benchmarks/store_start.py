"""Start of one file stream: after a clean stop, after kill -9, and without index files; and a full read afterwards.

    python benchmarks/store_start.py [--messages N] [--size BYTES] [--subjects N] [--rounds N] [--dir DIRECTORY]

Every start is a fresh process that only opens the store; the files are in the page cache. The other two figures are
the cost of loading all messages and checking their checksums, the first and the second time after the start.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from store_load_build import load_module

from pyjs.base.disk import OsDisk
from pyjs.base.log import ListLog
from pyjs.store.file.store import FileStore

store_load = load_module()
SEGMENT_SIZE = 8 << 20
PARTS = 20  # there is a sync after each part, as in a server that runs for a while


def open_store(directory: str) -> FileStore:
    return FileStore(OsDisk(), directory, ListLog(), SEGMENT_SIZE, 1)


def fill(directory: str, how: str, messages: int, size: int, subjects: int) -> None:
    """Write the messages, and close the store if `how` is `stop`; the process ends without Python's destructors."""
    store = open_store(directory)
    for _ in range(PARTS):
        store_load.append_many(store, messages // PARTS, size, 1000, subjects)
        store.sync_now()
    if how == "stop":
        store.close()
    os._exit(0)


def start(directory: str) -> None:
    """Print the cost of one start, as JSON."""
    began = time.perf_counter()
    store = open_store(directory)
    took = [(time.perf_counter() - began) * 1e3]
    for _ in range(2):
        began = time.perf_counter()
        store_load.load_many(store, 1, store.last_seq + 1)
        took.append((time.perf_counter() - began) * 1e9 / store.msgs)
    print(json.dumps(took), flush=True)
    os._exit(0)


def in_process(*arguments: object) -> str:
    command = [sys.executable, __file__, *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def measure(how: str, arguments: argparse.Namespace) -> list[list[float]]:
    """Return the figures of each round."""
    directory = tempfile.mkdtemp(prefix="store-start-", dir=arguments.dir)
    try:
        in_process("--fill", directory, how, arguments.messages, arguments.size, arguments.subjects)
        rounds = []
        for _ in range(arguments.rounds):
            for index in Path(directory).glob("*.idx") if how == "bare" else ():
                index.unlink()
            rounds.append(json.loads(in_process("--start", directory)))
        return rounds
    finally:
        shutil.rmtree(directory)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--size", type=int, default=128, metavar="BYTES")
    parser.add_argument("--subjects", type=int, default=1, metavar="N")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument(
        "--dir", metavar="DIRECTORY", help="where the files go; default: the temporary directory"
    )
    arguments = parser.parse_args()
    for how, text in (("stop", "clean stop"), ("kill", "kill -9"), ("bare", "no index files")):
        rounds = measure(how, arguments)
        opened, first, again = (median(figures) for figures in zip(*rounds, strict=True))
        print(f"{text:<16}{opened:8.1f} ms   load {first:5.0f} ns a message, again {again:5.0f} ns")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fill"]:
        fill(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), int(sys.argv[6]))
    elif sys.argv[1:2] == ["--start"]:
        start(sys.argv[2])
    else:
        sys.exit(main())
