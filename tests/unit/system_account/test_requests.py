"""System requests of a node on a virtual clock: hostile bodies, faults, and accounts added by a reload."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from pyjs.config.load import load_options
from pyjs.core.account import Account
from pyjs.monitor.state import Monitored, ProcessStats
from pyjs.system_account.answers import Answers
from pyjs.system_account.bodies import BODIES
from pyjs.system_account.requests import SERVER_PAGES, SystemRequests
from pyjs.testing import RawClient, VirtualNode

CONFIG = """
accounts {
    OPS { users: [{user: ops, password: o}] }
    A { users: [{user: a, password: a}] }
}
system_account: OPS
"""


class Served(VirtualNode):
    """A node whose system requests are answered; `asked` is a client of the system account."""

    def __init__(self, config: str = CONFIG) -> None:
        super().__init__(load_options("server.conf", lambda path: config, {}, {}))
        self.errors: list[str] = []
        self.made = 0
        self.requests = SystemRequests(self.node, self.make_answers, self.reload)
        self.requests.subscribe()
        self.asked = self.client(b'{"user":"ops","pass":"o","headers":true,"no_responders":true}')

    def make_answers(self) -> Answers:
        self.made += 1
        return Answers(Monitored(self.node, self.options, ProcessStats(), 0, True))

    def reload(self, then: Callable[[str], None]) -> None:
        then(self.errors.pop() if self.errors else "")

    def ask(self, subject: str, body: bytes = b"", client: RawClient | None = None) -> dict[str, Any]:
        frame = (client or self.asked).request(f"$SYS.REQ.{subject}".encode(), body)
        found: dict[str, Any] = json.loads(frame.payload)
        return found


@pytest.fixture
def served() -> Served:
    return Served()


def test_what_answers_is_made_by_the_first_request(served: Served) -> None:
    assert not served.requests.in_use
    for _ in range(2):
        served.ask("USER.INFO")
    assert served.made == 1


HOSTILE = [
    b"{" * 100_000,
    b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    b'{"offset":' + b"9" * 5_000 + b"}",
    b'{"offset":9223372036854775807,"limit":9223372036854775807,"subscriptions":true}',
    b'{"offset":-9223372036854775808,"limit":-1,"cid":18446744073709551615,"state":-1}',
    b'{"cid":18446744073709551616}',
    b'{"server_name":"\xff\xfe","tags":["\\u0000"]}',
    b'{"tags":[' + b'"x",' * 100_000 + b'"x"]}',
    b'{"accounts":[null,1,"A"]}',
    b'{"account":"A","streams":true,"consumer":true,"config":true,"name":"","test":"a..b"}',
    b"null",
    b"\x00",
]


@pytest.mark.parametrize("body", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_body_is_answered_or_ignored_and_harms_nothing(served: Served, body: bytes) -> None:
    subjects = [f"SERVER.PING.{name}" for name in SERVER_PAGES]
    subjects += [
        f"ACCOUNT.{name}.{page}" for name in ("A", "PING", "*") for page in ("CONNZ", "STATZ", "INFO", "JSZ")
    ]
    subjects += [f"SERVER.{served.node.server_id}.{name}" for name in ("KICK", "LDM")]
    for subject in subjects:
        served.asked.send(b"PUB $SYS.REQ.%b %d\r\n%b\r\n" % (subject.encode(), len(body), body))
    assert served.node.faults.counts == {}
    assert served.ask("SERVER.PING.HEALTHZ")["data"]["status"] == "ok"


def test_every_page_has_a_body() -> None:
    assert {*SERVER_PAGES} < {*BODIES}


def test_a_page_that_fails_is_answered_with_an_error_and_counted(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(given: object) -> None:
        raise RuntimeError("a page")

    monkeypatch.setitem(served.requests.answers._pages, "VARZ", fail)  # type: ignore[arg-type]
    assert served.ask("SERVER.PING.VARZ")["error"] == {"code": 500, "description": "internal error"}
    assert sum(served.node.faults.counts.values()) == 1
    assert "data" in served.ask("SERVER.PING.CONNZ")


def test_an_account_of_a_reload_is_served_once(served: Served) -> None:
    later = CONFIG.replace("accounts {", "accounts {\nB { users: [{user: b, password: b}] }")
    served.node.apply_options(load_options("server.conf", lambda path: later, {}, {}))
    for _ in range(2):
        served.requests.subscribe()
    client = served.client(b'{"user":"b","pass":"b"}')
    assert served.ask("USER.INFO", client=client)["data"]["account"] == "B"
    accounts: dict[str, Account] = served.node.accounts
    assert {name: len(accounts[name].subs) for name in "AB"} == {"A": 4, "B": 4}


def test_without_a_system_account_nobody_is_served() -> None:
    served = VirtualNode(no_system_account=True)
    SystemRequests(served.node, lambda: pytest.fail("asked"), lambda then: None).subscribe()
    assert [len(account.subs) for account in served.node.accounts.values()] == [0]


def test_the_error_of_a_reload_is_the_answer(served: Served) -> None:
    subject = f"SERVER.{served.node.server_id}.RELOAD"
    served.errors.append("no file")
    assert served.ask(subject)["error"] == {"code": 500, "description": "no file"}
    assert list(served.ask(subject)) == ["server"]
