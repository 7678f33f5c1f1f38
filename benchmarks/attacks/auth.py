"""Attacks on logins: passwords, CONNECT, delayed authorization, log lines."""

from __future__ import annotations

import signal
import time

from attacks.attack import Victim, attack

# The password is "secret"; the cost is 11, as in `nats server passwd`.
BCRYPT = "$2a$11$V1TZ2NrOhcHZtJZAAWXAV.E.IgoC/8CxVGNNPGg2V.JyEVqrIbk4G"
USERS = (
    "authorization {\n  users: [\n"
    f'    {{user: slow, password: "{BCRYPT}"}}\n'
    "    {user: quiet, password: quiet}\n  ]\n}\n"
)
QUIET = b'CONNECT {"verbose":false,"headers":true,"no_responders":true,"user":"quiet","pass":"quiet"}\r\n'


def _login(user: str, password: str) -> bytes:
    return f'CONNECT {{"verbose":false,"user":"{user}","pass":"{password}"}}\r\nPING\r\n'.encode()


@attack("100 CONNECTs of one bcrypt user in one packet", config=USERS, connect=QUIET)
def bcrypt_packet(victim: Victim) -> None:
    client = victim.raw(_login("slow", "secret") * 100)
    client.run(lambda: client.pongs >= 100)
    victim.count(1, int(client.pongs > 0 or client.closed))


@attack("20 clients with wrong bcrypt passwords", config=USERS, connect=QUIET)
def bcrypt_wrong(victim: Victim) -> None:
    clients = [victim.raw(_login("slow", f"wrong{number}")) for number in range(20)]
    victim.drive(clients, lambda: all(client.closed for client in clients))
    victim.count(len(clients), sum(client.closed for client in clients))


@attack("a subscriber without CONNECT, after a reload turned authorization on", connect=QUIET)
def reload_authorization(victim: Victim) -> None:
    silent = victim.raw(b"SUB > 1\r\nPING\r\n")
    silent.run(lambda: silent.pongs > 0)
    victim.server.add_config(USERS)
    victim.server.signal(signal.SIGHUP)
    victim.linger([silent], 1.0)
    insider = victim.raw(QUIET + b"PING\r\n")
    insider.run(lambda: insider.pongs > 0)
    heard = silent.count
    insider.send(b"PUB secret 1\r\nx\r\n")
    victim.linger([silent, insider], 0.5)
    victim.count(1, int(silent.closed or silent.count == heard))


@attack(
    "30,000 requests to a service with allow_responses",
    config=(
        "authorization {\n  users: [\n"
        "    {user: service, password: s, permissions: {subscribe: ask, publish: nothing,"
        ' allow_responses: {max: 1, expires: "1h"}}}\n'
        "    {user: quiet, password: quiet}\n  ]\n}\n"
    ),
    connect=QUIET,
)
def allow_responses(victim: Victim) -> None:
    service = victim.raw(b'CONNECT {"verbose":false,"user":"service","pass":"s"}\r\nSUB ask 1\r\nPING\r\n')
    service.run(lambda: service.pongs > 0)
    client = victim.client()
    client.queue(b"".join(client.call("ask", b"x") for _ in range(30_000)))
    victim.drive([client, service], lambda: service.count >= 30_000)
    service.queue(b"".join(b"PUB %s 1\r\ny\r\n" % reply for _, reply, _ in service.messages))
    victim.drive([client, service], lambda: client.count >= 30_000)
    victim.count(30_000, client.count)


@attack("CONNECT with null, deep JSON, bad UTF-8, huge numbers, lists")
def connect_json(victim: Victim) -> None:
    options = [
        b"null",
        b"[" * 100_000 + b"]" * 100_000,
        b'{"user":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_001,
        b'{"user":"\xff\xfe"}',
        b'{"protocol":' + b"9" * 5_000 + b"}",
        b'{"verbose":1e400}',
        b'{"lang":' + b'"' + b"x" * 3_000 + b'"}',
        b"{}{}",
        b"",
    ]
    for option in options:
        client = victim.raw(b"CONNECT " + option + b"\r\nPING\r\n")
        client.deadline = min(client.deadline, time.monotonic() + 5)
        client.run(lambda client=client: client.pongs > 0)  # type: ignore[misc]
        victim.count(1, int(client.pongs > 0 or client.closed))


@attack("user names with newlines, before authentication", config=USERS, connect=QUIET)
def log_lines(victim: Victim) -> None:
    forged = "[1] 2026/01/01 00:00:00.000000 [INF] FORGED"
    for number in range(200):
        client = victim.raw(_login(f"a\\n{forged} {number}", "x"))
        client.run(lambda client=client: client.closed)  # type: ignore[misc]
    lines = sum(line.startswith(forged) for line in victim.server.log_text().splitlines())
    victim.count(200, 200 - lines)


@attack("1,000 connections that send CONNECT a byte at a time and never finish it")
def slow_connect(victim: Victim) -> None:
    clients = [victim.raw(b"CONN") for _ in range(1_000)]
    for byte in b'ECT {"verbose":fal':
        for client in clients:
            client.queue(bytes([byte]))
        victim.linger(clients, 0.2)
    late = victim.client()
    victim.count(1, int(late.fence()))


@attack("10,000 clients that connect and leave", wait_ms=100)
def connect_storm(victim: Victim) -> None:
    served = 0
    for _ in range(20):
        clients = [victim.raw(b'CONNECT {"verbose":false}\r\nPING\r\n') for _ in range(500)]
        victim.drive(clients, lambda clients=clients: all(client.pongs for client in clients))  # type: ignore[misc]
        served += sum(client.pongs > 0 for client in clients)
        victim.leave()
    victim.count(10_000, served)


@attack("9,000 clients that connect at once, and leave at once", wait_ms=100)
def connect_crowd(victim: Victim) -> None:
    clients = [victim.raw(b'CONNECT {"verbose":false}\r\nPING\r\n') for _ in range(9_000)]
    victim.drive(clients, lambda: all(client.pongs for client in clients))
    victim.count(len(clients), sum(client.pongs > 0 for client in clients))
