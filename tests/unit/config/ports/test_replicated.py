"""What JetStream needs of the configuration of a server in a cluster."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.conformance.harness.both import needs_peer
from tests.conformance.harness.process import peer_command
from tests.unit.config.conftest import Load, Refusal

from pyjs.config.errors import Place
from pyjs.config.load import load_options
from pyjs.config.options import Options, RouteUrl
from pyjs.config.ports.cluster import UNFINISHED
from pyjs.config.ports.replicated import check_replicated, expected_servers


def configured(**changes: object) -> Options:
    options = Options()
    options.server_name, options.cluster.name = "n1", "EAST"
    for name, value in changes.items():
        part = (
            options.cluster
            if name == "cluster_name"
            else options.jetstream
            if name == "unique_tag"
            else options
        )
        setattr(part, name.removeprefix("cluster_"), value)
    return options


def causes(options: Options) -> list[str]:
    return [problem.cause for problem in check_replicated(options, lambda attr: Place(attr, 1, 1))]


def test_a_named_server_in_a_named_cluster_is_right() -> None:
    assert causes(configured()) == []
    assert causes(configured(unique_tag="az:", server_tags=("ssd", "az:1"))) == []


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"server_name": ""}, "jetstream cluster requires `server_name` to be set"),
        ({"cluster_name": ""}, "jetstream cluster requires `cluster.name` to be set"),
    ],
)
@needs_peer
def test_names_are_needed_as_on_nats_server(changes: dict[str, object], cause: str, tmp_path: Path) -> None:
    options = configured(**changes)
    config = tmp_path / "c.conf"
    names = f"server_name: {options.server_name}" if options.server_name else ""
    name = f"name: {options.cluster.name}, " if options.cluster.name else ""
    config.write_text(
        f'{names}\nport: -1\njetstream {{store_dir: "{tmp_path}"}}\ncluster {{ {name}port: -1 }}\n'
    )
    peer = peer_command()
    assert peer is not None
    run = subprocess.run([*peer, "-c", str(config)], capture_output=True, text=True, timeout=60, check=False)
    assert cause in run.stderr
    assert causes(options) == [cause]


def test_a_server_without_its_unique_tag_would_get_nothing() -> None:
    assert causes(configured(unique_tag="az:", server_tags=("ssd",))) == [
        'no tag of this server begins with the unique_tag "az:": it would get no streams'
    ]


def test_routes_name_the_servers_of_a_cluster() -> None:
    options = configured()
    assert expected_servers(options, 0) == 1
    options.cluster.routes = (RouteUrl("b", 1), RouteUrl("c", 1), RouteUrl("c", 1))
    assert expected_servers(options, 0) == 3
    options.cluster.routes = (RouteUrl("a", 1), RouteUrl("b", 1), RouteUrl("c", 1))
    assert expected_servers(options, 1) == 3


CLUSTER = "server_name: n1\ncluster {name: EAST, port: 6222}\njetstream: true"


def test_jetstream_in_a_cluster_needs_the_switch(load: Load, refusal: Refusal) -> None:
    assert "JetStream in a cluster is not supported yet" in refusal(CLUSTER)
    assert "JetStream in a cluster is not supported yet" in refusal(CLUSTER, environ={UNFINISHED: "yes"})
    assert load(CLUSTER, environ={UNFINISHED: "1"}).jetstream.enabled


def test_names_are_asked_for_with_the_switch(refusal: Refusal) -> None:
    text = refusal("cluster {port: 6222}\njetstream: true", environ={UNFINISHED: "1"})
    assert "requires `server_name`" in text
    assert "requires `cluster.name`" in text


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_the_example_of_three_servers_is_valid(name: str) -> None:
    path = Path(__file__).resolve().parents[4] / "conf" / "cluster" / f"{name}.conf"
    options = load_options(str(path), lambda each: Path(each).read_text(), {UNFINISHED: "1"}, {})
    assert (options.server_name, options.jetstream.unique_tag, options.warnings.mistakes) == (name, "az:", ())
    assert options.cluster.port in [route.port for route in options.cluster.routes]
    assert expected_servers(options, own_routes=1) == 3
