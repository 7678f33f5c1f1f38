"""Three servers open the store directories of a cluster that were written long ago, and continue to use them."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from raft.tests.conftest import is_here
from tests.conformance.harness.asker import Asker
from tests.conformance.harness.cluster import NAMES
from tests.golden.make_cluster import HERE, NAME, ask, cluster, everything

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

GOLDEN = sorted(path.stem for path in HERE.glob("*.json"))


@pytest.mark.parametrize("name", GOLDEN)
def test_a_cluster_has_what_it_had_and_goes_on(name: str, tmp_path: Path) -> None:
    expected = json.loads((HERE / f"{name}.json").read_text())
    with cluster(tmp_path) as servers:
        with tarfile.open(HERE / f"{name}.tar.xz") as archive:
            archive.extractall(tmp_path, filter="data")
        servers.start()
        asker = Asker(servers.client("a"))
        assert everything(asker) == expected

        last = expected["TRIPLE"]["state"]["last_seq"]
        assert ask(asker, "triple.0", {"number": "one more"})["seq"] == last + 1
        servers.release()
        for each in NAMES:
            servers.server(each).kill()
        servers.start()  # what the first start wrote is of today
        assert everything(Asker(servers.client("b")))["TRIPLE"]["state"]["last_seq"] == last + 1


def test_there_is_a_golden_cluster_of_the_format() -> None:
    assert NAME in GOLDEN
