"""The model of a server's configuration: where it is accepted, and which setting takes precedence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from pyjs.aio import Server, ServerThread
from pyjs.aio.configuration import options_from
from pyjs.config.errors import ConfigError
from pyjs.models import (
    AccountOptions,
    AuthorizationOptions,
    JetStreamOptions,
    ServerOptions,
    SubjectsOptions,
    UserOptions,
)
from pyjs.testing import VirtualNode

ROOT = Path(__file__).resolve().parents[3]


def test_a_model_says_what_keys_say(tmp_path: Path) -> None:
    # given
    model = ServerOptions(
        max_payload=4096,
        ping_interval="30s",
        jetstream=JetStreamOptions(store_dir=tmp_path, max_mem="1GB"),
        accounts={"A": AccountOptions(users=[UserOptions(user="a", password="p")], jetstream=True)},
    )
    # when
    options = options_from(model, {})
    # then
    assert (options.limits.max_payload, options.limits.ping_interval_ns) == (4096, 30_000_000_000)
    assert (options.jetstream.store_dir, options.jetstream.max_memory) == (str(tmp_path), 1 << 30)
    assert options.accounts["A"].users[0].user == "a"
    assert (options.host, options.port) == ("127.0.0.1", -1)


def test_keys_stand_above_the_model() -> None:
    assert options_from(ServerOptions(max_payload=1, ping_max=7), {"max_payload": 2}).limits.max_payload == 2


def test_the_reader_of_the_configuration_has_the_last_word() -> None:
    with pytest.raises(ConfigError, match=r'"lame_duck_duration" is 1s, the shortest is 30s'):
        options_from(ServerOptions(lame_duck_duration="1s"), {})


def test_a_name_that_does_not_exist_is_told() -> None:
    with pytest.raises(ValidationError, match="max_paylod"):
        ServerOptions(max_paylod=1)  # type: ignore[call-arg]


def test_what_a_model_shows_of_itself_has_no_secrets() -> None:
    model = ServerOptions(
        authorization=AuthorizationOptions(users=[UserOptions(user="a", password="secret")]), port=5
    )
    assert "secret" not in repr(model)
    assert "secret" not in str(model)
    assert "port=5" in repr(model)
    assert "http_port" not in repr(model)


def test_subjects_are_a_list_or_a_block() -> None:
    user = {"user": "a", "permissions": {"publish": {"allow": ["b"], "deny": "c"}, "subscribe": ["d"]}}
    model = AuthorizationOptions.model_validate({"users": [user]})
    assert model.users is not None
    assert model.users[0].permissions is not None
    assert isinstance(model.users[0].permissions.publish, SubjectsOptions)


async def test_a_server_takes_a_model() -> None:
    async with Server(ServerOptions(server_name="modelled")) as server:
        assert server.client_url.startswith("nats://127.0.0.1:")


def test_a_server_in_a_thread_takes_a_model() -> None:
    with ServerThread(ServerOptions(jetstream=False)) as server:
        assert server.client_url.startswith("nats://127.0.0.1:")


def test_a_virtual_node_takes_a_model() -> None:
    with VirtualNode(ServerOptions(jetstream=True, max_payload=77)) as node:
        assert node.options.limits.max_payload == 77


@pytest.mark.parametrize(
    "program",
    [
        "import pyjs.cli; pyjs.cli.main(['-t', '-c', 'conf/jetstream.conf'])",
        "import asyncio, pyjs.aio\nasync def main():\n async with pyjs.aio.Server(): pass\nasyncio.run(main())",
        "import pyjs.testing, pyjs.pytest_plugin",
    ],
)
def test_pydantic_is_not_imported_unless_a_model_is(program: str) -> None:
    # given
    asked = f"{program}\nimport sys; print('pydantic' in sys.modules)"
    # when
    command, environment = [sys.executable, "-c", asked], {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    # then
    assert run.stdout.split()[-1] == "False"
