"""One simulation of a cluster: servers are killed, stopped and separated while clients subscribe and publish."""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from dataclasses import dataclass, field

from tests.support.simnet import SimNet

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.testing import RawClient

SUBJECTS = ("a", "a.b", "a.c", "b", "c.d.e")
FILTERS = ("a", "a.b", "a.*", "a.>", ">", "*", "b", "c.*.e", "*.b")
GROUPS = ("", "", "", "g", "h")
HEALED_S = 1.0  # the longest pause between two attempts to connect, and some round trips
LARGE = 70_000  # bytes: messages of this size use a separate connection
LIVES = 4
STEPS = 25


class Violated(AssertionError):
    """An invariant of the cluster was violated."""


@dataclass
class Sub:
    """One subscription of a client, and the numbers of the messages that it received."""

    filter: str
    group: str
    got: list[int] = field(default_factory=list)


@dataclass
class SimClient:
    """A client and its subscriptions, by sid."""

    server: str
    raw: RawClient
    subs: dict[int, Sub] = field(default_factory=dict)
    next_sid: int = 1


def matches(pattern: str, subject: str) -> bool:
    """Return whether a subject matches a pattern, without using the server's code."""
    wanted, tokens = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        return len(tokens) >= len(wanted) and _all_match(wanted[:-1], tokens)
    return len(tokens) == len(wanted) and _all_match(wanted, tokens)


def _all_match(wanted: list[str], tokens: list[str]) -> bool:
    return all(one in ("*", other) for one, other in zip(wanted, tokens, strict=False))


