"""What an account has on all servers of a cluster: limits, traces and imports; and what happens when servers leave.

As in test_cluster.py, three nats-servers and three of ours play the same scenes.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.conformance.harness.both import needs_peer
from tests.conformance.harness.cluster import NAMES, WAIT_S, NodeClient, ThreeServers, three
from tests.conformance.harness.process import our_command, peer_command
from tests.conformance.test_cluster import same

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
        ]
        exports: [{stream: "feed.>"}, {service: "svc.>"}, {service: "open.svc", allow_trace: true}]
        msg_trace: {dest: "traces", sampling: "100%"}
    }
    B {
        users: [{user: b, password: b}]
        imports: [
            {stream: {account: A, subject: "feed.>"}, to: "news.>"}
            {service: {account: A, subject: "svc.double"}, to: "double"}
            {service: {account: A, subject: "open.svc"}, to: "open"}
        ]
    }
    FEW { users: [{user: f, password: f}], limits: {max_connections: 3} }
    SUBS { users: [{user: u, password: u}], limits: {max_subscriptions: 2} }
    SYS { users: [{user: s, password: s}] }
}
no_auth_user: a
system_account: SYS
"""
LOGINS: dict[str, dict[str, object]] = {
    name: {"user": user, "pass": "a" if user == "few" else user}
    for name, user in {"A": "a", "few": "few", "B": "b", "FEW": "f", "SUBS": "u", "SYS": "s"}.items()
}
PARENT = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ThreeServers]]:
    assert PEER is not None
    directory = tmp_path_factory.mktemp("cluster")
    with (
        three(PEER, directory / "peer", COMMON) as peers,
        three(our_command(), directory / "ours", COMMON) as ours,
    ):
        yield [peers, ours]


# -- limits of an account --------------------------------------------------------------------------------------


def refusal(servers: ThreeServers, name: str) -> bytes:
    """Return the -ERR for one more client of the account FEW; b"": it was accepted, and is disconnected again."""
    with socket.create_connection(("127.0.0.1", servers.server(name).port), WAIT_S) as client:
        client.sendall(b'CONNECT {"user":"f","pass":"f","verbose":false}\r\nPING\r\n')
        data = b""
        while b"PONG" not in data and (more := client.recv(65536)):
            data += more
    return next((line for line in data.split(b"\r\n") if line.startswith(b"-ERR")), b"")


def until_refused(servers: ThreeServers, holders: str, asked: str) -> bytes:
    """Connect clients of the account to `holders`; return the refusal of one more client at server `asked`.

    Servers report clients to each other after they have accepted them, so a further client may be accepted at first.
    """
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        for name in holders:
            servers.client(name, **LOGINS["FEW"])
        for name in NAMES:  # then the server has handled the reports of the others
            servers.client(name).fence()
        if text := refusal(servers, asked):
            return text
        servers.release()
    raise AssertionError("never refused")


@pytest.mark.parametrize(("holders", "asked"), [("abc", "a"), ("aaa", "b"), ("bbc", "a"), ("ccc", "c")])
def test_the_connections_of_an_account_are_counted_on_all_servers(
    both: list[ThreeServers], holders: str, asked: str
) -> None:
    same(both, lambda servers: until_refused(servers, holders, asked))


def test_a_client_that_leaves_makes_room_on_every_server(both: list[ThreeServers]) -> None:
    def scene(servers: ThreeServers) -> Any:
        refused = until_refused(servers, "abc", "a")
        servers.release()
        deadline = time.monotonic() + WAIT_S
        while refusal(servers, "b"):
            assert time.monotonic() < deadline
        return refused

    same(both, scene)


def test_the_subscriptions_of_an_account_are_limited_for_each_connection(both: list[ThreeServers]) -> None:
    def scene(servers: ThreeServers) -> Any:
        clients = [servers.client(name, **LOGINS["SUBS"]) for name in NAMES]
        for client in clients:
            client.send(b"SUB one 1\r\nSUB two 2\r\nSUB three 3\r\n")
            client.fence()
        return [client.errors for client in clients]

    same(both, scene)


# -- traces ----------------------------------------------------------------------------------------------------

