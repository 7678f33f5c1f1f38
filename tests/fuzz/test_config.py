"""Configurations with values at the edge of an option's range: they are read or refused, and a node works with them.

They are drawn from the option tables (pyjs/config/tables.py): valid files in which some values are replaced, keys
repeated or misplaced, and the text itself mutated. Whatever is accepted starts a node that serves a client.
PYJS_CONFIG_CASES and PYJS_FUZZ_SEED set the number of cases and their seed.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from tests.fuzz.border import EDGES

from pyjs.config.errors import ConfigError
from pyjs.config.load import load_options
from pyjs.config.options import Options
from pyjs.config.tables import TABLES
from pyjs.testing import VirtualNode

CASES = int(os.environ.get("PYJS_CONFIG_CASES", "4000"))
SEED = int(os.environ.get("PYJS_FUZZ_SEED", "1"))
DEPTHS = (1, 5, 50, 2_000)
NUMBERS = [str(edge) for edge in EDGES]
NUMBERS += [
    "0x10",
    "1e400",
    "-0",
    "1.5",
    "9" * 5_000,
    "1_000",
    "1kb",
    "9223372036854775807GB",
    "1K",
    "-1",
    "1TiB",
]
DURATIONS = "1s 0s -1s 1ns 2562047h 2562048h 9223372036854775807ns 1h1h 1e9s s 30 2m 1.5h .5s".split()
DURATIONS += ["9" * 5_000 + "s", "1ns" * 2_000]
TEXTS = [
    '""',
    "a",
    "true",
    "yes",
    "always",
    '"a b"',
    '"a.b"',
    '">"',
    '"*.>"',
    '"x\\x00y"',
    '"\\u0000"',
    "'\\n'",
]
TEXTS += [
    '"' + "x" * 10_000 + '"',
    "é",
    '"$2a$04$' + "a" * 53 + '"',
    "$missing",
    "$PATH",
    "127.0.0.1:4222",
    '"[::1]:-1"',
]
BLOCKS = (
    "[]",
    "{}",
    "[1, 2]",
    "[a, [b]]",
    "{a: 1}",
    "[{user: a, password: b}, {user: a}]",
    "[{}]",
    "{allow: [a, 1]}",
)
RIGHT = {  # a value that each kind of option accepts, unless its own check refuses it
    "bool": "true",
    "int": "77",
    "size": "77",
    "string": "word",
    "path": "word",
    "list of strings": "[x, y]",
    "duration": '"77s"',
    "host:port": '"127.0.0.2:7422"',
    "subjects": "a",
    "map of subjects": "{a: b}",
    "list of maps": "[{stream: a}]",
    "subject or map": "a",
}
MUTATIONS = "{}[]\"'#$:=,\\\n\x00() \t%"
READS_MAX = 3_000  # reads per configuration: more would be endless includes


def value(rng: random.Random) -> str:
    """Return a random value of any kind."""
    drawn = rng.choice((NUMBERS, NUMBERS, DURATIONS, TEXTS, BLOCKS, None))
    if drawn is not None:
        return rng.choice(drawn)
    depth = rng.choice(DEPTHS)
    opening, closing = rng.choice((("[", "]"), ("{a: ", "}"), ("[", "")))
    return opening * depth + "1" + closing * depth


def block(rng: random.Random, path: str, depth: int = 0) -> str:
    """Draw the lines of a block: keys of its table, and some of other tables."""
    lines = []
    for _ in range(rng.randrange(1, 6)):
        table = TABLES[path] if rng.random() < 0.9 else TABLES[rng.choice(list(TABLES))]
        key = rng.choice(list(table.key_by_name))
        kind = table.key_by_name[key].kind.name
        inner = [name for name in TABLES if name.rpartition(".")[2] == key or name.partition(".")[0] == key]
        if inner and depth < 4 and rng.random() < 0.8:
            drawn = f"{{\n{block(rng, rng.choice(inner), depth + 1)}\n}}"
            drawn = (
                f"{{ A {drawn}, B {{}} }}" if key in ("accounts", "users") and rng.random() < 0.7 else drawn
            )
        elif kind in RIGHT and rng.random() < 0.45:
            drawn = RIGHT[kind]
        else:
            drawn = value(rng)
        lines.append(f"{key}{rng.choice((': ', ' = ', ' '))}{drawn}")
    return "\n".join(lines)


def text(rng: random.Random) -> str:
    """Return the text of a random configuration file."""
    drawn = block(rng, "")
    for _ in range(rng.choice((0, 0, 0, 1, 3))):
        at = rng.randrange(len(drawn) + 1)
        drawn = drawn[:at] + rng.choice(MUTATIONS) + drawn[at + rng.randrange(2) :]
    return drawn


def read_options(drawn: str) -> Options | None:
    """Return the options of a file with this text, or None if it is refused with a position and a reason."""
    reads = 0

    def read(path: str) -> str:
        nonlocal reads
        reads += 1
        assert reads < READS_MAX
        if path != "server.conf":
            raise FileNotFoundError(2, "No such file or directory", path)
        return drawn

    try:
        return load_options("server.conf", read, {"PATH": "/bin", "HOME": "{"}, {})
    except ConfigError as error:
        told = str(error)
    assert "server.conf" in told
    assert len(told) < 100_000
    return None


def serves(options: Options, directory: Path) -> None:
    """Start a node with the options, and let one of its clients publish and subscribe."""
    options.jetstream.enabled = False
    options.jetstream.store_dir = str(directory)
    node = VirtualNode(options)
    client = node.client()
    client.send(b"SUB a 1\r\nPUB a 1\r\nx\r\nPING\r\n")
    node.advance(seconds=5)
    client.send(b"PING\r\n")
    node.node.stop()
    assert node.node.faults.counts == {}


def test_a_file_of_any_values_is_read_or_refused_and_what_is_read_serves(tmp_path: Path) -> None:
    read = 0
    for number in range(CASES):
        rng = random.Random(SEED * 1_000_003 + number)
        drawn = text(rng)
        try:
            options = read_options(drawn)
            if options is not None:
                read += 1
                serves(options, tmp_path)
        except BaseException as failure:
            failure.add_note(f"case {number}:\n{drawn[:3000]}")
            raise
    assert read > CASES // 25


@pytest.mark.parametrize("opening", ["[", "{a: ", "{a "])
def test_nesting_without_end_is_refused_by_name(opening: str) -> None:
    assert read_options("port: " + opening * 100_000) is None
