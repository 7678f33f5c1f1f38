"""docs/tour.md: every file and function that it names is there, and its counts are those of its lists."""

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
MOST = {  # what a newcomer walks in ten minutes: (modules, functions)
    "From PUB to a subscriber": (12, 35),
    "From PUB into a stream": (20, 65),
    "Pull, deliver, ack, redeliver": (20, 75),
}


class Journey(NamedTuple):
    """One section of the tour: what its heading says, and what its list names."""

    title: str
    modules: int
    functions: int
    steps: list[tuple[str, str]]  # file below src/pyjs, function or Class.method


def journeys(text: str) -> list[Journey]:
    """Return the sections whose heading has counts."""
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
