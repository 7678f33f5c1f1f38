"""Attacks on the monitoring port."""

from __future__ import annotations

import socket
import time
from contextlib import suppress

from attacks.api import million_subjects, two_thousand_streams
from attacks.attack import Victim, attack

ONE_ANSWER_S = 30.0


def _connect(victim: Victim) -> socket.socket:
    return socket.create_connection(("127.0.0.1", victim.server.http_port), timeout=ONE_ANSWER_S)


def _get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def _status(victim: Victim, path: str) -> str:
    """Return the status of the answer to one request, or "" if there is no answer."""
    with suppress(OSError), _connect(victim) as client:
        client.sendall(_get(path))
        return client.recv(100).decode(errors="replace").split(" ")[1]
    return ""


def _pipelined(victim: Victim, requests: list[bytes]) -> int:
    """Send all requests, then read; return the number of answers."""
    answered = 0
    end = time.monotonic() + ONE_ANSWER_S
    with _connect(victim) as client:
        client.setblocking(False)
        data, tail = memoryview(b"".join(requests)), b""
        while answered < len(requests) and time.monotonic() < end:
            moved = False
            with suppress(BlockingIOError):
                data = data[client.send(data[: 1 << 20]) :] if data else data
            with suppress(BlockingIOError):
                got = client.recv(1 << 20)
                if not got:
                    break
                moved = True
                answered += (tail + got).count(b"HTTP/1.1 ") - tail.count(b"HTTP/1.1 ")
                tail = got[-8:]
            if not moved:
                time.sleep(0.001)
    return answered


@attack("5,000 requests GET /varz at once")
def varz_pipelined(victim: Victim) -> None:
    victim.count(5_000, _pipelined(victim, [_get("/varz")] * 5_000))


@attack("100 requests GET /jsz with every option and 2,000 streams", setup=two_thousand_streams)
def jsz_pipelined(victim: Victim) -> None:
    path = "/jsz?accounts=1&streams=1&consumers=1&config=1&raft=1&limit=5000"
    victim.count(100, _pipelined(victim, [_get(path)] * 100))


@attack("/connz with every sort, 3,000 clients connected")
def connz_sorts(victim: Victim) -> None:
    victim.clients(3_000)
    sorts = "cid start subs pending msgs_to msgs_from bytes_to bytes_from last idle uptime rtt reason stop".split()
    requests = [_get(f"/connz?sort={sort}&limit=5000&subs=detail&auth=1") for sort in sorts] * 10
    victim.count(len(requests), _pipelined(victim, requests))


@attack("/subsz with all of 300,000 subscriptions")
def subsz(victim: Victim) -> None:
    client = victim.client()
    client.send(b"".join(b"SUB s.%d.a.b %d\r\n" % (number, number + 2) for number in range(300_000)))
    client.fence()
    requests = [_get("/subsz?subs=1&limit=300000"), _get("/subsz?subs=1&test=s.5.a.b")] * 2
    victim.count(len(requests), _pipelined(victim, requests))


@attack("300 incomplete HTTP requests, which the server should time out", limit_s=90.0)
def half_requests(victim: Victim) -> None:
    clients = [_connect(victim) for _ in range(300)]
    for client in clients:
        client.sendall(b"GET /varz HTTP/1.1\r\nHost: x\r\n")
        client.settimeout(0.0)
    left = clients
    end = time.monotonic() + 30
    while left and time.monotonic() < end:
        time.sleep(0.5)
        left = [client for client in left if _open(client)]
    for client in clients:
        client.close()
    victim.count(len(clients), len(clients) - len(left))


def _open(client: socket.socket) -> bool:
    try:
        return client.recv(65_536) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


@attack("150 HTTP clients that pipeline requests and never read the answers, and one that reads")
def http_deaf(victim: Victim) -> None:
    clients = [_connect(victim) for _ in range(150)]
    for client in clients:
        client.setblocking(False)
        with suppress(BlockingIOError):
            client.send(_get("/jsz?streams=1&config=1") * 2_000)
    time.sleep(1.0)
    asked = 10
    victim.count(asked, sum(_status(victim, "/varz") == "200" for _ in range(asked)))
    for client in clients:
        client.close()


@attack("HTTP requests sent byte by byte on 300 connections")
def http_slow(victim: Victim) -> None:
    clients = [_connect(victim) for _ in range(300)]
    for byte in _get("/healthz"):
        for client in clients:
            client.sendall(bytes([byte]))
    answered = 0
    for client in clients:
        with suppress(OSError):
            answered += client.recv(100).startswith(b"HTTP/1.1 200")
        client.close()
    victim.count(len(clients), answered)


@attack("HTTP queries with 5,000 digits, bad escapes and redirects to other hosts")
def http_queries(victim: Victim) -> None:
    digits = "9" * 5_000
    queries = ("connz?limit=", "connz?cid=", "jsz?streams=1&limit=", "subsz?offset=")
    paths = [f"/{query}{digits}" for query in queries]
    paths += ["/connz?subs=%zz", "/%2e%2e/varz", "/connz?sort=%00", f"/{'a/' * 3_000}", "//other.host/varz"]
    for path in paths:
        status = _status(victim, path)
        victim.count(1, int(status != "" and not status.startswith("5")))
        if status.startswith("5"):
            victim.note(f"{status} for {path[:40]}")


@attack("/jsz with a million subjects in a stream", setup=million_subjects)
def jsz_subjects(victim: Victim) -> None:
    victim.count(50, _pipelined(victim, [_get("/jsz?streams=1&config=1&consumers=1")] * 50))
