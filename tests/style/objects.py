"""Size limits of objects and packages (attributes, booleans, levels of inheritance, modules), and module state.

A `cdef class` has the attributes that its .pxd and .pyx declare; any other class has those that its methods set and
its body annotates. The rows of an option table (`name: bool = option(...)`) are not counted: it has one for each
option. Base classes are found by their names, which are unique in the tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.style.source import Source
from tests.style.tree import source_files

ATTRIBUTES = 40
BOOLEANS = 5
LEVELS = 2  # levels of inheritance below Sink for classes of store and jetstream
MODULES = 16

# Classes and packages above a limit: (name, limit) -> (count, reason). The count may only decrease.
OVER: dict[tuple[str, str], tuple[int, str]] = {
    ("ConfigKeys", "attributes"): (
        62,
        "the arguments of a call: those of a block are a part, the others cannot be",
    ),
    ("ConfigKeys", "booleans"): (11, "keys that are on or off, with no state together"),
    ("ConnectOptions", "booleans"): (6, "what CONNECT says is on or off"),
}

# Module variables that change after import: they belong to the process, and two servers in it share them.
STATE: dict[tuple[str, str], str] = {
    ("aio/thread.py", "_running"): "servers whose threads end before the interpreter does",
    ("server/system/scratch.py", "_there"): "directories that the process removes when it ends",
    ("base/bad_pages.pyx", "free_slots"): "a signal handler has no other place to look",
    ("base/file_map.pyx", "n_open"): "maps of the process, for tests that look for leaks",
    ("base/gotext.py", "_dates"): "texts of days, the same whoever asks",
    ("base/table.pyx", "s0"): "a key and its hash meet in loops that know no node",
    ("base/table.pyx", "s1"): "as s0",
    ("base/table.pyx", "seeded"): "as s0",
    ("store/segment/index_file.pyx", "spare_buffers"): "pages for the next index file, of whatever stream",
}

MODELS = ("pyjs/models/", "models/")

CLASS = re.compile(r"(?:cdef\s+|cpdef\s+)?class\s+(\w+)\s*(?:\(([^)]*)\))?\s*:$")
DECLARED = re.compile(r"cdef\s+(?!class\b|struct\b|enum\b|union\b|inline\b|extern\b)([^()]+)$")
SET = re.compile(r"\bself\.(\w+)\s*(?::[^=]*)?=(?!=)\s*(True|False)?")
ANNOTATED = re.compile(r"(\w+)\s*:\s*([^=]+)(?!=\s*option\()(?:=|$)")
CONTAINER = re.compile(
    r"(?:cdef\s+[\w\[\]]+\s+)?(_?[a-z]\w*)\s*(?::[^=]+)?=\s*"
    r"(?:[\[{]|(?:set|dict|list|bytearray|deque|defaultdict|OrderedDict|Counter|Weak\w+)\()"
)
GLOBAL = re.compile(r"global\s+(.+)$")


@dataclass
class Class:
    """A class of the tree."""

    module: str  # package/module
    bases: list[str]
    attributes: set[str] = field(default_factory=set)
    booleans: set[str] = field(default_factory=set)


def classes(src: Path) -> dict[str, Class]:
    """Return the classes of the files below `src` by name, without models, which repeat other declarations."""
    found: dict[str, Class] = {}
    for path in source_files(src):
        name = path.relative_to(src).with_suffix("").as_posix()
        if name.startswith(MODELS):
            continue
        _read(Source(path), name, found)
    return found


def _read(source: Source, module: str, found: dict[str, Class]) -> None:
    inside: Class | None = None
    compiled = False
    for line in source.lines:
        if line.indent == 0:
            inside = None
            if match := CLASS.match(line.text):
                bases = [base.strip().rpartition(".")[2] for base in (match[2] or "").split(",")]
                inside = found.setdefault(match[1], Class(module, []))
                inside.bases = inside.bases or [base for base in bases if base.isidentifier()]
                compiled = line.text.startswith("cdef")
        elif inside is not None and compiled and line.indent == 4:
            _note_declared(line.text, inside)
        elif inside is not None and not compiled:
            _note_python(line.text, line.indent, inside)


def _note_declared(text: str, into: Class) -> None:
    if match := DECLARED.match(text):
        words = match[1].split(",")
        names = [word.split()[-1].lstrip("*") for word in words if word.split()]
        into.attributes.update(names)
        if re.match(r"(?:(?:readonly|public)\s+)?bint\b", match[1]):
            into.booleans.update(names)


def _note_python(text: str, indent: int, into: Class) -> None:
    for name, value in SET.findall(text):
        into.attributes.add(name)
        if value:
            into.booleans.add(name)
    if indent == 4 and (match := ANNOTATED.match(text)) and not text.startswith(("def ", "class ", "@")):
        into.attributes.add(match[1])
        if match[2].strip() == "bool":
            into.booleans.add(match[1])


def _with_bases(name: str, known: dict[str, Class]) -> Iterator[Class]:
    if name in known:
        yield known[name]
        for base in known[name].bases:
            if base != name:
                yield from _with_bases(base, known)


def _levels(name: str, known: dict[str, Class]) -> int:
    if name not in known or name == "Sink":
        return 0
    return 1 + max((_levels(base, known) for base in known[name].bases if base != name), default=0)


def counts(src: Path) -> Iterator[tuple[str, str, int, int]]:
    """Yield (name, limit, count, maximum) for all classes and packages."""
    known = classes(src)
    for name, each in known.items():
        parts = list(_with_bases(name, known))
        yield name, "attributes", len(set().union(*(part.attributes for part in parts))), ATTRIBUTES
        yield name, "booleans", len(set().union(*(part.booleans for part in parts))), BOOLEANS
        if each.module.startswith(("store/", "jetstream/")):
            yield name, "levels", _levels(name, known), LEVELS
    yield from packages(src)


def packages(src: Path) -> Iterator[tuple[str, str, int, int]]:
    """Yield (folder, "modules", count, maximum) for all folders of modules."""
    for package in sorted({path.parent for path in source_files(src)}):
        modules = {path.stem for path in package.iterdir() if path.suffix in (".py", ".pyx")} - {"__init__"}
        yield package.relative_to(src).as_posix(), "modules", len(modules), MODULES


def over(src: Path) -> dict[tuple[str, str], int]:
    """Return the classes and packages above a limit, with their counts."""
    return {(what, limit): count for what, limit, count, most in counts(src) if count > most}


def module_state(src: Path) -> set[tuple[str, str]]:
    """Return (file, name) of module state: variables that functions declare global, and containers in lower case."""
    found: set[tuple[str, str]] = set()
    for path in source_files(src):
        name = path.relative_to(src).as_posix()
        for line in Source(path).lines:
            if match := GLOBAL.match(line.text):
                found.update((name, each.strip()) for each in match[1].split(","))
            elif line.indent == 0 and (match := CONTAINER.match(line.text)):
                found.add((name, match[1]))
    return found
