"""Requests to the system account get the same answers as from nats-server.

Each scene is a function that takes a server and returns what it saw; both servers play it. Pages are compared by
their fields, since figures and times differ; error texts are compared in full.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from tests.conformance.harness.both import needs_peer, of_both
from tests.conformance.harness.process import ServerProcess, free_port
from tests.support.raw import RawClient

pytestmark = needs_peer
CONFIG = """
server_name: probe
server_tags: ["az:1", "b"]
accounts {
    SYS { users: [{user: sys, password: s}] }
    A {
        jetstream: enabled
        users: [
            {user: a, password: a}
            {user: limited, password: a, permissions: {
                publish: ["$SYS.>", "x"], subscribe: {deny: "no"}, allow_responses: {max: 3, expires: "1m"}
            }}
        ]
    }
    B { users: [{user: b, password: b}] }
}
system_account: SYS
"""
USERS = {
    user: {"user": user, "pass": word, "name": f"client {user}"}
    for user, word in (("sys", "s"), ("a", "a"), ("b", "b"), ("limited", "a"))
}
PAGES = "IDZ STATSZ VARZ SUBSZ CONNZ ROUTEZ GATEWAYZ LEAFZ ACCOUNTZ JSZ HEALTHZ RAFTZ".split()
FENCE = b"PUB $SYS.REQ.USER.INFO answer.1 0\r\n\r\n"
# Fields that only one of the two servers shows.
OF_ONE = {"imports", "scrub", "pyjs_faults"}


class Asker:
    """A client that sends requests."""

    def __init__(self, server: ServerProcess, user: str) -> None:
        fields = {"headers": True, "no_responders": True, "protocol": 1, "verbose": False, "rtt": True}
        connect = json.dumps(fields | USERS[user]).encode()
        self.client = RawClient(server.port, connect=b"CONNECT %b\r\n" % connect)
        told = self.ask("$SYS.REQ.USER.INFO")
        self.server_id = told["server"]["id"]

    def ask(self, subject: str, body: str = "", *, fences: int = 0) -> Any:
        """Return the answer, or "no responders", or "silence" if `fences` later requests are answered first.

        nats-server answers requests in parallel, so one later answer does not prove silence.
        """
        subject = subject.replace("<id>", getattr(self, "server_id", ""))
        client = self.client
        client.send(b"SUB answer.* 7\r\n")
        client.send(b"PUB %b answer.0 %d\r\n%b\r\n" % (subject.encode(), len(body), body.encode()))
        client.send(FENCE * bool(fences))
        found: Any = "silence"
        for answered, _, headers, payload in client.frames():
            if answered == b"answer.0":
                found = "no responders" if headers.startswith(b"NATS/1.0 503") else json.loads(payload)
                if not fences:
                    break
            fences -= answered == b"answer.1"
            if fences == 0:
                break
            client.send(FENCE * (answered == b"answer.1"))
        client.send(b"UNSUB 7\r\n")
        return found


def shape(value: Any) -> Any:
    """Return the fields of `value` and the types of their values; for a list, those of its first item."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items() if name not in OF_ONE}
    if isinstance(value, list):
        return [shape(each) for each in value[:1]]
    return (
        type(value).__name__ if not isinstance(value, (int, float)) or isinstance(value, bool) else "number"
    )


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_the_fields_that_nats_server_shows(tmp_path: Path, page: str) -> None:
    def look(server: ServerProcess) -> Any:
        asker = Asker(server, "sys")
        asked = [asker.ask(f"$SYS.REQ.SERVER.{whom}.{page}") for whom in ("PING", "<id>")]
        assert shape(asked[0]) == shape(asked[1])
        return shape(asked[0]), list(asked[0])

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer


@pytest.mark.parametrize("page", ["SUBSZ", "CONNZ", "LEAFZ", "JSZ", "INFO", "STATZ", "CONNS"])
def test_a_page_of_an_account_has_the_fields_that_nats_server_shows(tmp_path: Path, page: str) -> None:
    def look(server: ServerProcess) -> Any:
        asker, _member = Asker(server, "sys"), Asker(server, "a")
        of_a = asker.ask(f"$SYS.REQ.ACCOUNT.A.{page}")
        return shape(of_a), list(of_a), shape(asker.ask(f"$SYS.REQ.ACCOUNT.NONE.{page}", fences=20))

    peer, ours = of_both(tmp_path, CONFIG, look)
    if page == "CONNZ":  # for an account that does not exist, nats-server shows connections as null
        peer[2]["data"]["server_id"] = ours[2]["data"]["server_id"]
    assert ours == peer


