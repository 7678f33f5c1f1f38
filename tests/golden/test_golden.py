"""A store directory that was written long ago can be opened, and has its original contents."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from tests.conformance.harness.process import ServerProcess, our_command
from tests.golden.make import HERE, config_of, everything
from tests.support.raw import RawClient

NAMES = sorted(path.stem for path in HERE.glob("*.json"))


@pytest.mark.parametrize("without_indexes", [False, True], ids=["whole", "without index files"])
@pytest.mark.parametrize("name", NAMES)
def test_what_was_stored_is_there(name: str, without_indexes: bool, tmp_path: Path) -> None:
    with tarfile.open(HERE / f"{name}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    for path in tmp_path.rglob("*.idx") if without_indexes else ():
        path.unlink()
    expected = json.loads((HERE / f"{name}.json").read_text())
    server = ServerProcess(our_command(), config_of(name), tmp_path, with_http=False)
    try:
        for _ in range(2):  # what the first start wrote is of today
            server.start()
            assert everything(RawClient(server.port)) == expected
            server.stop()
    finally:
        server.kill()


def test_there_is_a_golden_directory_of_the_format() -> None:
    assert {"format-3", "format-3-encrypted"} <= set(NAMES)
