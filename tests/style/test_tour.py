"""docs/tour.md: its files and functions exist, its counts match its lists, and it has a row for each task."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest
from tests.style.tree import ROOT

TOUR = ROOT / "docs/tour.md"
SRC = ROOT / "src/pyjs"
HEADING = re.compile(
    r"^## (?P<title>.+): (?P<modules>\d+) modules, (?P<functions>\d+) functions$", re.MULTILINE
)
STEP = re.compile(r"^- `(?P<file>[\w/]+\.(?:py|pyx|pxd))`:(?P<names>(?:,?\s+`[\w.]+`)+)", re.MULTILINE)
FUNCTION = r"^(?P<indent> *)(?:async )?(?:def|cdef|cpdef)\b[^(\n]*?\b{name}\("
CLASS = re.compile(r"^(?:cdef )?class (\w+)", re.MULTILINE)
MOST = {  # limits for ten minutes of reading: (modules, functions)
    "From PUB to a subscriber": (12, 35),
    "From PUB into a stream": (20, 65),
    "Pull, deliver, ack, redeliver": (20, 75),
}


class Journey(NamedTuple):
    """One section of the tour: the counts in its heading, and the items of its list."""

    title: str
    modules: int
    functions: int
    steps: list[tuple[str, str]]  # file below src/pyjs, function or Class.method


def journeys(text: str) -> list[Journey]:
    """Return the sections whose headings have counts."""
    found = list(HEADING.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    return [_journey(match, text[match.end() : end]) for match, end in zip(found, ends, strict=True)]


def _journey(match: re.Match[str], body: str) -> Journey:
    steps = [
        (step["file"], name)
        for step in STEP.finditer(body)
        for name in re.findall(r"`([\w.]+)`", step["names"])
    ]
    return Journey(match["title"], int(match["modules"]), int(match["functions"]), steps)


def defines(text: str, name: str) -> bool:
    """Return whether a source file has this function, or this method in this class."""
    owner, _, function = name.rpartition(".")
    for match in re.finditer(FUNCTION.format(name=re.escape(function)), text, re.MULTILINE):
        above = CLASS.findall(text[: match.start()])
        if bool(match["indent"]) == bool(owner) and (not owner or above[-1:] == [owner]):
            return True
    return False


JOURNEYS = journeys(TOUR.read_text())


def test_each_journey_is_there_and_short_enough() -> None:
    assert {journey.title for journey in JOURNEYS} == set(MOST)
    for journey in JOURNEYS:
        modules, functions = MOST[journey.title]
        assert (journey.modules <= modules, journey.functions <= functions) == (True, True), journey.title


@pytest.mark.parametrize("journey", JOURNEYS, ids=lambda journey: journey.title)
def test_the_counts_of_a_journey_are_those_of_its_list(journey: Journey) -> None:
    assert journey.modules == len({file for file, _ in journey.steps})
    assert journey.functions == len(set(journey.steps)) == len(journey.steps)


@pytest.mark.parametrize("journey", JOURNEYS, ids=lambda journey: journey.title)
def test_what_a_journey_names_is_there(journey: Journey) -> None:
    missing = [
        f"{file}: {name}"
        for file, name in journey.steps
        if not (SRC / file).is_file() or not defines((SRC / file).read_text(), name)
    ]

    assert missing == []


@pytest.mark.parametrize(
    ("name", "there"),
    [("f", True), ("g", False), ("A.m", True), ("B.m", False), ("m", False), ("A.f", False), ("B.c", True)],
)
def test_a_function_is_looked_for_in_its_class(name: str, there: bool) -> None:
    plain = "def f(x):\n    pass\n\nclass A:\n    async def m(self):\n        g()\n\n"
    text = plain + "cdef class B:\n    cdef int c(self):\n        pass\n"

    assert defines(text, name) is there


def test_every_file_that_the_tour_names_is_there() -> None:
    named = re.findall(r"`([\w/]+\.(?:py|pyx|pxd))`", TOUR.read_text())

    assert [name for name in named if not (SRC / name).is_file() and not (ROOT / name).is_file()] == []


ROW = re.compile(r"^\| (?P<task>[^|]+) \| (?P<files>[^|]+) \|$", re.MULTILINE)
INSIDE = re.compile(r"`(?P<file>[\w/]+\.(?:py|pyx|pxd))`: (?P<names>`\w+`(?:, `\w+`)*)")
TASKS = {  # Changes that a newcomer may want to make: words of the left column, and the file to open
    ("PubAck",): "jetstream/stream/answers.pyx",
    ("stream option",): "jetstream/config/stream.py",
    ("field", "/varz"): "monitor/varz.py",
    ("segment", "compacted"): "store/file/compactor.pyx",
    ("text", "permissions violation"): "core/auth/violations.py",
    ("flag",): "config/flags.py",
    ("route", "again"): "cluster/mesh.py",
    ("/healthz",): "monitor/healthz.py",
    ("header", "advisory"): "jetstream/advisories.py",
    ("max_ack_pending",): "jetstream/rules/consumer.py",
    ("PING",): "core/pings.py",
    ("lame duck",): "server/lame_duck.py",
    ("TLS",): "server/tls/context.py",
    ("WebSocket", "upgrade"): "server/websocket/upgrade.py",
    ("worker", "again"): "server/workers/process.py",
    ("restore",): "jetstream/transfer/restore.py",
    ("fsck",): "fsck/check.py",
    ("argument", "aio.Server"): "config/tables.py",
    ("protocol", "-ERR"): "core/intake.pyx",
    ("import", "running server"): "core/exchange/account_exchange.py",
    ("log line",): "server/announce.py",
    ("key of the configuration", "default"): "config/options.py",
    ("queue group", "member"): "core/account.pyx",
    ("heartbeat", "flow control"): "jetstream/consumer/delivery/push.pyx",
    ("size of a segment",): "jetstream/manage/segments.py",
    ("TTL",): "jetstream/stream/message_ttl.py",
    ("API request", "field of an answer"): "jetstream/api/account.py",
    ("CONNECT", "password"): "core/auth/login.py",
    ("slow consumer",): "core/deadlines.py",
    ("pull request", "expires"): "jetstream/consumer/delivery/pull_requests.pyx",
    ("reload", "refuses"): "server/reload.py",
    ("subjects overlap",): "jetstream/manage/streams.py",
    ("Nats-Expected",): "jetstream/stream/stream.pyx",
    ("duplicate",): "jetstream/stream/dedupe.pyx",
    ("full", "disk"): "store/file/condition.pyx",
    ("limit", "payloads"): "wire/parser.pyx",
    ("servers hold a stream",): "jetstream/cluster/placement.py",
    ("elections",): "consensus/consensus.py",
    ("bulk connection",): "cluster/writer.pxd",
    ("WebSocket", "frame"): "wire/frames.pyx",
    ("redelivered", "in one turn"): "jetstream/consumer/acks/pending.pyx",
}


@pytest.mark.parametrize(
    ("words", "file"), TASKS.items(), ids=lambda each: "-".join(each) if isinstance(each, tuple) else ""
)
def test_a_task_finds_the_file_to_open(words: tuple[str, ...], file: str) -> None:
    rows = [row for row in ROW.finditer(TOUR.read_text()) if all(word in row["task"] for word in words)]

    assert f"`{file}`" in "".join(row["files"] for row in rows)
    assert len(rows) <= 2, "the words lead to too many rows"


def test_a_name_after_a_file_is_in_it() -> None:
    named = [
        (found["file"], name)
        for found in INSIDE.finditer(TOUR.read_text())
        for name in re.findall(r"\w+", found["names"])
    ]

    assert len(named) > 10
    assert [(file, name) for file, name in named if name not in (SRC / file).read_text()] == []