DEST = "Nats-Trace-Dest: traces"
ONLY = "Nats-Trace-Only: true"
# By name: subscriptions of clients by server, the account that publishes at a, its subject, its headers.
TRACED: dict[str, tuple[dict[str, list[str]], str, str, list[str]]] = {
    "one elsewhere": ({"b": ["t.x 1"]}, "A", "t.x", [DEST]),
    "one on each": ({name: ["t.x 1"] for name in NAMES}, "A", "t.x", [DEST]),
    "only": ({"b": ["t.x 1"], "c": ["t.> 1"]}, "A", "t.x", [DEST, ONLY]),
    "several on one server": ({"b": ["t.x 1", "t.* 2", "t.x g 3"]}, "A", "t.x", [DEST]),
    "a group elsewhere": ({"c": ["t.x g 1"]}, "A", "t.x", [DEST]),
    "groups on two servers": ({"b": ["t.x g 1"], "c": ["t.x h 1"]}, "A", "t.x", [DEST]),
    "a group, only": ({"c": ["t.x g 1"]}, "A", "t.x", [DEST, ONLY]),
    "nobody": ({}, "A", "t.x", [DEST]),
    "a parent": ({"b": ["t.x 1"]}, "A", "t.x", [PARENT]),
    "a hop of its own": ({"b": ["t.x 1"]}, "A", "t.x", [DEST, "Nats-Trace-Hop: 7", "k: v"]),
    "a service without allow_trace": ({"b": ["svc.double 1"]}, "B", "double", [DEST]),
    "a service with allow_trace": ({"b": ["open.svc 1"]}, "B", "open", [DEST]),
    "a service with allow_trace, only": ({"b": ["open.svc 1"]}, "B", "open", [DEST, ONLY]),
}
KEPT = ("type", "kind", "name", "acc", "subj", "sub", "queue", "hop", "error", "from", "to")


@pytest.mark.parametrize("case", TRACED)
def test_a_message_is_traced_on_every_server(both: list[ThreeServers], case: str) -> None:
    layout, account, subject, lines = TRACED[case]

    def scene(servers: ThreeServers) -> Any:
        receivers = {name: servers.client(name, name=f"at {name}") for name in layout}
        for name, subscriptions in layout.items():
            receivers[name].send("".join(f"SUB {each}\r\n" for each in subscriptions).encode())
        watcher, sender = servers.client("c", **LOGINS[account]), servers.client("a", **LOGINS[account])
        watcher.send(b"SUB traces 1\r\n")
        servers.settle(*receivers.values(), servers.client("a"))
        servers.settle(watcher, sender)
        block = "NATS/1.0\r\n" + "".join(f"{line}\r\n" for line in lines) + "\r\n"
        sender.send(f"HPUB {subject} {len(block)} {len(block) + 2}\r\n{block}hi\r\n".encode())
        sender.fence()
        watcher.wait_for_messages(
            1 + (len([name for name in layout if name != "a"]) if "without" not in case else 0)
        )
        traces = sorted(
            (described(json.loads(frame[4])) for frame in watcher.take()),
            key=lambda trace: str(trace["server"]),
        )
        if ONLY in lines:
            return numbered(traces, {})
        for name, client in receivers.items():
            client.wait_for_messages(len(layout[name]))
        return numbered(
            traces, {name: [f[3].decode() for f in client.take()] for name, client in receivers.items()}
        )

    same(both, scene)


def described(trace: dict[str, Any]) -> dict[str, Any]:
    """Return a trace without times and ids."""
    events = [{key: event[key] for key in KEPT if key in event} for event in trace["events"]]
    return {
        "server": trace["server"]["name"],
        "request": trace["request"],
        "hops": trace.get("hops"),
        "keys": list(trace),
        "events": sorted(events, key=str),
    }


def numbered(traces: list[dict[str, Any]], received: dict[str, Any]) -> Any:
    """Return traces and headers in which hops, whose order is random, are replaced by names of servers.

    To trace in another account, nats-server sends traces to a reply subject; our server puts the account into a
    header.
    """
    for trace in traces:
        trace["request"]["header"].pop("Nats-Trace-Origin-Account", None)
    received = {
        name: [
            sorted(line for line in block.split("\r\n") if "Origin-Account" not in line) for block in blocks
        ]
        for name, blocks in received.items()
    }
    hops = {event["name"]: event.pop("hop") for event in traces[0]["events"] if "hop" in event}
    text = json.dumps([traces, {name: sorted(blocks) for name, blocks in received.items()}])
    for name, hop in hops.items():
        text = text.replace(f'"Nats-Trace-Hop": ["{hop}"]', f'"Nats-Trace-Hop": ["to {name}"]')
        text = text.replace(f'Nats-Trace-Hop: {hop}"', f'Nats-Trace-Hop: to {name}"')
    text = re.sub(r"_R_\.\w+\.\w+", "traces", text)
    text = re.sub(r'(rtt\\+"):\d+', r"\1:1", text)
    return json.loads(re.sub(r'"msgsize": \d+', '"msgsize": 1', text) if "Request-Info" in text else text)


