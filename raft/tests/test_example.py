"""The example in docs/raft-frames.md is decoded as the page says, and an engine accepts it."""

from __future__ import annotations

import re
import struct
import tomllib
from pathlib import Path

import xxhash
from raft.tests.cluster import GROUP, Cluster, descriptor

from pyjs_raft import payloads_of, peer_id

ROOT = Path(__file__).resolve().parents[2]


def example() -> bytes:
    """Return the bytes on the page: hexadecimal pairs on indented lines, up to the words after them."""
    text = (ROOT / "docs" / "raft-frames.md").read_text().partition("## An example")[2]
    lines = re.findall(r"^ {4}((?:[0-9a-f]{2}(?: {1,2}|$))+)", text, re.MULTILINE)
    return bytes.fromhex("".join(lines))


def test_the_example_decodes_as_the_page_says() -> None:
    frame = example()

    size, checksum, version, kind, flags, spare, count = struct.unpack_from("<IIBBBBI", frame)
    assert (size, version, kind, flags, spare, count) == (len(frame), 1, 1, 0, 0, 1)
    assert checksum == xxhash.xxh64_intdigest(frame[8:]) & 0xFFFFFFFF
    numbers = struct.unpack_from("<11Q", frame, 16)
    assert numbers == (GROUP, peer_id(1), peer_id(2), 2, 2, 2, 2, 0, 0, 0, 0)
    assert struct.unpack_from("<QB7x", frame, 104) == (2, 1)
    assert frame[120:] == descriptor(17)


def test_an_engine_writes_the_example_and_takes_it() -> None:
    cluster = Cluster()
    cluster.elect(1)
    cluster.nodes[1].propose([(GROUP, descriptor(17))])
    sent = {node: data for node, data, _ in cluster.nodes[1].ready().frames}

    assert sent[2] == example()
    assert cluster.nodes[2].step(example()) == []
    assert payloads_of(example()) == [(GROUP, 3, 2, descriptor(17))]
    assert cluster.nodes[2].entry(GROUP, 3) is None
    cluster.nodes[2].ready()
    assert cluster.nodes[2].entry(GROUP, 3) == (2, 1, descriptor(17))


def test_all_files_name_one_version() -> None:
    def loaded(name: str) -> dict[str, dict[str, object]]:
        return tomllib.loads((ROOT / name).read_text())

    version = loaded("raft/Cargo.toml")["package"]["version"]
    extras = loaded("pyproject.toml")["project"]["optional-dependencies"]

    assert loaded("raft/pyproject.toml")["project"]["version"] == version
    assert isinstance(extras, dict)
    assert extras["cluster"] == [f"pyjs-raft=={version}"]
