"""Metadata: loading returns the saved content, or reports its loss."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import msgpack
import pytest
import xxhash
from tests.support.disk import Crash, FaultyDisk, UnreadableDisk, damaged

from pyjs.base.disk import OsDisk
from pyjs.base.errors import CorruptRecord
from pyjs.store.format import meta
from pyjs.store.format.meta import (
    KIND_CONSUMER,
    KIND_STREAM,
    UnknownFormat,
    decode,
    encode,
    load_meta,
    save_meta,
)

DOCUMENT = Path(__file__).parents[4] / "docs/storage-format.md"
OLD: dict[str, object] = {"name": "old"}
NEW: dict[str, object] = {"name": "new", "more": [1, 2]}


def save(directory: Path, values: dict[str, object], generation: int, disk: OsDisk | None = None) -> None:
    save_meta(disk or OsDisk(), str(directory), "meta", encode(KIND_STREAM, generation, values))


def load(directory: Path, disk: OsDisk | None = None) -> tuple[int, dict[str, object], list[str]]:
    return load_meta(disk or OsDisk(), str(directory), "meta", KIND_STREAM)


def hex_block(title: str) -> bytes:
    """Return the bytes shown under a title of docs/storage-format.md; text after two spaces is a comment."""
    text = DOCUMENT.read_text().partition(f"{title}\n")[2]
    lines = text.partition("```\n")[2].partition("```")[0].splitlines()
    return bytes.fromhex(" ".join(re.split("  +", line.strip())[0] for line in lines))


def test_the_example_of_the_document_is_decoded_by_hand() -> None:
    data = hex_block("### Example of metadata")
    assert data[:8] == b"PYJSMETA"
    assert data[8:10] == (1).to_bytes(2, "little")  # version
    assert data[10] == 1  # kind: a stream
    assert data[11] == 0  # flags
    assert data[12:16] == b"\x00\x01\x00\x00"  # requires version 0.1.0
    assert data[16:20] == (8).to_bytes(4, "little")  # body size
    assert data[20:24] == bytes(4)
    assert data[24:32] == (7).to_bytes(8, "little")  # generation
    assert data[32:40] == b"\x81\xa4name\xa1S"  # map with one entry: "name" -> "S"
    assert data[40:] == xxhash.xxh64_intdigest(data[:40]).to_bytes(8, "little")
    assert decode(data, KIND_STREAM, "example") == (7, {"name": "S"})
    assert encode(KIND_STREAM, 7, {"name": "S"}) == data


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    save(tmp_path, OLD, 1)
    save(tmp_path, NEW, 2)
    assert load(tmp_path) == (2, NEW, [])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["meta.a", "meta.b"]


def test_the_higher_generation_counts_whichever_copy_has_it(tmp_path: Path) -> None:
    for newer, older in ("ab", "ba"):
        (tmp_path / f"meta.{newer}").write_bytes(encode(KIND_STREAM, 9, NEW))
        (tmp_path / f"meta.{older}").write_bytes(encode(KIND_STREAM, 8, OLD))
        assert load(tmp_path) == (9, NEW, [])


def test_any_damage_of_one_copy_is_reported_and_costs_nothing(tmp_path: Path) -> None:
    save(tmp_path, NEW, 3)
    whole = (tmp_path / "meta.a").read_bytes()
    for copy in "ab":
        for what, data in damaged(whole):
            (tmp_path / f"meta.{copy}").write_bytes(data)
            generation, values, problems = load(tmp_path)
            assert (generation, values) == (3, NEW), what
            assert len(problems) == 1, what
            assert f"meta.{copy} at " in problems[0]
        (tmp_path / f"meta.{copy}").write_bytes(whole)


def test_a_missing_copy_is_reported_and_costs_nothing(tmp_path: Path) -> None:
    save(tmp_path, NEW, 3)
    (tmp_path / "meta.a").unlink()
    generation, values, problems = load(tmp_path)
    assert (generation, values, len(problems)) == (3, NEW, 1)


def test_damage_of_both_copies_is_an_error_that_names_the_place(tmp_path: Path) -> None:
    save(tmp_path, NEW, 3)
    for what, data in damaged((tmp_path / "meta.a").read_bytes()):
        (tmp_path / "meta.a").write_bytes(data)
        (tmp_path / "meta.b").write_bytes(data)
        with pytest.raises(CorruptRecord) as caught:
            load(tmp_path)
        assert caught.value.path == f"{tmp_path}/meta.a", what
        assert caught.value.offset >= 0
        assert caught.value.reason


def test_a_copy_that_the_disk_does_not_give_is_replaced_by_the_other(tmp_path: Path) -> None:
    save(tmp_path, NEW, 3)
    generation, values, problems = load(tmp_path, UnreadableDisk("meta.a"))
    assert (generation, values, len(problems)) == (3, NEW, 1)


def test_a_failing_disk_is_no_damage(tmp_path: Path) -> None:
    save(tmp_path, NEW, 3)
    (tmp_path / "meta.b").write_bytes(b"damaged")
    with pytest.raises(OSError, match="EIO"):
        load(tmp_path, UnreadableDisk("meta.a"))


def test_no_copy_at_all_is_absence(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path)


def test_a_newer_format_names_the_version_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, OLD, 3)
    with monkeypatch.context() as newer:
        newer.setattr(meta, "VERSION", 2)
        newer.setattr(meta, "NEEDS", (1, 4, 2))
        (tmp_path / "meta.a").write_bytes(encode(KIND_STREAM, 4, NEW))
    with pytest.raises(
        UnknownFormat, match=r"meta.a was written by a newer version: it needs pyjs-server >= 1\.4\.2"
    ):
        load(tmp_path)


def test_an_unknown_feature_is_a_newer_format() -> None:
    data = bytearray(encode(KIND_STREAM, 4, NEW))
    data[11] = 2
    data[-8:] = xxhash.xxh64_intdigest(bytes(data[:-8])).to_bytes(8, "little")
    with pytest.raises(UnknownFormat, match=r"pyjs-server >= 0\.1\.0"):
        decode(bytes(data), KIND_STREAM, "f")


def test_metadata_of_another_kind_is_refused() -> None:
    with pytest.raises(CorruptRecord, match="f at 10: it is of kind 2 where kind 1 belongs"):
        decode(encode(KIND_CONSUMER, 1, OLD), KIND_STREAM, "f")


@pytest.mark.parametrize("body", [msgpack.packb([1]), b"\xc1", b"\x81", msgpack.packb({}) + b"\0"])
def test_a_body_that_is_no_map_is_damage(body: bytes) -> None:
    head = encode(KIND_STREAM, 1, {})[:32]
    data = head[:16] + len(body).to_bytes(4, "little") + head[20:] + body
    data += xxhash.xxh64_intdigest(data).to_bytes(8, "little")
    with pytest.raises(CorruptRecord, match="f at 32: its body is no"):
        decode(data, KIND_STREAM, "f")


def test_a_crash_at_any_call_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    counting = FaultyDisk()
    save(tmp_path / "..", OLD, 1, counting)
    seen = set()
    for at in range(counting.calls):
        directory = tmp_path / str(at)
        directory.mkdir()
        save(directory, OLD, 1)
        with pytest.raises(Crash):
            save(directory, NEW, 2, FaultyDisk(at))
        generation, values, problems = load(directory)
        assert (generation, values) in [(1, OLD), (2, NEW)]
        assert problems == []
        seen.add(generation)
        save(directory, {"name": "later"}, generation + 1)
        assert load(directory) == (generation + 1, {"name": "later"}, [])
    assert seen == {1, 2}


def test_an_error_at_any_call_is_raised_and_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    counting = FaultyDisk()
    save(tmp_path, OLD, 1, counting)
    for at in range(counting.calls):
        with pytest.raises(OSError, match="ENOSPC"):
            save(tmp_path, NEW, 2, FaultyDisk(at, errno.ENOSPC, forever=True))
        assert load(tmp_path)[:2] in [(1, OLD), (2, NEW)]
