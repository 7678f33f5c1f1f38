"""Requirements of JetStream in a cluster on the configuration of a server."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest
from tests.conformance.harness.both import needs_peer
from tests.conformance.harness.process import peer_command
from tests.unit.config.conftest import Load, Refusal

from pyjs.config.errors import Place
from pyjs.config.load import load_options
from pyjs.config.options import Options, RouteUrl
from pyjs.config.ports.replicated import ENGINE, check_replicated, expected_servers


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a stand-in for the consensus engine, so that the test runs on every machine."""
    module = ModuleType(ENGINE)
    module.__spec__ = ModuleSpec(ENGINE, None)
    monkeypatch.setitem(sys.modules, ENGINE, module)


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


def test_jetstream_in_a_cluster_needs_the_engine(
    load: Load, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load(CLUSTER).jetstream.enabled
    monkeypatch.setitem(sys.modules, ENGINE, None)
    text = refusal(CLUSTER)
    assert text.startswith("server.conf:2:1: JetStream in a cluster needs the consensus engine")
    assert 'pip install "pyjs-server[cluster]", or make cluster in a checkout' in text
    assert not load(CLUSTER.replace("true", "false")).jetstream.enabled
    assert not load(CLUSTER.replace("cluster", "#")).cluster.port


def test_a_server_without_names_is_refused(refusal: Refusal) -> None:
    text = refusal("cluster {port: 6222}\njetstream: true")
    assert "requires `server_name`" in text
    assert "requires `cluster.name`" in text


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_the_example_of_three_servers_is_valid(name: str) -> None:
    path = Path(__file__).resolve().parents[4] / "conf" / "cluster" / f"{name}.conf"
    options = load_options(str(path), lambda each: Path(each).read_text(), {}, {})
    assert (options.server_name, options.jetstream.unique_tag, options.warnings.mistakes) == (name, "az:", ())
    assert options.cluster.port in [route.port for route in options.cluster.routes]
    assert expected_servers(options, own_routes=1) == 3
