"""Limits for single files: size, form and wording, and the check of a tree against them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.style.source import Source

FILE_LINES = 800
FILE_LINES_EXPLAINED = 600  # longer files must say "Long because ..." in their header
FUNCTION_LINES = 70
NESTING = 4

# Exceptions from the rules, with their reasons: (file, what) -> reason; `what` is "file" or a function's name.
EXCEPTIONS: dict[tuple[str, str], str] = {}

# Direct calls of clock, random numbers or disk; only the rooms of SHELL and the files of SEAMS may make them.
SEAM_CALLS = re.compile(
    r"(?<![\w.])(open|input|print|breakpoint|exec|eval)\("
    r"|\b(io\.open|os\.\w+|time\.\w+|random\.\w+|secrets\.\w+)\("
    r"|\b(?:datetime|date)\.(?:now|today|utcnow)\("
)
C_WORLD = re.compile(
    r"^\s*(?:#\s*include|cdef\s+extern\s+from)\s+[\"<]+"
    r"((?:sys/|unistd|fcntl|stdio|time\.|pthread|signal|dirent|poll|semaphore)[\w./]*)",
    re.MULTILINE,
)
SHELL = ("server/", "aio/", "operating/", "cli.py", "__main__.py", "testing/")
SEAMS = ("base/disk.py",)
SEAMS_IN_C = ("base/bad_pages.h",)  # this header maps files for base/disk.py
# Base classes with methods that subclasses must implement: the three interfaces, and those around a session.
ABSTRACT = (
    "base/clock.py",
    "base/rng.py",
    "core/link.py",
    "core/host.py",
    "core/job.py",
    "jetstream/files/metadata.py",
)

# Written with {} inside, so that this file, which is checked too, does not contain the words.
UNFINISHED = re.compile(r"\b(TO{}DO|FIX{}ME|XX{}X|HA{}CK)\b".replace("{}", ""))
NOT_IMPLEMENTED = "NotImplemented{}Error".replace("{}", "")
MACHINE = re.compile(
    r"(?<![\w.])/(?:wo{}rk|ro{}ot|fa{}rm|ho{}me/\w+|Users/\w+)/"
    r"|/tmp/ba{}sh_jobs|pypi-{}more|\.li{}brary/".replace("{}", "")
)
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)[^)]*\)")  # a link to a file of this tree
CONFLICT = re.compile(r"^(<{7}|>{7}) \S", re.MULTILINE)
TICKET = re.compile(r"\b(?:issue|ticket)s? #?\d+\b", re.IGNORECASE)
WORDS = (UNFINISHED, MACHINE, CONFLICT, TICKET)
TEXT_SUFFIXES = {"", *".py .pyx .pxd .pyi .h .c .md .toml .txt .conf .sh .yml .json .mjs .rs".split()}
TOP_LEVEL = {
    *"pyproject.toml README.md CHANGELOG.md SECURITY.md LICENSE Makefile Dockerfile".split(),
    *".dockerignore .gitignore .github .ci".split(),
    *"src spark raft tests conf deploy benchmarks docs".split(),
}

Check = Callable[[str, Source], Iterator[str]]


def violations(root: Path, files: list[Path]) -> list[str]:
    """Return a sentence for each violation of the rules in `files` below `root`."""
    found: list[str] = []
    for path in files:
        name = path.relative_to(root).as_posix()
        if path.suffix not in TEXT_SUFFIXES:
            continue
        source = Source(path)
        checks: list[Check] = [_words]
        if path.suffix in (".py", ".pyx", ".pxd"):
            checks += [_lengths, _header]
        if name.startswith("src/pyjs/"):
            checks += [_seams, _c_world, _abstract]
        if path.suffix == ".pyx":
            checks += [_compiled]
        if path.suffix == ".md":
            checks += [_links]
        if path.suffix == ".pyi":
            checks += [_stub]
        found.extend(f"{name}: {problem}" for check in checks for problem in check(name, source))
    return found


def strangers(root: Path, files: list[Path]) -> list[str]:
    """Return the top-level entries that are not allowed there."""
    return sorted({path.relative_to(root).parts[0] for path in files} - TOP_LEVEL)


def idle_exceptions(root: Path) -> list[str]:
    """Return the exceptions that are no longer needed."""
    idle = []
    for (name, what), reason in EXCEPTIONS.items():
        path = root / name
        needed = path.exists() and any(_is_about(problem, what) for problem in _all_lengths(Source(path)))
        if not needed or len(reason) < 20:
            idle.append(f"{name}: {what}")
    return idle


def _lengths(name: str, source: Source) -> Iterator[str]:
    for problem in _all_lengths(source):
        if not any(_is_about(problem, what) for file, what in EXCEPTIONS if file == name):
            yield problem
    if FILE_LINES_EXPLAINED < source.line_count <= FILE_LINES and "ong because" not in source.docstring:
        yield f"{source.line_count} lines, and its header does not say 'Long because ...'"


def _is_about(problem: str, what: str) -> bool:
    return problem.startswith(f"{what} ")


def _all_lengths(source: Source) -> Iterator[str]:
    if source.line_count > FILE_LINES:
        yield f"file of {source.line_count} lines, the fence is {FILE_LINES}"
    for function in source.functions:
        where = f"{function.name} (line {function.number})"
        if function.length > FUNCTION_LINES:
            yield f"{where} has {function.length} lines, the fence is {FUNCTION_LINES}"
        if function.nesting > NESTING:
            yield f"{where} nests {function.nesting} deep, the fence is {NESTING}"


def _header(name: str, source: Source) -> Iterator[str]:
    if source.text.strip() and not source.docstring and not name.startswith("tests/unit/"):
        yield "no header: its first line says what this is, as a noun phrase"


def _words(name: str, source: Source) -> Iterator[str]:
    if not any(words.search(source.text) for words in WORDS):
        return  # most files have none of the words; the search line by line would take ten times as long
    for number, line in enumerate(source.text.splitlines(), 1):
        if match := UNFINISHED.search(line):
            yield f"line {number} says {match[0]}; what is missing is in the docs"
        if match := MACHINE.search(line):
            yield f"line {number} names a place on one machine: {match[0]}"
        if CONFLICT.match(line):
            yield f"line {number} is left of a merge"
        if match := TICKET.search(line):
            yield f"line {number} speaks of {match[0]}; say what it is about"


def _links(name: str, source: Source) -> Iterator[str]:
    for target in LINK.findall(source.text):
        if not (source.path.parent / target).exists():
            yield f"links to {target}, which is not there"


def _seams(name: str, source: Source) -> Iterator[str]:
    inside = name.removeprefix("src/pyjs/")
    if inside.startswith(SHELL) or inside in SEAMS:
        return
    for line in source.lines:
        for match in SEAM_CALLS.finditer(line.text):
            if not line.text.startswith(("def ", "cdef ", "cpdef ")):
                yield f"line {line.number} calls {match[0].strip('(.')} past the seams (Clock, Rng, Disk, Log)"


def _c_world(name: str, source: Source) -> Iterator[str]:
    for match in C_WORLD.finditer(source.text if name.removeprefix("src/pyjs/") not in SEAMS_IN_C else ""):
        yield f"takes in {match[1]}: time and disk come through the seams in C too"


def _abstract(name: str, source: Source) -> Iterator[str]:
    if NOT_IMPLEMENTED in source.blanked and name.removeprefix("src/pyjs/") not in ABSTRACT:
        yield f"raises {NOT_IMPLEMENTED}; only ABSTRACT of tests/style/tidy.py leaves something to a subclass"


def _compiled(name: str, source: Source) -> Iterator[str]:
    if "benchmarks/" not in source.docstring:
        yield "its header does not name the benchmark (benchmarks/...) that paid for compiling it"
    if not source.path.with_suffix(".pyi").exists():
        yield "no .pyi beside it: types and stubtest cannot see the module"


def _stub(name: str, source: Source) -> Iterator[str]:
    if re.search(r"\bAny\b", source.blanked):
        yield "a stub says Any"
