"""The request that removes all streams of an account, with a virtual clock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.system_account.test_requests import CONFIG, Served

from pyjs.base.disk import OsDisk
from pyjs.testing import RawClient

MEMBER = b'{"user":"a","pass":"a","headers":true,"no_responders":true}'


@pytest.fixture
def served(tmp_path: Path) -> Served:
    config = CONFIG.replace("A {", "A { jetstream: enabled\n")
    node = Served(f'{config}\njetstream {{ store_dir: "{tmp_path}" }}\n')
    node.node.start_jetstream()
    return node


def api(client: RawClient, subject: str, body: object = None) -> dict[str, Any]:
    data = b"" if body is None else json.dumps(body).encode()
    return dict(json.loads(client.request(f"$JS.API.{subject}".encode(), data).payload))


def test_every_stream_is_gone_after_the_answer(served: Served) -> None:
    # given
    member = served.client(MEMBER)
    for name, storage in (("F", "file"), ("M", "memory")):
        api(member, f"STREAM.CREATE.{name}", {"name": name, "storage": storage})
    served.asked.send(b"SUB $JS.EVENT.ADVISORY.API audit\r\n")
    # when
    answer = api(served.asked, "ACCOUNT.PURGE.A")
    # then
    assert answer == {"type": "io.nats.jetstream.api.v1.account_purge_response", "initiated": True}
    assert api(member, "STREAM.NAMES")["streams"] is None
    assert ("INF", "Purge request for account A (streams: 2, hasAccount: true)") in served.log.lines


def test_an_account_without_streams_gets_the_same_answer(served: Served) -> None:
    assert api(served.asked, "ACCOUNT.PURGE.NONE")["initiated"]
    assert api(served.asked, "ACCOUNT.PURGE.OPS")["initiated"]
    assert ("INF", "Purge request for account NONE (streams: 0, hasAccount: false)") in served.log.lines


def test_a_stream_that_cannot_be_removed_is_told(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    member = served.client(MEMBER)
    api(member, "STREAM.CREATE.F", {"name": "F"})

    def fail(disk: OsDisk, old: str, new: str) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(OsDisk, "rename", fail)
    # when
    answer = api(served.asked, "ACCOUNT.PURGE.A")
    # then
    assert answer["error"]["err_code"] == 10050
    assert api(member, "STREAM.NAMES")["streams"] == ["F"]
