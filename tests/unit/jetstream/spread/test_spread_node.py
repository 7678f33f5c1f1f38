"""Two workers in one process: their notes about streams, and the turns in which each may change streams."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, cast

import pytest
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.config.options import JetStreamOptions, Options, Worker
from pyjs.jetstream.config.offline import Offline
from pyjs.jetstream.config.stream import StreamConfig
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.manage import streams
from pyjs.jetstream.spread.notes import Passed
from pyjs.jetstream.spread.spread_node import SpreadNode


class Link:
    """The carrier of one worker; a broken one loses notes."""

    def __init__(self) -> None:
        self.way: deque[tuple[int, bytes]] = deque()
        self.is_broken = False

    def begin(self, consensus: SpreadNode, notes: SpreadNode) -> None:
        pass

    def send_note(self, node: int, note: bytes) -> None:
        if not self.is_broken:
            self.way.append((node, note))

    def send_request(self, node: int, note: bytes, session: object) -> bool:
        self.send_note(node, note)
        return not self.is_broken


def domain() -> Options:
    """Return the options of a worker."""
    options = Options()
    options.jetstream = JetStreamOptions(enabled=True, domain="hub")
    return options


class Pair:
    """Workers 1 and 2."""

    def __init__(self) -> None:
        self.hosts = {number: JetStreamFixture(domain()) for number in (1, 2)}
        self.links = {number: Link() for number in (1, 2)}
        self.workers: dict[int, SpreadNode] = {}
        for number, host in self.hosts.items():
            place = Worker(number, 2, "s", 0)
            worker = SpreadNode(cast("Any", host.node), "s", place, self.links[number])
            assert host.node.jetstream is not None
            worker.begin(host.node.jetstream.shared, host.node.jetstream.accounts)
            host.node.jetstream.shared.spread = self.workers[number] = worker
        for number, worker in self.workers.items():
            worker.node_heard(self.node(3 - number))
        self.settle()

    def node(self, number: int) -> int:
        return self.workers[1]._nodes[number]

    def settle(self, milliseconds: int = 0) -> None:
        """Let notes arrive, and time pass."""
        for _ in range(10):
            for number, link in self.links.items():
                while link.way:
                    self.workers[3 - number].take_note(self.node(number), link.way.popleft()[1])
            for host in self.hosts.values():
                host.advance(milliseconds=milliseconds)

    def part(self) -> None:
        """Break the connection between the two."""
        for number, worker in self.workers.items():
            self.links[number].is_broken = True
            self.links[number].way.clear()
            worker.node_silent(self.node(3 - number))
        self.settle()


@pytest.fixture
def pair() -> Pair:
    return Pair()


def begin(pair: Pair, number: int, name: str, log: list[str]) -> Callable[[], None]:
    """Add a restored stream on a worker; return the function that ends the work."""
    ends: list[bool] = []

    def work() -> Generator[Any, None, None]:
        log.append(f"{name} begins")
        yield from pair.workers[number].waiters.until(lambda: ends)
        log.append(f"{name} ends")

    def steps() -> Generator[Any, None, None]:
        try:
            yield from pair.workers[number].desk.add_steps("$G", work)
        except ApiError as error:
            log.append(f"{name}: {error.description}")

    def end() -> None:
        ends.append(True)
        pair.workers[number].waiters.notify()
        pair.settle()

    pair.hosts[number].node.turn_state.go_on(steps())
    pair.settle()
    return end


@pytest.mark.parametrize("order", [(1, 2), (2, 1), (2, 2)])
def test_restored_streams_of_all_workers_are_added_one_after_another(
    pair: Pair, order: tuple[int, int]
) -> None:
    log: list[str] = []
    first = begin(pair, order[0], "A", log)
    second = begin(pair, order[1], "B", log)
    assert log == ["A begins"]

    first()
    assert log == ["A begins", "A ends", "B begins"]
    second()
    assert log[-1] == "B ends"
    assert not pair.workers[1].desk._turns
    assert not pair.workers[1].desk._changing


def test_a_worker_that_is_lost_in_its_turn_blocks_nobody(pair: Pair) -> None:
    log: list[str] = []
    begin(pair, 2, "A", log)
    second = begin(pair, 1, "B", log)
    pair.part()
    assert log == ["A begins", "B begins"]
    second()
    assert log[-1] == "B ends"


def test_a_worker_that_is_lost_before_its_turn_blocks_nobody(pair: Pair) -> None:
    log: list[str] = []
    first = begin(pair, 1, "A", log)
    begin(pair, 2, "B", log)
    pair.part()
    third = begin(pair, 1, "C", log)
    first()
    assert log == ["A begins", "B: restore failed: the first worker is not available", "A ends", "C begins"]
    third()
    assert not pair.workers[1].desk._turns


def test_without_the_first_worker_no_restored_stream_is_added(pair: Pair) -> None:
    log: list[str] = []
    pair.part()
    begin(pair, 2, "A", log)
    pair.settle(milliseconds=10_000)
    assert log == ["A: restore failed: the first worker is not available"]


def test_an_offline_stream_that_is_deleted_is_free_for_all_workers(pair: Pair) -> None:
    host, config = pair.hosts[2], StreamConfig(name="S", subjects=("s",), max_bytes=100)
    js, first = host.engine, pair.hosts[1].engine
    Path(js.files.directory_of("S")).mkdir(parents=True)
    js.files.take_offline(Offline(config, "it is newer"))
    js.held.hold(config)
    pair.workers[2].tell(1, pair.workers[2]._whole())
    pair.settle()
    assert (list(first.elsewhere), first.usage["file"].reserved) == (["S"], 100)

    host.node.turn_state.go_on(streams.delete(js, "S"))
    pair.settle()

    assert (list(first.elsewhere), first.usage["file"].reserved) == ([], 0)


def test_a_change_in_an_account_that_the_other_worker_does_not_know_is_refused(pair: Pair) -> None:
    desk = pair.workers[1].desk
    found: list[bool] = []

    def steps() -> Generator[Any, None, None]:
        desk._note = lambda router, request, number=0: Passed(  # type: ignore[method-assign]
            number, False, "NEW", b"$JS.API.STREAM.CREATE.S", b"r", b"", b"{}", {}
        )
        found.append((yield from desk._order(2, cast("Any", None), cast("Any", None))))

    pair.hosts[1].node.turn_state.go_on(steps())
    pair.settle()
    assert found == [False]
    assert not desk._unknown