class ClusterWorld:
    """The cluster of one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.net = SimNet(seed, jitter_ns=self.rng.choice((0, NS_PER_MS, 20 * NS_PER_MS)))
        self.names = [f"s{n}" for n in range(self.rng.randrange(2, 6))]
        self.clients: list[SimClient] = []
        self.number = 0
        self.subject_of: dict[int, str] = {}

    def run(self) -> None:
        """Run the seed.

        Raises:
            Violated: an invariant was violated; the text describes it.
        """
        for name in self.names:
            self._start(name)
        for _ in range(LIVES):
            for _ in range(STEPS):
                self._step()
                self.net.run(self.rng.randrange(50 * NS_PER_MS))
                self._collect()
            self._heal()
            self._check_whole()

    def _start(self, name: str) -> None:
        others = [each for each in self.names if each in self.net.servers]
        self.net.start(name, *self.rng.sample(others, min(len(others), self.rng.randrange(1, 3))))

    def _step(self) -> None:
        self.rng.choices(
            (self._connect, self._subscribe, self._unsubscribe, self._leave, self._publish, self._trouble),
            (3, 10, 3, 1, 20, 3),
        )[0]()

    def _connect(self) -> None:
        name = self.rng.choice(list(self.net.servers))
        if not self.net.servers[name].paused:
            self.clients.append(SimClient(name, self.net.servers[name].client()))

    def _client(self) -> SimClient | None:
        usable = [each for each in self.clients if not self.net.servers[each.server].paused]
        return self.rng.choice(usable) if usable else None

    def _subscribe(self) -> None:
        client = self._client()
        if client is None:
            return
        sub = Sub(self.rng.choice(FILTERS), self.rng.choice(GROUPS))
        client.subs[client.next_sid] = sub
        client.raw.send(f"SUB {sub.filter} {sub.group} {client.next_sid}\r\n".encode())
        client.next_sid += 1

    def _unsubscribe(self) -> None:
        client = self._client()
        if client is not None and client.subs:
            self._take(client)
            sid = self.rng.choice(list(client.subs))
            del client.subs[sid]
            client.raw.send(b"UNSUB %d\r\n" % sid)

    def _leave(self) -> None:
        client = self._client()
        if client is not None:
            self.clients.remove(client)
            client.raw.session.connection_lost()
            self.net.servers[client.server].wake()

    def _publish(self, subject: str = "") -> int:
        client = self._client()
        if client is None:
            return 0
        self.number += 1
        subject = subject or self.rng.choice(SUBJECTS)
        self.subject_of[self.number] = subject
        payload = b"%*d" % (LARGE if self.rng.random() < 0.08 else 0, self.number)
        client.raw.send(b"PUB %b %d\r\n%b\r\n" % (subject.encode(), len(payload), payload))
        return self.number

    def _trouble(self) -> None:
        name = self.rng.choice(list(self.net.servers))
        other = self.rng.choice(list(self.net.servers))
        what = self.rng.randrange(5)
        if what == 0 and len(self.net.servers) > 1:
            self.clients = [each for each in self.clients if each.server != name]
            self.net.kill(name)
        elif what == 1 and not self.net.servers[name].paused:
            self.net.pause(name)
        elif what == 2:
            self.net.cut(name, other)  # one way
        elif what == 3:
            self.net.cut(name, other)
            self.net.cut(other, name)
        else:
            self._mend()
        if self.rng.random() < 0.1:  # long enough for other servers to close their routes to a silent one
            self.net.run(3 * NS_PER_S)

    def _mend(self) -> None:
        self.net.heal()
        for name in list(self.net.servers):
            if self.net.servers[name].paused:
                self.net.resume(name)

    def _heal(self) -> None:
        self._mend()
        for name in self.names:
            if name not in self.net.servers:
                self._start(name)
        for _ in range(int(HEALED_S * 1000)):
            if self.net.whole():
                break
            self.net.run(NS_PER_MS)
        else:
            routes = {name: len(server.cluster.routes) for name, server in self.net.servers.items()}
            raise Violated(f"not whole {HEALED_S} s after the trouble: routes {routes}")
        self.net.run(NS_PER_S // 5)
        self._collect()

    def _check_whole(self) -> None:
        """Publish at every server, and check that every subscriber gets every message."""
        sent = [number for _ in range(6) if (number := self._publish())]
        self.net.run(NS_PER_S // 5)
        self._collect()
        groups: Counter[tuple[str, int]] = Counter()
        wanted_groups = set()
        for client in self.clients:
            for sub in client.subs.values():
                for number in sent:
                    if not matches(sub.filter, self.subject_of[number]):
                        continue
                    if sub.group:
                        wanted_groups.add((sub.group, number))
                        groups[sub.group, number] += number in sub.got
                    elif number not in sub.got:
                        raise Violated(f"message {number} did not reach {sub.filter} at {client.server}")
        wrong = [each for each in wanted_groups if groups[each] != 1]
        if wrong:
            raise Violated(f"of {wrong[0]} a group got {groups[wrong[0]]} instead of one")

    def _collect(self) -> None:
        for client in self.clients:
            self._take(client)
        seen: Counter[tuple[str, int]] = Counter()
        for client in self.clients:
            for sub in client.subs.values():
                twice = [number for number, count in Counter(sub.got).items() if count > 1]
                if twice:
                    raise Violated(f"message {twice[0]} came twice to {sub.filter} at {client.server}")
                if sub.group:
                    seen.update((sub.group, number) for number in sub.got)
        for (group, number), count in seen.items():
            if count > 1:
                raise Violated(f"message {number} came to {count} members of group {group}")

    def _take(self, client: SimClient) -> None:
        for frame in client.raw.frames():
            sub, number = client.subs.get(int(frame.sid)), int(frame.payload)
            if frame.subject.decode() != self.subject_of[number]:
                raise Violated(f"message {number} came with the subject {frame.subject!r}")
            if sub is not None:
                sub.got.append(number)


def play(seed: int) -> str:
    """Run one seed; return its failure, or "" if it did not fail."""
    try:
        ClusterWorld(seed).run()
    except Violated as violated:
        return str(violated)
    return ""


def main() -> int:
    """Run the seeds of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-199")
    first, _, last = parser.parse_args().seeds.partition("-")
    failed = 0
    for seed in range(int(first), int(last or first) + 1):
        text = play(seed)
        if text:
            failed += 1
            print(f"seed {seed}: {text}", flush=True)
    print(f"{failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
