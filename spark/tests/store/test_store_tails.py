"""Index files of several streams in one file are read like those in the streams' directories."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import pytest
from spark.tests.conftest import arrow_or_skip, our_command_from_anywhere
from tests.conformance.harness.process import ServerProcess
from tests.style.tree import ROOT

arrow_or_skip()
pytest.importorskip("msgpack")

from pyjs.base.disk import OsDisk
from pyjs.store.format.tail_file import write_tails
from pyjs_spark.errors import BadStore
from pyjs_spark.read import files as reader
from pyjs_spark.read.ranges import ReadRange, Report
from pyjs_spark.store import snapshot
from pyjs_spark.store.directory import streams
from pyjs_spark.store.place import StoreDirectory

GOLDEN = ROOT / "tests" / "golden"
NAMES = ("format-3", "format-3-encrypted")


@pytest.fixture(params=NAMES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> StoreDirectory:
    """Return a store in which each stream's last segment has an index file in its own directory."""
    snapshot._remembered.clear()
    with tarfile.open(GOLDEN / f"{request.param}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    (tmp_path / "key").write_text("golden\n")
    is_encrypted = request.param.endswith("encrypted")
    stop_cleanly(tmp_path / "store", "golden" if is_encrypted else "")
    key_file = str(tmp_path / "key") if is_encrypted else ""
    return StoreDirectory(str(tmp_path / "store"), key_file=key_file)


def stop_cleanly(store: Path, key: str) -> None:
    """Start a server on the store of a killed one, and stop it cleanly."""
    config = json.dumps({"jetstream": {"store_dir": str(store), **({"key": key} if key else {})}})
    server = ServerProcess(our_command_from_anywhere(), config, store.parent, with_http=False)
    server.start()
    server.stop()


def last_indexes(root: Path) -> dict[str, Path]:
    """Return the index files of the last segments, by stream; streams without one are left out."""
    last = {
        path.parents[1].name: path.with_suffix(".idx")
        for path in sorted(root.rglob("$G/streams/*/msgs/*.seg"))
    }
    return {name: path for name, path in last.items() if path.exists()}


def together(place: StoreDirectory) -> StoreDirectory:
    """Return a copy of the store in which one file contains these index files."""
    root = Path(shutil.copytree(place.path, f"{place.path}-together"))
    tails = {}
    for name, path in last_indexes(root).items():
        tails[name] = (int(path.stem), path.read_bytes())
        path.unlink()
    (account,) = root.rglob("$G")
    write_tails(OsDisk(), str(account / "tails"), tails)
    return StoreDirectory(str(root), key_file=place.key_file)


def read(place: StoreDirectory) -> dict[str, tuple[int, int]]:
    """Return the number of messages and of lost ones in each stream."""
    found = {}
    for stream in streams(place):
        report = Report()
        what = ReadRange(stream.name, 1, 10**6, columns=("seq", "data"), fail_on_data_loss=False)
        rows = sum(batch.num_rows for batch in reader.read_range(place, what, report))
        found[stream.name] = (rows, report.lost)
    return found


def test_a_whole_store_is_read(place: StoreDirectory) -> None:
    assert read(together(place)) == read(place)


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_they_tell_that_a_segment_is_damaged(place: StoreDirectory, damage: str) -> None:
    indexes = last_indexes(Path(place.path))
    assert indexes
    for path in indexes.values():
        segment = path.with_suffix(".seg")
        if damage == "missing":
            segment.unlink()
        else:
            segment.write_bytes(segment.read_bytes().rstrip(b"\0")[:-20])
    for each in (place, together(place)):
        with pytest.raises(BadStore, match="pyjs-server fsck"):
            read(each)


def test_a_damaged_part_is_as_if_it_were_not_there(place: StoreDirectory) -> None:
    whole = read(place)
    other = together(place)
    (path,) = Path(other.path).rglob("tails")
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    assert read(other) == whole
