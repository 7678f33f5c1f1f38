"""Clients of a cluster of three servers see the same as clients of three nats-servers.

Each scene is a function that takes three running servers and returns what clients and operators saw. It is played on
three nats-servers and on three of ours, and the results must be equal.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conformance.harness.both import needs_peer
from tests.conformance.harness.cluster import NAMES, WAIT_S, NodeClient, ThreeServers, counted, three
from tests.conformance.harness.process import our_command, peer_command

PEER = peer_command()
pytestmark = needs_peer
COMMON = """
accounts {
    A {
        users: [
            {user: a, password: a}
            {user: few, password: a, permissions: {
                publish: ["open.>", "_INBOX.>", "fence.>", "end.>"]
                subscribe: {allow: ["open.>", "_INBOX.>", "fence.>", "end.>"], deny: "open.secret"}
            }}
            {user: answers, password: a, permissions: {
                publish: ["fence.>", "end.>"], subscribe: ["svc.>", "fence.>", "end.>", "_INBOX.>"]
                allow_responses: true
            }}
        ]
        exports: [{stream: "feed.>"}, {service: "svc.>"}, {stream: "private.>", accounts: [B]}]
    }
    B {
        users: [{user: b, password: b}]
        imports: [
            {stream: {account: A, subject: "feed.>"}, to: "news.>"}
            {service: {account: A, subject: "svc.double"}, to: "double"}
            {stream: {account: A, subject: "private.>"}}
        ]
    }
    M { users: [{user: m, password: m}], mappings: {"old.*": "new.$1"} }
    SYS { users: [{user: s, password: s}] }
}
no_auth_user: a
system_account: SYS
"""
Scene = Callable[[ThreeServers], Any]
LOGINS: dict[str, dict[str, object]] = {
    "A": {},
    "few": {"user": "few", "pass": "a"},
    "answers": {"user": "answers", "pass": "a"},
    "B": {"user": "b", "pass": "b"},
    "M": {"user": "m", "pass": "m"},
    "SYS": {"user": "s", "pass": "s"},
}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ThreeServers]]:
    assert PEER is not None
    directory = tmp_path_factory.mktemp("cluster")
    with (
        three(PEER, directory / "peer", COMMON) as peers,
        three(our_command(), directory / "ours", COMMON) as ours,
    ):
        yield [peers, ours]


def everywhere(servers: ThreeServers, login: str = "A") -> dict[str, NodeClient]:
    return {name: servers.client(name, **LOGINS[login]) for name in NAMES}


# -- who gets what ---------------------------------------------------------------------------------------------

# Subscriptions by server: (subject, queue group) in the order of their sids.
LAYOUTS: dict[str, dict[str, list[tuple[str, str]]]] = {
    "one elsewhere": {"b": [("x.y", "")]},
    "one here": {"a": [("x.y", "")]},
    "one on each": {name: [("x.y", "")] for name in NAMES},
    "wildcards": {"a": [("x.*", "")], "b": [("x.>", "")], "c": [(">", "")]},
    "several on one server": {"b": [("x.y", ""), ("x.*", ""), ("x.>", ""), ("x.y", "")]},
    "another subject": {"b": [("x.z", "")], "c": [("x", "")]},
    "a group elsewhere": {"b": [("x.y", "g")]},
    "a group here and there": {"a": [("x.y", "g")], "b": [("x.y", "g")], "c": [("x.y", "g")]},
    "a group here only": {"a": [("x.y", "g"), ("x.y", "g")]},
    "two groups": {"b": [("x.y", "g"), ("x.y", "h")]},
    "two groups on two servers": {"b": [("x.y", "g")], "c": [("x.y", "h")]},
    "group and plain on one server": {"b": [("x.y", "g"), ("x.y", "")]},
    "group here and plain elsewhere": {"a": [("x.y", "g")], "b": [("x.y", "")]},
    "plain here and group elsewhere": {"a": [("x.y", "")], "b": [("x.y", "g")]},
    "one group by two subjects": {"b": [("x.*", "g")], "a": [("x.y", "g")]},
    "groups and wildcards": {"a": [("x.>", "h")], "b": [("x.*", "g"), ("x.>", "")], "c": [("x.y", "h")]},
    "one name for group and subject": {"b": [("x.y", "x.y"), ("x.y", "")]},
}


@pytest.mark.parametrize("publisher", NAMES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_messages_reach_the_same_subscriptions(both: list[ThreeServers], layout: str, publisher: str) -> None:
    word = f"{list(LAYOUTS).index(layout)}{publisher}"  # so that no test gets messages of another test

    def scene(servers: ThreeServers) -> Any:
        receivers = everywhere(servers)
        for name, subscriptions in LAYOUTS[layout].items():
            for sid, (subject, queue) in enumerate(subscriptions, 1):
                receivers[name].send(f"SUB {subject.replace('x', word)} {queue} {sid}\r\n".encode())
        sender = servers.client(publisher)
        servers.settle(*receivers.values())
        for _ in range(12):
            sender.send(f"PUB {word}.y 2\r\nhi\r\n".encode())
        found = servers.seen(sender, receivers)
        mine = f"{word}.y".encode()
        found = {name: [frame for frame in frames if frame[0] == mine] for name, frames in found.items()}
        return _by_group(found, LAYOUTS[layout])

    same(both, scene)


def _by_group(found: dict[str, Any], layout: dict[str, list[tuple[str, str]]]) -> Any:
    """Return the number of messages by subscription; a queue group is one, since its members are chosen at random.

    This holds for groups with members on several servers too: nats-server chooses any member of the cluster, our
    server prefers members on the publisher's server.
    """
    out: dict[tuple[str, str], int] = {}
    for name, counts in counted(found).items():
        for sid, count in counts.items():
            subject, queue = layout[name][int(sid) - 1]
            key = ("", queue) if queue else (name, f"{subject} {sid.decode()}")
            out[key] = out.get(key, 0) + count
    return out


# -- what a message carries ------------------------------------------------------------------------------------

BODIES = {
    "nothing": b"PUB m.x 0\r\n\r\n",
    "a reply": b"PUB m.x _INBOX.reply.1 2\r\nhi\r\n",
    "headers": b"HPUB m.x 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\n",
    "headers and a reply": b"HPUB m.x _INBOX.r 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\n",
    "headers alone": b"HPUB m.x 18 18\r\nNATS/1.0\r\nA: b\r\n\r\n\r\n",
    "all bytes": b"PUB m.x 256\r\n" + bytes(range(256)) + b"\r\n",
    "a megabyte": b"PUB m.x 1048576\r\n" + b"m" * 1048576 + b"\r\n",
    "lines that look like a protocol": b"PUB m.x 17\r\nPUB m.x 2\r\nhi\r\n-E\r\n",
    "a long subject": b"PUB m." + b"t." * 200 + b"t 2\r\nhi\r\n",
    "blanks in the line": b"PUB  m.x   2\r\nhi\r\n",
    "a reply with blanks": b"PUB m.x  _INBOX.r   2\r\nhi\r\n",
}


@pytest.mark.parametrize("body", BODIES)
def test_messages_arrive_unchanged(both: list[ThreeServers], body: str) -> None:
    def scene(servers: ThreeServers) -> Any:
        receivers = everywhere(servers)
        plain = servers.client("b", headers=False, no_responders=False)
        for client in (*receivers.values(), plain):
            client.send(b"SUB m.> 1\r\n")
        servers.settle(*receivers.values())
        plain.fence()
        sender = servers.client("a")
        sender.send(BODIES[body])
        found = servers.seen(sender, receivers)
        plain.fence()
        return found, plain.take()

    same(both, scene)


# -- requests --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asker", NAMES)
@pytest.mark.parametrize("queue", ["", "workers"])
def test_a_request_is_answered_from_another_server(both: list[ThreeServers], asker: str, queue: str) -> None:
    def scene(servers: ThreeServers) -> Any:
        service, client = servers.client("b"), servers.client(asker)
        service.send(f"SUB svc.{asker} {queue} 1\r\n".encode())
        servers.settle(service, client)
        answers = []
        for number in range(5):
            inbox = f"_INBOX.{asker}{number}".encode()
            client.send(b"SUB %b i\r\nPUB svc.%b %b 1\r\n%d\r\n" % (inbox, asker.encode(), inbox, number))
            service.wait_for_any()
            (request,) = service.take()
            service.send(b"PUB %b 2\r\n=%b\r\n" % (request[2], request[4]))
            client.wait_for_any()
            answers.append([(frame[0], frame[4]) for frame in client.take()])
            client.send(b"UNSUB i\r\n")
        return answers

    same(both, scene)


@pytest.mark.parametrize(
    "before", ["nobody ever", "an UNSUB", "a client that left", "the last of UNSUB max", "another account"]
)
def test_a_request_without_a_service_is_refused(both: list[ThreeServers], before: str) -> None:
    def scene(servers: ThreeServers) -> Any:
        client, service = (
            servers.client("a"),
            servers.client("c", **LOGINS["B" if before == "another account" else "A"]),
        )
        subject = b"gone." + before.replace(" ", "").encode()
        if before != "nobody ever":
            service.send(b"SUB %b 1\r\n" % subject)
            service.fence()
        if before != "another account":
            servers.settle(client, servers.client("c"))
        if before == "an UNSUB":
            service.send(b"UNSUB 1\r\n")
            service.fence()
        elif before == "a client that left":
            service.close()
        elif before == "the last of UNSUB max":
            service.send(b"UNSUB 1 1\r\n")
            service.fence()
            client.send(b"PUB %b 0\r\n\r\n" % subject)
            service.wait_for(subject)
        client.send(b"SUB _INBOX.n 1\r\n")
        # until the interest is removed everywhere, which no event signals
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            client.send(b"PUB %b _INBOX.n 0\r\n\r\n" % subject)
            client.fence()
            if client.frames:
                return [frame[3] for frame in client.take()]
        return None

    same(both, scene)


# -- accounts, permissions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("publisher", "receiver"), [("a", "b"), ("b", "c"), ("c", "a"), ("a", "a")])
@pytest.mark.parametrize("accounts", ["A A", "A B", "B A", "B B", "M M"])
def test_accounts_are_apart_on_every_server(
    both: list[ThreeServers], publisher: str, receiver: str, accounts: str
) -> None:
    def scene(servers: ThreeServers) -> Any:
        ours, theirs = accounts.split()
        sender, taker = servers.client(publisher, **LOGINS[ours]), servers.client(receiver, **LOGINS[theirs])
        taker.send(b"SUB feed.> 1\r\nSUB news.> 2\r\nSUB private.x 3\r\nSUB new.* 4\r\nSUB old.* 5\r\n")
        taker.fence()
        # A client of the sender's account at the taker's server: nats-server gives no order between two accounts.
        mark = servers.client(receiver, **LOGINS[ours])
        servers.settle(mark, sender)
        for subject in (b"feed.x", b"news.y", b"private.x", b"old.7"):
            sender.send(b"PUB %b 1\r\n.\r\n" % subject)
        servers.seen(sender, {"mark": mark})
        taker.fence()
        return sorted((frame[0], frame[1]) for frame in taker.take())

    same(both, scene)


@pytest.mark.parametrize(("asker", "server"), [("a", "a"), ("a", "b"), ("b", "c"), ("c", "a")])
def test_a_service_import_reaches_a_service_on_any_server(
    both: list[ThreeServers], asker: str, server: str
) -> None:
    def scene(servers: ThreeServers) -> Any:
        service, client = servers.client(server), servers.client(asker, **LOGINS["B"])
        service.send(b"SUB svc.double 1\r\n")
        servers.settle(service, servers.client(asker))
        client.send(b"SUB _INBOX.s.* i\r\nPUB double _INBOX.s.1 1\r\n4\r\n")
        service.wait_for_any()
        (request,) = service.take()
        service.send(b"PUB %b 1\r\n8\r\n" % request[2])
        client.wait_for_any()
        return (
            request[0],
            request[2][:4],
            request[4],
            [(f[0], f[4]) for f in client.take()],
            len(service.take()),
        )

    same(both, scene)


@pytest.mark.parametrize("subject", ["open.x", "open.secret", "closed"])
def test_permissions_of_the_receiver_hold_for_messages_of_other_servers(
    both: list[ThreeServers], subject: str
) -> None:
    def scene(servers: ThreeServers) -> Any:
        receiver, sender = servers.client("b", **LOGINS["few"]), servers.client("a")
        receiver.send(b"SUB open.> 1\r\nSUB closed 2\r\n")
        servers.settle(receiver, servers.client("a"))
        servers.settle(sender, receiver)
        sender.send(f"PUB {subject} 0\r\n\r\n".encode())
        found = servers.seen(sender, {"r": receiver})
        return found, receiver.errors

    same(both, scene)


def test_allow_responses_permits_an_answer_to_another_server(both: list[ThreeServers]) -> None:
    def scene(servers: ThreeServers) -> Any:
        service, client = servers.client("c", **LOGINS["answers"]), servers.client("a")
        service.send(b"SUB svc.r 1\r\nPUB elsewhere 0\r\n\r\n")
        servers.settle(service, client)
        client.send(b"SUB _INBOX.ar.* i\r\nPUB svc.r _INBOX.ar.1 1\r\n4\r\n")
        service.wait_for_any()
        (request,) = service.take()
        for _ in range(2):
            service.send(b"PUB %b 1\r\n8\r\n" % request[2])
        service.fence()
        client.wait_for_any()
        return [(f[0], f[4]) for f in client.take()], service.errors

    same(both, scene)


@pytest.mark.parametrize("echo", [True, False])
def test_echo_concerns_the_own_connection_only(both: list[ThreeServers], echo: bool) -> None:
    def scene(servers: ThreeServers) -> Any:
        receivers = everywhere(servers)
        sender = servers.client("a", echo=echo)
        for client in (*receivers.values(), sender):
            client.send(b"SUB e.x 1\r\n")
        servers.settle(*receivers.values())
        sender.send(b"PUB e.x 0\r\n\r\n")
        found = counted(servers.seen(sender, receivers))
        sender.fence()
        return found, len([frame for frame in sender.take() if frame[0] == b"e.x"])

    same(both, scene)


def test_unsub_max_counts_messages_of_all_servers(both: list[ThreeServers]) -> None:
    def scene(servers: ThreeServers) -> Any:
        receiver, near, far = servers.client("a"), servers.client("a"), servers.client("b")
        receiver.send(b"SUB u.x 1\r\nUNSUB 1 5\r\n")
        servers.settle(receiver, far)
        for sender in (near, far):
            sender.send(b"PUB u.x 0\r\n\r\n" * 3)
            sender.fence()
        return counted(servers.seen(far, {"r": receiver}))

    same(both, scene)


# -- the system account ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        ("$SYS.REQ.SERVER.PING", ""),
        ("$SYS.REQ.SERVER.PING.IDZ", ""),
        ("$SYS.REQ.SERVER.PING.VARZ", ""),
        ("$SYS.REQ.SERVER.PING.CONNZ", '{"limit": 1}'),
        ("$SYS.REQ.SERVER.PING.ROUTEZ", ""),
        ("$SYS.REQ.SERVER.PING.VARZ", '{"server_name": "b"}'),
        ("$SYS.REQ.SERVER.PING.STATSZ", '{"cluster": "TRIO"}'),
        ("$SYS.REQ.SERVER.PING.STATSZ", '{"cluster": "OTHER"}'),
        ("$SYS.REQ.ACCOUNT.A.CONNZ", ""),
        ("$SYS.REQ.USER.INFO", ""),
    ],
)
def test_every_server_answers_the_system_account(both: list[ThreeServers], subject: str, body: str) -> None:
    def scene(servers: ThreeServers) -> Any:
        client = servers.client("a", **LOGINS["SYS"])
        others = [servers.client(name, **LOGINS["SYS"]) for name in ("b", "c")]
        servers.settle(client, *others)
        client.send(f"SUB _INBOX.sys 1\r\nPUB {subject} _INBOX.sys {len(body)}\r\n{body}\r\n".encode())
        wanted = 0 if "OTHER" in body else 1 if "USER" in subject or "server_name" in body else 3
        client.wait_for_messages(wanted)
        client.fence()
        found = client.take()
        return sorted(
            json.loads(frame[4]).get("server", json.loads(frame[4])).get("name", "") for frame in found
        )

    same(both, scene)


def test_events_of_clients_reach_every_server(both: list[ThreeServers]) -> None:
    def scene(servers: ThreeServers) -> Any:
        watcher = servers.client("c", **LOGINS["SYS"])
        watcher.send(b"SUB $SYS.ACCOUNT.A.CONNECT 1\r\n")
        servers.settle(watcher, servers.client("a", **LOGINS["SYS"]))
        servers.client("a", name="the new one")
        found: list[Any] = []
        while "the new one" not in found:
            watcher.wait_for_any()
            found += [json.loads(frame[4])["client"].get("name") for frame in watcher.take()]
        return found.count("the new one")

    same(both, scene)


# -- monitoring and INFO ---------------------------------------------------------------------------------------


def test_info_tells_the_cluster_and_all_addresses(both: list[ThreeServers]) -> None:
    def scene(servers: ThreeServers) -> Any:
        client = servers.client("a")
        info = client.wait_info(lambda info: len(info.get("connect_urls", [])) == 3)
        ports = {f"127.0.0.1:{servers.server(name).port}": name for name in NAMES}
        return info["cluster"], sorted(ports[url] for url in info["connect_urls"])

    same(both, scene)


def test_the_fields_of_routez_are_the_same(both: list[ThreeServers]) -> None:
    def scene(servers: ThreeServers) -> Any:
        receiver = servers.client("b")
        receiver.send(b"SUB routez.x 1\r\n")
        servers.settle(receiver, servers.client("a"))
        page = servers.page("a", "/routez?subs=1")
        entry = next(each for each in page["routes"] if "routez.x" in each.get("subscriptions_list", []))
        return (
            sorted(page),
            sorted(set(entry) - {"account", "rtt"}),
            {each["remote_name"] for each in page["routes"]},
        )

    same(both, scene)


def test_varz_tells_of_the_cluster(both: list[ThreeServers]) -> None:
    def scene(servers: ThreeServers) -> Any:
        page = servers.page("a", "/varz")
        block = page["cluster"]
        return (
            page["remotes"],
            sorted(set(block) - {"pool_size", "tls_timeout"}),
            block["name"],
            len(page["connect_urls"]),
        )

    same(both, scene)


def same(both: list[ThreeServers], scene: Scene) -> None:
    """Play a scene on both kinds of servers; the results must be equal."""
    peers, ours = (_played(servers, scene) for servers in both)
    assert ours == peers


def _played(servers: ThreeServers, scene: Scene) -> Any:
    try:
        return scene(servers)
    finally:
        servers.release()
