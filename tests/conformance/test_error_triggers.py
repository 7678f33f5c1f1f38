"""JetStream errors that no scenario can provoke: the tests make the archives and tokens that provoke them."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from nats.js.api import AckPolicy
from tests.conformance.harness.both import needs_peer, of_both
from tests.conformance.harness.process import ServerProcess
from tests.support import archives
from tests.support.archive_bytes import archive, entries
from tests.support.jwt_clients import TokenClient, World

from pyjs.testing.jwt import Key, user_token

pytestmark = needs_peer
CONFIG = 'jetstream { store_dir: "<<store>>" }\n'


def seen_of_both(directory: Path, look: Callable[[Client], Awaitable[Any]]) -> list[Any]:
    """Return the results of `look` for a client of nats-server, then of ours."""

    async def connected(port: int) -> Any:
        client = await archives.connected(port)
        try:
            return await look(client)
        finally:
            await client.close()

    def run(server: ServerProcess) -> Any:
        return asyncio.run(connected(server.port))

    return of_both(directory, CONFIG, run)


STORED = (
    b"junk",
    b"[]",
    b"{}",
    b'{"val":7}',
    b'{"val":null}',
    b'{"val":"zz"}',
    b'{"val":"12x"}',
    b'{"val":"-5 "}',
    b'{"val":"7"}',
)


def test_a_stored_value_that_is_no_counter_is_added_to_or_refused_as_by_nats_server(tmp_path: Path) -> None:
    async def look(client: Client) -> Any:
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s.>"])
        for number, payload in enumerate(STORED):
            await js.publish(f"s.{number}", payload)
        backup = await archives.back_up(client, "S")
        await js.delete_stream("S")
        counting = dataclasses.replace(backup, config=backup.config | {"allow_msg_counter": True})
        restored = await archives.restored(client, counting)
        assert "error" not in restored, restored
        return [
            (await client.request(f"s.{number}", b"", headers={"Nats-Incr": "1"})).data
            for number in range(len(STORED) + 1)
        ]

    # when
    peer, ours = seen_of_both(tmp_path, look)
    # then
    assert b'"err_code":10172' in peer[0]
    assert ours == peer


GARBAGE = {
    "text": b"this is no archive",
    "half": archive()[:-9],
    "without a state": archive(entries()[1:]),
}


def test_a_restore_of_what_is_no_archive_fails_with_number_and_code_of_nats_server(tmp_path: Path) -> None:
    async def look(client: Client) -> Any:
        errors = []
        for data in GARBAGE.values():
            config = {"name": "S", "subjects": ["s.>"]}
            answer = await archives.restored(client, archives.Backup(config, {}, data, ""))
            error = answer["error"]
            errors.append((error["err_code"], error["code"], error["description"]))
        return errors

    # when
    peer, ours = seen_of_both(tmp_path, look)
    # then
    assert [each[:2] for each in ours] == [each[:2] for each in peer] == [(10062, 500)] * len(GARBAGE)
    assert all(re.match("restore failed: ", each[2]) for each in (*peer, *ours))


def test_an_account_without_limits_for_one_replica_may_have_no_streams(tmp_path: Path) -> None:
    world, account, user = World(), Key("account"), Key("user")
    tier = {"mem_storage": 1 << 20, "disk_storage": 1 << 20, "streams": 5, "consumer": 5}
    world.add(account, "A", limits={"tiered_limits": {"R3": tier}})
    requests: dict[str, dict[str, Any]] = {
        "STREAM.CREATE.S": {"name": "S", "subjects": ["s"]},
        "STREAM.CREATE.M": {"name": "M", "subjects": ["m"], "storage": "memory"},
        "STREAM.CREATE.R": {"name": "R", "subjects": ["r"], "num_replicas": 3},
        "STREAM.RESTORE.S": {"config": {"name": "S", "subjects": ["s"]}, "state": {}},
        "STREAM.INFO.S": {},
    }

    def look(server: ServerProcess) -> Any:
        with closing(TokenClient(server.port, user_token(account, user), user)) as client:
            answers = []
            for subject, body in requests.items():
                payload = json.dumps(body).encode() if body else b""
                answers.append(json.loads(client.request(b"$JS.API." + subject.encode(), payload)))
            return answers

    # when
    config = world.config('jetstream { store_dir: "<<store>>" }')
    peer, ours = of_both(tmp_path, config, look)
    # then
    assert [each.get("error", {}).get("err_code") for each in peer][:2] == [10120, 10120]
    assert ours == peer


def test_a_consumer_for_an_earlier_stream_of_the_name_is_refused_with_the_identity(tmp_path: Path) -> None:
    async def look(client: Client) -> Any:
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s.>"])
        config = {"deliver_subject": "d", "name": "c", "direct": True}
        body, known = json.dumps({"stream_name": "S", "config": config}).encode(), ""
        seen: list[Any] = []
        for ident in ("", "wrong"):
            headers = {"Nats-Stream-Identity": ident} if ident else None
            answer = await client.request("$JS.API.CONSUMER.CREATE.S.c", body, headers=headers)
            told, shown = (answer.headers or {}).get("Nats-Stream-Identity", ""), json.loads(answer.data)
            known = told or known
            error = shown.get("error", {})
            seen.append(
                (len(told), error.get("err_code"), error.get("description", "").replace(known, "IDENT"))
            )
        await js.add_consumer("S", durable_name="d", ack_policy=AckPolicy.EXPLICIT)
        for headers in (None, {"Nats-Stream-Identity": "wrong"}):
            answer = await client.request("$JS.API.CONSUMER.RESET.S.d", b"", headers=headers)
            seen.append((answer.headers or {}).get("Nats-Stream-Identity") == known)
        return seen

    # when
    peer, ours = seen_of_both(tmp_path, look)
    # then
    assert peer[1] == (0, 10225, "consumer's stream identity does not match: IDENT")
    assert ours == peer