# -- imports and exports ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("publisher", "subscriber"), [("a", "b"), ("b", "c"), ("c", "c")])
@pytest.mark.parametrize("queue", ["", "g"])
def test_a_stream_import_reaches_subscribers_on_any_server(
    both: list[ThreeServers], publisher: str, subscriber: str, queue: str
) -> None:
    def scene(servers: ThreeServers) -> Any:
        receiver, sender = servers.client(subscriber, **LOGINS["B"]), servers.client(publisher)
        receiver.send(f"SUB news.* {queue} 1\r\n".encode())
        helper = servers.client(publisher, **LOGINS["B"])
        servers.settle(receiver, helper)
        servers.settle(sender, servers.client(subscriber))
        sender.send(b"PUB feed.x 2\r\nhi\r\nPUB other.x 2\r\nno\r\nPUB feed.y 3\r\nend\r\n")
        receiver.wait_for_messages(2)
        return receiver.take()

    same(both, scene)


# -- draining and leaving --------------------------------------------------------------------------------------


def test_a_client_that_drains_gets_what_was_sent_before(both: list[ThreeServers]) -> None:
    def scene(servers: ThreeServers) -> Any:
        leaving, staying, sender = servers.client("b"), servers.client("c"), servers.client("a")
        for client in (leaving, staying):
            client.send(b"SUB d.x g 1\r\n")
        servers.settle(leaving, staying, sender)
        sender.send(b"PUB d.x 1\r\n1\r\n" * 40)
        sender.fence()
        found = servers.seen(sender, {"leaving": leaving, "staying": staying})
        leaving.send(b"UNSUB 1\r\n")
        servers.settle(leaving, staying, sender)
        sender.send(b"PUB d.x 1\r\n2\r\n" * 10)
        after = servers.seen(sender, {"staying": staying})
        return sum(map(len, found.values())), len(after["staying"]), leaving.take()

    same(both, scene)


def urls_of(client: NodeClient, servers: ThreeServers) -> list[str]:
    """Return the servers that the last INFO of a client lists."""
    ports = {f"127.0.0.1:{servers.server(name).port}": name for name in NAMES}
    return sorted(ports.get(url, url) for url in client.infos[-1].get("connect_urls", []))


def wait_urls(client: NodeClient, servers: ThreeServers, names: str) -> None:
    """Wait for an INFO that lists these servers."""
    deadline = time.monotonic() + WAIT_S
    while urls_of(client, servers) != list(names):
        assert time.monotonic() < deadline, client.infos[-1]
        client.fence()


@pytest.mark.parametrize("way", ["KILL", "TERM", "USR2"])
def test_clients_hear_of_a_server_that_leaves_and_comes_back(both: list[ThreeServers], way: str) -> None:
    def scene(servers: ThreeServers) -> Any:
        watcher, guest = servers.client("a"), servers.client("c")
        watcher.send(b"SUB w.x 1\r\n")
        wait_urls(watcher, servers, "abc")
        servers.settle(watcher, guest)
        servers.server("c").signal(way)
        wait_urls(watcher, servers, "ab")
        last: dict[str, Any] = {}
        if way == "USR2":
            last = guest.wait_info(lambda info: bool(info.get("ldm")))
            last = {"ldm": last["ldm"], "urls": sorted(last.get("connect_urls", [])) != []}
        servers.server("c").kill()
        servers.server("c").start()
        wait_urls(watcher, servers, "abc")
        again = servers.client("c")
        servers.settle(watcher, again)
        again.send(b"PUB w.x 2\r\nhi\r\n")
        watcher.wait_for_messages(1)
        return last, watcher.take(), "ldm" in watcher.infos[-1]

    same(both, scene)
