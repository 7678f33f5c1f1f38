"""Attacks with subjects, subscriptions and the protocol, without JetStream."""

from __future__ import annotations

from itertools import product

from attacks.attack import Victim, attack

BIG_PAYLOAD = "max_payload: 64MB\nmax_pending: 256MB\n"


def _publish(client_lines: list[bytes], victim: Victim) -> None:
    """Send publishes from one client in pieces, and count the PONG at the end."""
    client = victim.client()
    for line in client_lines:
        client.send(line)
    victim.count(1, int(client.fence()))


@attack("700,000 publishes to distinct subjects of 3.9 kB")
def long_subjects(victim: Victim) -> None:
    tail = b"x" * 3_900
    parts = (
        b"".join(b"PUB %d.%s 0\r\n\r\n" % (number, tail) for number in range(start, start + 1_000))
        for start in range(0, 700_000, 1_000)
    )
    client = victim.client()
    for part in parts:
        client.send(part)
    victim.count(1, int(client.fence()))


@attack("5 million publishes to distinct short subjects")
def new_subjects(victim: Victim) -> None:
    client = victim.client()
    for start in range(0, 5_000_000, 20_000):
        client.send(b"".join([b"PUB n.%d 0\r\n\r\n" % number for number in range(start, start + 20_000)]))
    victim.count(1, int(client.fence()))


@attack("2 million publishes to distinct subjects with a subscriber to all subjects")
def new_subjects_heard(victim: Victim) -> None:
    listener = victim.raw(b'CONNECT {"verbose":false}\r\nSUB > 1\r\nPING\r\n')
    listener.run(lambda: listener.pongs > 0)
    client = victim.client()
    for start in range(0, 2_000_000, 20_000):
        client.queue(b"".join([b"PUB n.%d 0\r\n\r\n" % number for number in range(start, start + 20_000)]))
        goal = start + 20_000
        victim.drive([client, listener], lambda goal=goal: listener.count >= goal)  # type: ignore[misc]
    victim.count(2_000_000, listener.count)


@attack("the disconnect of a client with 300,000 subscriptions")
def disconnect_subs(victim: Victim) -> None:
    client = victim.client()
    client.send(b"".join(b"SUB s.%d.a.b %d\r\n" % (number, number + 2) for number in range(300_000)))
    victim.count(1, int(client.fence()))


@attack("300 publishes that match 2^14 wildcard subscriptions")
def wildcard_matches(victim: Victim) -> None:
    client = victim.client()
    tokens = [b"a"] * 14
    subs = (
        b".".join(token if keep else b"*" for token, keep in zip(tokens, mask, strict=True))
        for mask in product((True, False), repeat=14)
    )
    client.send(b"".join(b"SUB %s %d\r\n" % (subject, number + 2) for number, subject in enumerate(subs)))
    client.fence()
    publisher = victim.client()
    publisher.queue((b"PUB " + b".".join(tokens) + b" 0\r\n\r\n") * 300 + b"PING\r\n")
    victim.drive([client, publisher], lambda: publisher.pongs > 1)
    victim.linger([client], 2.0)
    victim.note(f"{client.count:,} deliveries" + (", then closed as too slow" if client.closed else ""))
    victim.count(1, int(publisher.pongs > 1))


@attack("200,000 subscribes and unsubscribes while another client publishes to these subjects")
def sub_unsub(victim: Victim) -> None:
    client, publisher = victim.client(), victim.client()
    for start in range(0, 200_000, 2_000):
        numbers = range(start, start + 2_000)
        client.queue(b"".join(b"SUB u.*.%d %d\r\nUNSUB %d\r\n" % (n, n + 2, n + 2) for n in numbers))
        publisher.queue(b"".join(b"PUB u.a.%d 0\r\n\r\n" % n for n in numbers))
    for one in (client, publisher):
        one.queue(b"PING\r\n")
    victim.drive([client, publisher], lambda: client.pongs > 1 and publisher.pongs > 1)
    victim.count(2, int(client.pongs > 1) + int(publisher.pongs > 1))


@attack("20,000 queue groups on one subject, 100 publishes")
def queue_groups(victim: Victim) -> None:
    client = victim.client()
    client.send(b"".join(b"SUB q.* g%d %d\r\n" % (number, number + 2) for number in range(20_000)))
    client.fence()
    for _ in range(100):
        client.queue(b"PUB q.a 0\r\n\r\n")
    client.run(lambda: client.count >= 2_000_000)
    victim.count(2_000_000, client.count)


@attack("5 million PINGs at once from a client that reads the PONGs late")
def ping_flood(victim: Victim) -> None:
    client = victim.client()
    client.reads = False
    client.queue(b"PING\r\n" * 5_000_000)
    victim.linger([client], 3.0)
    client.reads = True
    client.run(lambda: client.pongs > 5_000_000)
    victim.count(1, int(client.pongs > 5_000_000 or client.closed))


@attack("200 connections that send a publish of 1 MB without its last byte")
def half_frames(victim: Victim) -> None:
    clients = victim.clients(200)
    frame = b"PUB held 1048576\r\n" + b"x" * 1_048_575
    for client in clients:
        client.queue(frame)
    victim.drive(clients, lambda: all(client.sent for client in clients))
    victim.linger(clients, 1.0)
    late = victim.client()
    victim.count(1, int(late.fence()))


@attack("200 connections that send their verbs byte by byte")
def byte_by_byte(victim: Victim) -> None:
    clients = victim.clients(200)
    for byte in b"SUB aaaa.bbbb 7\r\nPUB aaaa.bbbb 5\r\nhello\r\nUNSUB 7\r\nPING\r\n":
        for client in clients:
            client.queue(bytes([byte]))
        victim.drive(clients, lambda: all(client.sent for client in clients))
    victim.drive(clients, lambda: all(client.pongs > 1 for client in clients))
    victim.count(len(clients), sum(client.pongs > 1 for client in clients))


@attack("messages with 60 MB of headers in a million lines", config=BIG_PAYLOAD)
def header_bomb(victim: Victim) -> None:
    block = b"NATS/1.0\r\n" + b"".join(b"X-%07d: %s\r\n" % (n, b"v" * 47) for n in range(1_000_000)) + b"\r\n"
    client = victim.client()
    client.queue(b"SUB bomb 2\r\n")
    for _ in range(4):
        client.send(b"HPUB bomb %d %d\r\n%s\r\n" % (len(block), len(block), block))
    client.run(lambda: client.count >= 4)
    victim.count(4, client.count)


@attack("100 clients that each send 64 kB without a line end")
def long_lines(victim: Victim) -> None:
    clients = victim.clients(100)
    for client in clients:
        client.queue(b"SUB " + b"a" * 65_536)
    victim.drive(clients, lambda: all(client.closed for client in clients))
    victim.count(len(clients), sum(client.closed for client in clients))


@attack(
    "40 subscribers to 100 wildcards each that never read, while 400 MB are published",
    config="max_pending: 8MB\n",
)
def slow_readers(victim: Victim) -> None:
    subs = b"".join(b"SUB s.*.%s %d\r\n" % (b"*" if n % 2 else b">", n + 2) for n in range(100))
    readers = victim.clients(40)
    for reader in readers:
        reader.send(subs)
        reader.fence()
        reader.reads = False
    publisher = victim.client()
    frame = b"PUB s.a.b 1000\r\n" + b"x" * 1_000 + b"\r\n"
    for _ in range(100):
        publisher.queue(frame * 100)
    victim.drive([publisher], lambda: publisher.sent)
    victim.count(1, int(publisher.fence()))