REFUSED = [
    ("VARZ", "nojson"),
    ("VARZ", "[]"),
    ("STATSZ", "x"),
    ("HEALTHZ", '{"tags": 1}'),
    ("HEALTHZ", '{"stream": "S"}'),
    ("CONNZ", '{"limit": "x"}'),
    ("CONNZ", '{"cid": -1}'),
    ("CONNZ", '{"state": "open"}'),
    ("CONNZ", '{"sort": "nope"}'),
    ("CONNZ", '{"sort": "stop"}'),
    ("ACCOUNTZ", '{"account": "X"}'),
    ("KICK", '{"cid": 999}'),
    ("KICK", "{}"),
    ("LDM", '{"cid": 999}'),
]


def test_what_is_refused_is_refused_with_the_same_words(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        asker = Asker(server, "sys")
        answers = [asker.ask(f"$SYS.REQ.SERVER.<id>.{page}", body) for page, body in REFUSED]
        return [{name: value for name, value in answer.items() if name != "server"} for answer in answers]

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer


FILTERS = [
    '{"server_name": "pro"}',
    '{"server_name": "other"}',
    '{"server_name": "pro", "exact_match": true}',
    '{"server_name": "probe", "exact_match": true}',
    '{"tags": ["b"]}',
    '{"tags": ["b", "x"]}',
    '{"domain": "d"}',
    '{"cluster": "c"}',
    '{"host": "127.0"}',
    '{"unknown": 1}',
]


def test_a_filter_selects_the_servers_that_answer(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        asker = Asker(server, "sys")
        return [asker.ask("$SYS.REQ.SERVER.PING.HEALTHZ", body, fences=20) == "silence" for body in FILTERS]

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer


SUBJECTS = [
    *("$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.IDZ", "$SYS.REQ.SERVER.PING.CONNZ"),
    *("$SYS.REQ.SERVER.PING.NOPE", "$SYS.REQ.SERVER.<id>.VARZ", "$SYS.REQ.SERVER.other.VARZ"),
    *("$SYS.REQ.SERVER.<id>.KICK", "$SYS.REQ.SERVER.<id>.RELOAD", "$SYS.REQ.ACCOUNT.A.INFO"),
    *("$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.ACCOUNT.PING.STATZ", "$SYS.REQ.USER.INFO"),
]


@pytest.mark.parametrize("user", ["a", "b", "limited"])
def test_a_client_of_another_account_learns_about_itself_only(tmp_path: Path, user: str) -> None:
    def look(server: ServerProcess) -> Any:
        asker, _other = Asker(server, user), Asker(server, "sys")
        answers = {subject: asker.ask(subject) for subject in SUBJECTS}
        names = [each["name"] for each in answers["$SYS.REQ.SERVER.PING.CONNZ"]["data"]["connections"]]
        accounts = asker.ask("$SYS.REQ.ACCOUNT.PING.STATZ", '{"accounts": ["SYS"], "include_unused": true}')
        names += [each["acc"] for each in accounts["data"]["account_statz"]]
        names += [
            each["name"]
            for each in asker.ask("$SYS.REQ.ACCOUNT.PING.CONNZ", '{"acc": "SYS"}')["data"]["connections"]
        ]
        told = answers["$SYS.REQ.USER.INFO"]["data"]
        for lists in told.get("permissions", {}).values():
            for each in lists.values():
                if isinstance(each, list):
                    each.sort()  # nats-server gives no order here
        return (
            names,
            told,
            {s: a == "no responders" for s, a in answers.items()},
        )

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer


def test_a_kicked_client_loses_its_connection_and_monitoring_tells_why(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        asker, victim = Asker(server, "sys"), Asker(server, "a")
        found = asker.ask("$SYS.REQ.ACCOUNT.A.CONNZ")["data"]["connections"]
        answer = asker.ask("$SYS.REQ.SERVER.<id>.KICK", json.dumps({"cid": found[0]["cid"]}))
        with pytest.raises(ConnectionError):
            victim.client.fence()
        closed = asker.ask("$SYS.REQ.SERVER.PING.CONNZ", '{"state": 1}')["data"]["connections"]
        return list(answer), [each["reason"] for each in closed]

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer


def test_the_requests_to_the_monitoring_port_are_counted_over_nats_too(tmp_path: Path) -> None:
    port = free_port()

    def look(server: ServerProcess) -> Any:
        asker = Asker(server, "sys")
        asker.ask("$SYS.REQ.SERVER.PING.CONNZ")
        counts = [asker.ask("$SYS.REQ.SERVER.PING.VARZ")["data"]["http_req_stats"]]
        for path in ("connz", "varz", "varz?config=1", "subscriptionsz", "nothing"):
            with suppress(HTTPError), urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10) as page:
                page.read()
        return [*counts, asker.ask("$SYS.REQ.SERVER.PING.VARZ")["data"]["http_req_stats"]]

    peer, ours = of_both(tmp_path, f"{CONFIG}\nhttp: 127.0.0.1:{port}\n", look)
    assert ours == peer


def test_a_client_is_told_to_go_elsewhere(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        asker, victim = Asker(server, "sys"), Asker(server, "a")
        found = asker.ask("$SYS.REQ.ACCOUNT.A.CONNZ")["data"]["connections"]
        answer = asker.ask("$SYS.REQ.SERVER.<id>.LDM", json.dumps({"cid": found[0]["cid"]}))
        victim.client.read_until(b"INFO ")
        told = json.loads(victim.client.read_until(b"\r\n"))
        return list(answer), told["ldm"]

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer


def test_a_reload_is_asked_for_and_its_error_is_told(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        asker = Asker(server, "sys")
        good = asker.ask("$SYS.REQ.SERVER.<id>.RELOAD")
        config = next(path for path in tmp_path.glob("*/*.conf") if "probe" in path.read_text())
        text = config.read_text()
        config.write_text(text.replace("server_name: probe", "server_name: other"))
        refused = asker.ask("$SYS.REQ.SERVER.<id>.RELOAD")
        config.write_text(
            text.replace("system_account: SYS", "system_account: SYS\nno_such_key: 1\nmax_payload: x")
        )
        broken = asker.ask("$SYS.REQ.SERVER.<id>.RELOAD")
        config.unlink()
        text, _, values = refused["error"]["description"].partition(": ")
        assert text.startswith(
            "config reload not supported for "
        )  # then nats-server names the field in Go, our server the key
        return list(good), refused["error"]["code"], values, list(broken), broken["error"]["code"]

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer


def test_the_system_account_removes_all_streams_of_an_account(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        asker, member = Asker(server, "sys"), Asker(server, "a")
        for name, storage in (("F", "file"), ("M", "memory")):
            config = {"name": name, "subjects": [name.lower()], "storage": storage}
            member.ask(f"$JS.API.STREAM.CREATE.{name}", json.dumps(config))
        listener = Asker(server, "a")
        listener.client.send(b"SUB $JS.EVENT.ADVISORY.STREAM.> 9\r\nPING\r\n")
        listener.client.read_until(b"PONG\r\n")
        found = [
            Asker(server, "a").ask("$JS.API.ACCOUNT.PURGE.A", fences=20),
            member.ask("$JS.API.STREAM.NAMES")["streams"],
            *(asker.ask(f"$JS.API.ACCOUNT.PURGE.{name}", "x") for name in ("NONE", "B", "SYS", "A", "A")),
            member.ask("$JS.API.STREAM.NAMES")["streams"],
            Asker(server, "sys").ask("$JS.API.ACCOUNT.PURGE.A.B", fences=20),
        ]
        listener.client.send(b"PING\r\n")
        advisories = listener.client.read_until(b"PONG\r\n")
        # Without the size, which varies because trailing zeros of a time are omitted.
        lines = [line.rpartition(b" ")[0] for line in advisories.splitlines()]
        found.append(sorted(line for line in lines if line.startswith(b"MSG $JS.EVENT")))
        again = {"name": "F", "subjects": ["f"]}
        found.append("error" in member.ask("$JS.API.STREAM.CREATE.F", json.dumps(again)))
        return found

    with_streams = CONFIG + 'jetstream { store_dir: "<<store>>" }\n'
    peer, ours = of_both(tmp_path, with_streams, look)
    assert peer[3] == {"type": "io.nats.jetstream.api.v1.account_purge_response", "initiated": True}
    assert ours == peer
