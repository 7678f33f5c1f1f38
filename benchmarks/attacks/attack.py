"""An attack: its name, its function, and the server that it attacks.

An attack is a function that gets a Victim, misbehaves, and counts its requests and their answers. The decorator
`attack` adds the function to the list. When the function returns, the clients of the attack are closed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from driver_build import Driver
from servers import RunningServer

from attacks.client import CONNECT, Client, drive

LIMIT_S = 40.0


class Victim:
    """One server under one attack, and the attack's counts."""

    def __init__(self, server: RunningServer, driver: Driver, connect: bytes) -> None:
        self.server = server
        self.asked = 0
        self.answered = 0
        self.notes: list[str] = []
        self.deadline = time.monotonic() + LIMIT_S
        self._driver = driver
        self._connect = connect
        self._clients: list[Client] = []

    def begin(self, limit_s: float) -> None:
        """Reset the counts of the set-up; from now on everything ends after `limit_s` seconds."""
        self.asked = self.answered = 0
        self.deadline = time.monotonic() + limit_s

    def count(self, asked: int, answered: int) -> None:
        """Add the numbers of requests and answers."""
        self.asked += asked
        self.answered += answered

    def note(self, text: str) -> None:
        """Add a remark to the report."""
        self.notes.append(text)

    # -- connections -------------------------------------------------------------------------------------------
    def raw(self, connect: bytes = b"") -> Client:
        """Return a connection that has only queued `connect`."""
        client = Client(self.server.port, self.deadline, connect)
        self._clients.append(client)
        return client

    def adopt(self, client: Client) -> None:
        """Close `client` at the end of the attack."""
        self._clients.append(client)

    def client(self) -> Client:
        """Return a connected client."""
        client = self.raw(self._connect)
        client.fence()
        return client

    def clients(self, count: int) -> list[Client]:
        """Return `count` connected clients."""
        many = [self.raw(self._connect) for _ in range(count)]
        for client in many:
            client.queue(b"PING\r\n")
        self.drive(many, lambda: all(client.pongs for client in many))
        return many

    def drive(self, clients: list[Client], done: Callable[[], bool]) -> None:
        """Send and read on all clients until `done` or the deadline."""
        drive(clients, done, self.deadline)

    def linger(self, clients: list[Client], seconds: float) -> None:
        """Send and read on all clients for `seconds`."""
        drive(clients, lambda: False, min(self.deadline, time.monotonic() + seconds))

    def leave(self) -> None:
        """Close every connection."""
        for client in self._clients:
            client.close()
        self._clients.clear()

    # -- streams -----------------------------------------------------------------------------------------------
    def fill(self, msgs: int, subjects: int = 1, size: int = 16) -> None:
        """Create the stream NATSLOAD with `msgs` messages on load.00000000 and so on, using the load driver."""
        flags = {"--port": self.server.port, "--msgs": msgs, "--subjects": subjects, "--size": size}
        flags["--window"] = max(16, min(4_000, 4_000_000 // size))  # nats-server refuses larger windows
        words = [str(word) for pair in flags.items() for word in pair]
        self._driver.run(["jspub", "--keep", "--timeout", "120", *words])

    def stream(self, name: str, subjects: list[str], **config: object) -> None:
        """Create a stream."""
        body = {"name": name, "subjects": subjects, **config}
        self.demand(self.client(), f"$JS.API.STREAM.CREATE.{name}", body)

    def demand(self, client: Client, subject: str, body: object = None) -> None:
        """Send a request that must succeed for the attack to be meaningful.

        Raises:
            RuntimeError: the request was refused, or not answered.
        """
        answer = client.request(subject, body)
        if answer is None or "error" in answer:
            raise RuntimeError(f"{subject}: {answer}")


def nothing(_: Victim) -> None:
    """Do nothing: the set-up of most attacks."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One line of the table."""

    name: str
    about: str
    run: Callable[[Victim], None]
    setup: Callable[[Victim], None] = nothing
    # removes everything that the attack made, before memory is compared
    undo: Callable[[Victim], None] = nothing
    config: str = ""  # more lines of the configuration file; {home} is the server's directory
    connect: bytes = CONNECT  # CONNECT of its clients and of the quiet one
    wait_ms: float = 50.0  # maximum wait of a quiet client that is accepted in any case
    limit_s: float = LIMIT_S
    restart: bool = False  # whether the server must also restart and serve


ATTACKS: list[Attack] = []


def attack(about: str, **options: object) -> Callable[[Callable[[Victim], None]], Callable[[Victim], None]]:
    """Add a function to the list of attacks, under its own name; `options` are the fields of Attack."""

    def register(run: Callable[[Victim], None]) -> Callable[[Victim], None]:
        name = run.__name__.strip("_").replace("_", "-")
        ATTACKS.append(Attack(name, about, run, **options))  # type: ignore[arg-type]
        return run

    return register
