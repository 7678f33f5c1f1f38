"""The worker on which a new stream is placed."""

from __future__ import annotations

import json

import pytest

from pyjs.config.options import AccountJetStreamOptions
from pyjs.jetstream.config.stream import StreamConfig, StreamSource
from pyjs.jetstream.spread.placing import is_bound, least_loaded, origins_in, related

ORIGIN = StreamConfig(name="O")
MIRROR = StreamConfig(name="M", mirror=StreamSource(name="N"))
SUM = StreamConfig(name="SUM", sources=(StreamSource(name="P"), StreamSource(name="O")))
CONFIGS = {"O": (2, ORIGIN), "M": (3, MIRROR), "SUM": (4, SUM)}


def test_a_stream_goes_to_the_worker_with_the_fewest_and_not_to_the_first_one_if_equal() -> None:
    assert least_loaded({}, [1, 2, 3]) == 3
    assert least_loaded({3: 1}, [1, 2, 3]) == 2
    assert least_loaded({2: 1, 3: 1}, [1, 2, 3]) == 1
    assert least_loaded({1: 5, 2: 7, 3: 6}, [1, 2, 3]) == 1


def test_a_copy_goes_to_its_origin_and_an_origin_to_its_copy() -> None:
    assert related("X", ["none", "O"], CONFIGS) == 2
    assert related("N", [], CONFIGS) == 3
    assert related("P", [], CONFIGS) == 4
    assert related("X", ["none"], CONFIGS) == 0


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({"name": "M", "mirror": {"name": "A"}}, ["A"]),
        ({"name": "S", "sources": [{"name": "A"}, {"name": "B"}]}, ["A", "B"]),
        ({"config": {"name": "S", "sources": [{"name": "A"}]}, "state": {}}, ["A"]),
        ({"mirror": "A", "sources": [1, {"name": 2}]}, []),
        ({"sources": 5}, []),
        ({"config": 5}, []),
        ([], []),
    ],
)
def test_the_origins_of_a_request_are_its_mirror_and_sources(body: object, names: list[str]) -> None:
    assert origins_in(json.dumps(body).encode()) == names


def test_a_request_that_is_no_json_has_no_origins() -> None:
    assert origins_in(b"{") == []


def test_an_account_with_limits_on_bytes_stays_in_the_first_worker() -> None:
    assert not is_bound(AccountJetStreamOptions())
    assert not is_bound(AccountJetStreamOptions(max_streams=5))
    assert is_bound(AccountJetStreamOptions(max_memory=0))
    assert is_bound(AccountJetStreamOptions(max_storage=1 << 30))
