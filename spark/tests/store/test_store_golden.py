"""Golden store directories, read without a server: the messages are those that the server reported."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import tarfile
from pathlib import Path
from typing import Any

import pytest
from spark.tests.conftest import arrow_or_skip
from tests.style.tree import ROOT

arrow_or_skip()
pytest.importorskip("msgpack")

from pyjs_spark.decode import (
    entries,  # needs pyarrow
    hashing,  # needs pyarrow
)
from pyjs_spark.errors import BadStore
from pyjs_spark.read import files as reader
from pyjs_spark.read.ranges import ReadRange, Report
from pyjs_spark.store import scan, snapshot
from pyjs_spark.store.api import StoreApi, created_text
from pyjs_spark.store.place import StoreDirectory
from pyjs_spark_fast import entries as _entries

GOLDEN = ROOT / "tests" / "golden"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.json"))
COLUMNS = ("seq", "ts_ns", "subject", "headers", "data")


@pytest.fixture(params=["compiled", "pure"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Read with the compiled code, and with plain Python."""
    snapshot._remembered.clear()
    if request.param == "pure":
        xxhash = pytest.importorskip("xxhash")
        monkeypatch.setattr(reader, "Decoder", entries.Decoder)
        monkeypatch.setattr(scan, "walk", None)
        plain = lambda data, seed: xxhash.xxh64_intdigest(data, seed)  # noqa: E731
        monkeypatch.setattr(hashing, "xxh64", plain)
    else:
        assert reader.Decoder is _entries.Decoder
    return str(request.param)


def place_of(name: str, tmp_path: Path) -> StoreDirectory:
    with tarfile.open(GOLDEN / f"{name}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    key_file = tmp_path / "key"
    key_file.write_text("golden\n")
    return StoreDirectory(
        str(tmp_path / "store"), key_file=str(key_file) if name.endswith("encrypted") else ""
    )


def digests(place: StoreDirectory, name: str, state: dict[str, Any]) -> list[str]:
    what = ReadRange(name, state["first_seq"], state["last_seq"] + 1, columns=COLUMNS, headers="raw")
    report = Report()
    rows = [row for batch in reader.read_range(place, what, report) for row in batch.to_pylist()]
    assert (report.rows, report.lost) == (len(rows), 0)
    return [digest(row) for row in rows]


def digest(row: dict[str, Any]) -> str:
    """Return the sequence and a digest of all fields of a message, as in tests/golden/make.py."""
    message = {"subject": row["subject"], "seq": row["seq"], "time": created_text(row["ts_ns"])}
    message |= {"hdrs": base64.b64encode(row["headers"]).decode()} if row["headers"] else {}
    message |= {"data": base64.b64encode(row["data"]).decode()} if row["data"] else {}
    whole = json.dumps(message, sort_keys=True).encode()
    return f"{row['seq']} {hashlib.sha256(whole).hexdigest()[:12]}"


@pytest.mark.parametrize("without_indexes", [False, True], ids=["whole", "without index files"])
@pytest.mark.parametrize("name", NAMES)
def test_what_the_server_saw_is_read(name: str, without_indexes: bool, kind: str, tmp_path: Path) -> None:
    place = place_of(name, tmp_path)
    for path in tmp_path.rglob("*.idx") if without_indexes else ():
        path.unlink()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "store").rglob("*")}
    expected = json.loads((GOLDEN / f"{name}.json").read_text())
    api = StoreApi(place)

    assert api.api("STREAM.NAMES") == {"streams": sorted(expected), "total": len(expected)}
    for stream, saw in expected.items():
        info = api.api(f"STREAM.INFO.{stream}")
        state = info["state"]
        assert info["created"] == saw["created"]
        assert (state["last_seq"], state["messages"]) == (saw["state"]["last_seq"], saw["state"]["messages"])
        if saw["messages"]:
            assert state["first_seq"] == saw["state"]["first_seq"]
        assert digests(place, stream, saw["state"]) == saw["messages"]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "store").rglob("*")} == before


@pytest.mark.parametrize("name", ["format-3", "format-3-encrypted"])
def test_a_store_with_a_changed_byte_anywhere_is_refused_or_read_as_if_it_were_whole(
    name: str, tmp_path: Path
) -> None:
    place = place_of(name, tmp_path)
    expected = json.loads((GOLDEN / f"{name}.json").read_text())
    rng = random.Random(name)
    streams = tmp_path / "store" / "jetstream" / "$G" / "streams"
    files = sorted(path for kind in ("msgs/*", "meta.?") for path in streams.glob(f"*/{kind}"))
    refused = 0
    for _ in range(60):
        path = rng.choice(files)
        data = path.read_bytes()
        at = rng.randrange(len(data.rstrip(b"\0")))
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :])
        stream = path.relative_to(streams).parts[0]
        try:
            assert digests(place, stream, expected[stream]["state"]) == expected[stream]["messages"]
        except BadStore:
            refused += 1
        path.write_bytes(data)
    assert 0 < refused < 60
