"""A node with monitoring on a virtual clock; tests request its pages by path."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import pytest

from pyjs.config.options import AccountOptions, Options, UserOptions
from pyjs.monitor.response import Response
from pyjs.monitor.router import Router
from pyjs.monitor.state import Monitored, ProcessStats
from pyjs.server.monitoring.files import asset
from pyjs.testing import CONNECT, RawClient, VirtualNode


class FixedProcess(ProcessStats):
    """Statistics of a process, with fixed round figures."""

    cores = 4

    def memory_size(self) -> int:
        return 12345

    def cpu_percent(self, now_ns: int) -> float:
        return 2.5


def finish(steps: Generator[object, None, Any]) -> Any:
    """Run the remaining steps, and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value


class Site:
    """The monitoring port of one node."""

    def __init__(self, options: Options) -> None:
        self.fixture = VirtualNode(options)
        self.node = self.fixture.node
        self.log = self.fixture.log
        self.monitored = Monitored(self.node, options, FixedProcess(), self.node.started_at_ns, asset=asset)
        self.monitored.ready = True
        self.router = Router(self.monitored, self.fixture.clock, self.log)

    def ask(self, target: str) -> Response:
        answer: Response = finish(self.router.answer(target))
        return answer

    def steps_of(self, target: str) -> int:
        """Return the number of steps in which a request is answered."""
        return sum(1 for _ in self.router.answer(target)) + 1

    def json(self, target: str, status: int = 200) -> Any:
        answer = self.ask(target)
        assert answer.status == status, answer.body
        assert answer.size == len(answer.body + b"".join(answer.rest))
        return json.loads(answer.body + b"".join(answer.rest))

    def refused(self, target: str) -> str:
        """Return the text of an answer with status 400."""
        answer = self.ask(target)
        assert answer.status == 400
        assert dict(answer.headers)["Content-Type"] == "text/plain; charset=utf-8"
        return answer.body.decode()

    def client(self, name: str = "", user: str = "") -> RawClient:
        more = f',"name":"{name}"' if name else ""
        more += f',"user":"{user}","pass":"pw"' if user else ""
        return self.fixture.client(CONNECT[:-1] + more.encode() + b"}")


@pytest.fixture
def site() -> Site:
    return Site(Options())


@pytest.fixture
def two_accounts() -> Site:
    options = Options()
    for name in ("A", "B"):
        user = UserOptions(user=name.lower(), password="pw", account=name)
        options.accounts[name] = AccountOptions(name=name, users=(user,))
    return Site(options)
