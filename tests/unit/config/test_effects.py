"""Each key of each table changes something that a client, an operator or a monitoring tool can observe."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.config.cluster_effects import CLUSTER_EFFECTS, CLUSTER_PROCESS_EFFECTS
from tests.unit.config.effects import NODE_EFFECTS, Effect, open_site
from tests.unit.config.exchange_effects import EXCHANGE_EFFECTS
from tests.unit.config.http_login_effects import HTTP_LOGIN_EFFECTS
from tests.unit.config.process_effects import PROCESS_EFFECTS, observe_process
from tests.unit.config.test_tables import ROWS, WRITE, attribute, content, target_of, value_of
from tests.unit.config.websocket_effects import PROXY_EFFECTS, WEBSOCKET_EFFECTS
from tests.unit.monitor.conftest import Site

from pyjs.config.load import load_options
from pyjs.config.options import Options
from pyjs.config.table import Key
from pyjs.config.tables import TABLES

SHOWN = (
    "",
    "jetstream",
    "jetstream.limits",
    "authorization",
)  # the tables that /varz?config=1 shows key by key


OF_PROCESSES = {
    **PROCESS_EFFECTS,
    **HTTP_LOGIN_EFFECTS,
    **WEBSOCKET_EFFECTS,
    **PROXY_EFFECTS,
    **CLUSTER_PROCESS_EFFECTS,
}
OF_THE_NODE = NODE_EFFECTS | EXCHANGE_EFFECTS | CLUSTER_EFFECTS


def names(effects: dict[str, list[Effect]]) -> list[tuple[str, Effect]]:
    return [(name, effect) for name, several in effects.items() for effect in several]


def identifiers(effects: dict[str, list[Effect]]) -> list[str]:
    return [name for name, _ in names(effects)]


def test_every_key_has_an_experiment() -> None:
    keys = {f"{path}/{key.name}".lstrip("/") for path, table in TABLES.items() for key in table.keys}
    keys.remove(
        "websocket/jwt_cookie"
    )  # needs operators: tests/conformance/test_websocket_logins.py tries it
    keys.remove("jetstream/spread_workers")  # needs workers: tests/system/test_workers_streams.py tries it
    # applied by the server, not by the node: tests/unit/server/declaring tries them
    for path in ("jetstream", "accounts.*.jetstream"):
        keys -= {f"{path}/{name}" for name in ("streams", "consumers", "kv", "object_store")}
    tried = [*OF_THE_NODE, *OF_PROCESSES]
    assert sorted(tried) == sorted(keys)


@pytest.mark.parametrize(("name", "effect"), names(OF_THE_NODE), ids=identifiers(OF_THE_NODE))
def test_a_key_changes_what_the_node_does(name: str, effect: Effect, tmp_path: Path) -> None:
    # given
    (tmp_path / "with").mkdir()
    (tmp_path / "without").mkdir()
    changed = open_site(effect.file(tmp_path / "with", with_key=True))
    usual = open_site(effect.file(tmp_path / "without", with_key=False))
    # then
    assert effect.observe(changed) != effect.observe(usual)
    assert name.rpartition("/")[2] in effect.key
    assert changed.log.lines == [] or "unexpected" not in str(changed.log.lines)


@pytest.mark.parametrize(("name", "effect"), names(OF_PROCESSES), ids=identifiers(OF_PROCESSES))
def test_a_key_changes_what_the_process_does(name: str, effect: Effect, tmp_path: Path) -> None:
    changed = observe_process(effect, tmp_path / "with", with_key=True)
    usual = observe_process(effect, tmp_path / "without", with_key=False)
    assert changed != usual
    assert name.rpartition("/")[2] in effect.key


@pytest.mark.parametrize(
    ("path", "key"),
    [(path, key) for path, _, key, name in ROWS if path in SHOWN and name == key.name],
    ids=lambda value: value.name if isinstance(value, Key) else value,
)
def test_a_key_is_visible_in_varz(path: str, key: Key) -> None:
    # given
    empty = load("user: a" if path == "authorization" else "", path)
    value = value_of(path, key, content(attribute(target_of(empty, path), key.attrs[0])))
    # when
    changed = load(f"{key.name}: {value}", path)
    # then
    assert shown(changed) != shown(empty)


def shown(options: Options) -> object:
    base = f"/{options.monitoring.base_path}" if options.monitoring.base_path else ""
    return Site(options).json(f"{base}/varz?config=1")["config"]


def test_varz_is_as_it_is_elsewhere_without_the_argument() -> None:
    site = Site(Options())
    assert "config" not in site.json("/varz")
    assert "config" not in site.json("/varz?config=maybe")


def load(text: str, path: str) -> Options:
    return load_options("server.conf", lambda _: WRITE[path].format(text), {}, {})


def test_no_secret_is_visible_in_varz() -> None:
    text = "authorization { token: hush }\naccounts { A { users: [{user: u, password: hush}] } }"
    for config in (
        text.partition("\n")[0],
        text.partition("\n")[2],
        "authorization { user: u, password: hush }",
    ):
        site = open_site(config)
        assert b"hush" not in site.ask("/varz?config=1").body
        assert b"***" in site.ask("/varz?config=1").body
