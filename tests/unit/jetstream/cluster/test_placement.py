"""The servers on which a stream is placed, and the error if there are none."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from tests.unit.jetstream.cluster.metafixture import placed, server

from pyjs.jetstream.cluster.assignments import add_load
from pyjs.jetstream.cluster.placement import Rules, place, successor
from pyjs.jetstream.cluster.servers import Load, Server
from pyjs.jetstream.config.choices import MEMORY
from pyjs.jetstream.config.stream import Placement, StreamConfig
from pyjs.jetstream.errcodes import ApiError

ALL = Rules(online=range(10))
TRIO = [server(1, tags=("az:1", "ssd")), server(2, tags=("az:2", "ssd")), server(3, tags=("az:2",))]


def chosen(
    config: StreamConfig,
    servers: Iterable[Server] = TRIO,
    load: dict[int, Load] | None = None,
    rules: Rules = ALL,
    kept: tuple[int, ...] = (),
    avoided: tuple[int, ...] = (),
) -> tuple[int, ...] | str:
    """Return the chosen servers, or the text of the error after its common beginning."""
    try:
        return place(servers, config, "TRIO", load or {}, rules, kept, avoided)
    except ApiError as error:
        text = f"{error.code} {error.err_code} {error.description}"
        return text.removeprefix("400 10005 no suitable peers for placement").removeprefix(", ")


@pytest.mark.parametrize(
    ("tags", "replicas", "found"),
    [
        ((), 1, (1,)),
        ((), 3, (1, 2, 3)),
        (("ssd",), 2, (1, 2)),
        (("SSD",), 2, (1, 2)),
        (("!ssd",), 1, (3,)),
        (("az:2", "!ssd"), 1, (3,)),
        (("az:2", "ssd"), 1, (2,)),
        ((), 5, ""),
        (("ssd",), 3, "tags not matched ['ssd']"),
        (("SSD",), 3, "tags not matched ['SSD']"),
        (("gpu", "tpu"), 1, "tags not matched ['gpu']"),
        (("az:2", "az:1"), 1, "tags not matched ['az:1', 'az:2']"),
        (("az:1", "!ssd"), 1, "tags not matched ['az:1'], tags excluded ['ssd']"),
        (("!ssd",), 2, "tags excluded ['ssd']"),
        (("gpu", "!ssd"), 1, "tags not matched ['gpu']"),
        (("!az:1", "!az:2"), 1, "tags excluded ['az:1', 'az:2']"),
    ],
)
def test_tags_choose_servers(tags: tuple[str, ...], replicas: int, found: tuple[int, ...] | str) -> None:
    assert chosen(placed(*tags, num_replicas=replicas)) == found


def test_a_stream_goes_to_the_wanted_cluster_or_to_that_of_the_client() -> None:
    servers = [server(1), server(2, cluster="WEST")]
    assert chosen(placed(cluster="WEST"), servers) == (2,)
    assert chosen(placed(), servers) == (1,)
    assert chosen(placed(num_replicas=2), servers) == ""
    assert chosen(placed(cluster="NONE"), servers) == ""


def test_servers_that_are_away_or_excluded_get_nothing() -> None:
    rules = Rules(online={1, 2})
    assert chosen(placed(num_replicas=3), rules=rules) == "peer offline"
    servers = [server(1, evacuating=True), server(2, tags=("!jetstream",)), server(3)]
    assert chosen(placed(), servers) == (3,)
    assert chosen(placed(num_replicas=2), servers) == "exclude tag set"


def test_a_server_needs_room_for_the_bytes_of_the_stream() -> None:
    servers = [server(1, max_storage=100, max_memory=7), server(2, max_storage=50)]
    assert chosen(placed(max_bytes=100), servers[:1]) == (1,)
    assert chosen(placed(max_bytes=101), servers) == "insufficient storage"
    assert chosen(placed(max_bytes=100), servers, {1: Load(storage=1)}) == "insufficient storage"
    assert chosen(placed(), servers[:1], {1: Load(storage=200)}) == (1,)
    assert chosen(placed(max_bytes=8, storage=MEMORY), servers) == (2,)
    assert chosen(placed(max_bytes=8, storage=MEMORY), servers[:1]) == "insufficient storage"


def test_the_number_of_replicated_streams_of_a_server_is_bounded() -> None:
    rules = Rules(online=range(10), max_ha_assets=2)
    replicated = placed(num_replicas=2)
    assert chosen(replicated, TRIO[:2], {1: Load(ha_assets=1)}, rules) == (2, 1)
    assert chosen(replicated, TRIO[:2], {1: Load(ha_assets=2)}, rules) == "miscellaneous issue"
    assert chosen(placed(), TRIO[:1], {1: Load(ha_assets=2)}, rules) == (1,)


def test_of_servers_with_the_same_unique_tag_one_is_used() -> None:
    rules = Rules(online=range(10), unique_tag="az:")
    assert chosen(placed(num_replicas=2), rules=rules) == (1, 2)
    assert chosen(placed(num_replicas=3), rules=rules) == "server tag not unique"
    assert chosen(placed("az:2", num_replicas=2), rules=rules) == (2, 3)
    assert chosen(placed("!az:3", num_replicas=3), rules=rules) == (1, 2, 3)
    found = chosen(placed("AZ:2", num_replicas=2), rules=rules)
    assert found == "server tag not unique, tags not matched ['AZ:2']"
    assert chosen(placed(num_replicas=1), [server(1)], rules=rules) == "server tag not unique"
    assert chosen(placed(num_replicas=2), rules=rules, kept=(3,)) == (3, 1)
    assert chosen(placed("ssd", num_replicas=2), rules=rules, kept=(3,)) == (3, 1)


@pytest.mark.parametrize(
    ("placement", "found"),
    [
        (None, 0),
        (Placement(), 0),
        (Placement(preferred="n2"), 2),
        (Placement(preferred="n2", tags=("az:1",)), 2),
        (Placement(preferred="n1"), 'preferred server "n1" is already leader'),
        (Placement(preferred="zz"), 'preferred server "zz" not known'),
        (Placement(preferred="n4"), 'preferred server "n4" not known'),
        (Placement(preferred="n3"), "no replacement peer connected"),
        (Placement(tags=("ssd",)), 2),
        (Placement(tags=("az:1",)), "no replacement peer connected"),
        (Placement(tags=("!az:1",)), "no replacement peer connected"),
        (Placement(cluster="TRIO"), 2),
        (Placement(cluster="X"), "no replacement peer connected"),
    ],
)
def test_an_operator_may_choose_the_next_leader(placement: Placement | None, found: int | str) -> None:
    servers = {each.node: each for each in [*TRIO, server(4)]}
    try:
        chosen: int | str = successor(servers, (1, 2, 3), 1, placement, {1, 2, 4})
    except ApiError as error:
        chosen = error.description
    assert chosen == found


def test_the_only_replica_stays_leader() -> None:
    assert successor({1: TRIO[0]}, (1,), 1, Placement(preferred="zz"), {1}) == 0


def test_kept_servers_come_first_and_avoided_ones_do_not_come() -> None:
    assert chosen(placed(num_replicas=3), kept=(3, 1)) == (3, 1, 2)
    assert chosen(placed(num_replicas=2), kept=(3, 1, 2)) == (3, 1)
    assert chosen(placed(num_replicas=2), kept=(3,), avoided=(1,)) == (3, 2)
    assert chosen(placed(num_replicas=2), kept=(9,), avoided=(1, 2)) == (9, 3)
    assert chosen(placed(num_replicas=3), avoided=(1,)) == ""


def test_the_least_loaded_servers_come_first() -> None:
    full = [server(node, max_storage=100) for node in (1, 2, 3)]
    load = {1: Load(storage=60, streams=1), 2: Load(storage=10, streams=9, ha_assets=2), 3: Load(storage=60)}
    assert chosen(placed(), full, load) == (2,)
    assert chosen(placed(num_replicas=2), full, load) == (3, 1)
    assert chosen(placed(), TRIO, {1: Load(streams=2), 2: Load(streams=1), 3: Load(streams=1)}) == (2,)


def test_equal_facts_give_equal_servers_and_streams_are_spread() -> None:
    chance = random.Random(3)
    servers = [server(node, max_storage=10_000) for node in range(1, 6)]
    load: dict[int, Load] = {}
    for _ in range(50):
        config = placed(num_replicas=chance.choice((1, 3)), max_bytes=100)
        nodes = place(servers, config, "TRIO", load, ALL)
        chance.shuffle(servers)
        assert place(servers, config, "TRIO", load, ALL) == nodes
        add_load(load, config, nodes)
    counts = [each.streams for each in load.values()]
    assert max(counts) - min(counts) <= 3
