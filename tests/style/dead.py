"""Unused code: definitions in src/pyjs that no other line of src/ names.

It finds functions, methods, classes, constants, members of enums, fields of structs and attributes, in .py, .pyx and
.pxd files. It compares names only: a name that is used anywhere counts as used everywhere, so every finding is really
unused. A line that imports a name, assigns it or passes it by keyword does not use it, and neither does a test. Use
of a method requires a dot before its name.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.style.source import FUNCTION, NO_FUNCTION, STRING_OR_COMMENT, Source
from tests.style.tree import source_files

# Packages that other programs import; every name without an underscore counts as used.
PUBLIC = ("pyjs/aio/", "pyjs/testing/", "pyjs/pytest_plugin.py", "pyjs/models/")
# Packages that only tests use until the server uses them: parts of a cluster with JetStream.
PREPARED = ("pyjs/config/ports/replicated.py", "pyjs/jetstream/cluster/")
# Definitions that no line of src/ names, with the reason why they exist: name -> reason.
CALLED = {
    **dict.fromkeys(
        "on_message_begin on_url on_header on_headers_complete on_body on_message_complete".split(),
        "called by the parser of httptools",
    ),
    **dict.fromkeys(
        "_stop_all _remove_all".split(), "called by atexit, which the decorator registers them with"
    ),
    **dict.fromkeys("get_buffer buffer_updated".split(), "called by the event loop for each read"),
    "_resuming": "holds a task, of which the loop itself has only a weak reference",
}
LAYOUT = dict.fromkeys(
    "needs_major needs_minor spare2 spare_ts".split(),
    "bytes of a stored or sent form that this version does not read",
)
FOR_TESTS = {
    "step_wall": "programs' tests set the wall clock of a virtual node",
    "open_maps": "a map that stays open is a leak that nothing else shows",
    **dict.fromkeys("segment_paths scan_segment".split(), "what is stored, for tests of the store"),
    **dict.fromkeys("checksum_of skip_seq".split(), "one step of a store, for its unit tests"),
    **dict.fromkeys(
        "expire_due heap_steps".split(),
        "compiled for C callers, called so by unit tests",
    ),
    **dict.fromkeys("compose_tokens verb_of".split(), "ack subjects and payloads, for their unit tests"),
}
KNOWN: dict[str, str] = CALLED | LAYOUT | FOR_TESTS

BLOCK = re.compile(r"(?:cdef\s+|cpdef\s+)?(?:packed\s+)?(class|struct|union|enum)\b\s*(\w*)")
DECLARED = re.compile(r"(?:cdef|cpdef)\s[^=(]*?\b(\w+)\s*\([^:]*$")  # a function in a .pxd
CDEF_FIELDS = re.compile(r"cdef\s+(?!class\b|struct\b|enum\b|union\b|inline\b|extern\b)([^(=]+?)(?:=.*)?$")
STRUCT_FIELDS = re.compile(r"(?:const\s+)?[A-Za-z_]\w*[\s*]+([^(]+)$")
MEMBER = re.compile(r"([A-Za-z_]\w*)")  # a member of an enum
CONSTANT = re.compile(r"([A-Za-z_]\w*)\s*(?::[^=]+)?=(?!=)")
FIELD = re.compile(r"([A-Za-z_]\w*)\s*:(?!=)")
SET = re.compile(r"\bself\.(\w+)\s*(?::[^=]+)?=(?!=)")
NAME = re.compile(r"[A-Za-z_]\w*")
STUB = re.compile(r"def (\w+)\(|(\w+): ")
METHOD = re.compile(r"^    (?:async )?def (\w+)\((?:self|cls)\b", re.MULTILINE)
DOTTED = re.compile(r"[.@\"'](\w+)")
NO_USE = re.compile(
    r"^[ \t]*(?:from\s+[\w.]+\s+)?c?import\s+(?:\([^)]*\)|[^\n]*)"
    r"|^[ \t]*__(?:all|slots)__\s*=\s*(?:\([^)]*\)|\[[^\]]*\]|[^\n]*)"
    r"|^[ \t]*(?:\w+\.\w+\s*,\s*)+\w+\.\w+(?=\s*=(?!=))"  # a.x, a.y = ...
    r"|^[ \t]*self\.\w+(?=\s*:\s)"  # self.x: int = ...
    r"|(?<=\.)\w+(?=\s*(?:[-+*|&^%]|//|<<|>>)?=(?!=))"  # a.x = ...
    r"|\b\w+(?==(?!=))",  # f(x=...)
    re.MULTILINE,
)


def unused(src: Path, package: str = "pyjs") -> list[str]:
    """Return the unused definitions of `package` below `src` as "file: name", including those that KNOWN excuses."""
    defined: dict[str, list[str]] = {}
    uses: Counter[str] = Counter()
    methods: set[str] = set()
    dotted: set[str] = set()
    for path in source_files(src):
        source, name = Source(path), path.relative_to(src).as_posix()
        found = list(_definitions(source))
        code = NO_USE.sub("", _code(source.text))
        uses.update(NAME.findall(code))
        dotted.update(DOTTED.findall(code))
        uses.subtract(each for each, is_counted in found if is_counted)
        methods.update(METHOD.findall(source.blanked))
        for each, _ in found:
            is_ours = name.startswith(f"{package}/") and not each.startswith("__")
            if is_ours and not (name.startswith(PUBLIC + PREPARED) and each[0] != "_"):
                defined.setdefault(each, []).append(name)
    lonely = methods - dotted
    dead = {each: places for each, places in defined.items() if uses[each] <= 0 or each in lonely}
    return sorted(f"{place}: {each}" for each, places in dead.items() for place in dict.fromkeys(places))


def unused_in_stubs(root: Path) -> list[str]:
    """Return declarations in stubs that no type-checked file names, as "file: name"."""
    checked = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["mypy"]["files"]
    names: set[str] = set()
    for place in checked:
        path = root / place
        for file in path.rglob("*.py") if path.is_dir() else [path]:
            names.update(NAME.findall(_code(file.read_text())))
    return [
        f"{stub.relative_to(root).as_posix()}: {name}"
        for stub in sorted((root / "src/pyjs").rglob("*.pyi"))
        for line in Source(stub).lines
        if (found := STUB.match(line.text)) and (name := found[1] or found[2]) not in names and name[0] != "_"
    ]


def _code(text: str) -> str:
    """Return a text without comments and docstrings; other strings remain, since they may hold expressions."""
    return STRING_OR_COMMENT.sub(
        lambda found: "" if found["triple"] or found[0][0] == "#" else found[0], text
    )


def _definitions(source: Source) -> Iterator[tuple[str, bool]]:
    """Yield each name that a file defines, and whether its definition is among the counted uses of the name."""
    block = ""  # the innermost enclosing block: "", class, struct, union or enum
    for line in source.lines:
        text = line.text
        found = BLOCK.match(text)
        if line.indent == 0:
            block = found[1] if found else "" if text.startswith(("@", "if ", "else:")) else "other"
        if found and text.endswith(":"):
            if found[1] != "enum" and found[2]:
                yield found[2], True
        elif function := FUNCTION.match(text) if not NO_FUNCTION.match(text) else None:
            yield function[1], True
        elif declared := DECLARED.match(text):
            yield declared[1], True
        elif line.indent == 0 or (line.indent == 4 and block not in ("", "other")):
            yield from ((each, True) for each in _declared(text, "" if line.indent == 0 else block))
        yield from ((each, False) for each in SET.findall(text))


def _declared(text: str, block: str) -> Iterator[str]:
    """Yield the names that a line declares without a function: constants, fields, members."""
    is_struct = block in ("struct", "union")
    if block == "enum":
        yield from MEMBER.findall(text)[:1]
    elif fields := CDEF_FIELDS.match(text) or (STRUCT_FIELDS.match(text) if is_struct else None):
        names = (re.sub(r"\[[^]]*\]", "", each).split() for each in fields[1].split(","))
        yield from (words[-1].lstrip("*") for words in names if words)
    elif found := CONSTANT.match(text) or (FIELD.match(text) if block == "class" else None):
        yield found[1]
