"""A source file as the style tests see it: its imports, functions and blocks, in .py, .pyx, .pxd and .pyi files.

Cython files are not Python, so nothing is parsed: strings and comments are blanked, lines are joined over brackets,
and blocks are found by indentation. That is exact for code that passes ruff and cython-lint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

STRING_OR_COMMENT = re.compile(
    r"""(?P<triple>\"{3}|'{3})(?:\\.|(?!(?P=triple)).)*(?P=triple)"""
    r"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\#[^\n]*""",
    re.DOTALL,
)
DOCSTRING = re.compile(r'\s*(?:#[^\n]*\n\s*)*[rR]?("""|\'\'\')(.*?)\1', re.DOTALL)
FUNCTION = re.compile(r"(?:async\s+)?(?:def|cpdef|cdef)\b[^=]*?\b(\w+)\s*\(.*:$")
NO_FUNCTION = re.compile(r"cdef\s+(?:(?:packed\s+)?struct|class|enum|union|extern|inline\s+class)\b")
BLOCK = re.compile(r"(?:async\s+)?(?:if|for|while|try|with|match)\b.*:$")
GIL_BLOCK = re.compile(r"with\s+(?:no)?gil(?:\(.*\))?:$")
IMPORT_FROM = re.compile(r"from\s+([\w.]+)\s+c?import\s+([\w\s,.*()]+)$")
IMPORT = re.compile(r"c?import\s+([\w.]+(?:\s+as\s+\w+)?(?:\s*,\s*[\w.]+(?:\s+as\s+\w+)?)*)$")


@dataclass(frozen=True, slots=True)
class Line:
    """A logical line, with all its brackets closed; strings and comments are blanked."""

    number: int  # number of its first physical line, from 1
    indent: int
    text: str


@dataclass(frozen=True, slots=True)
class Function:
    """A def, cdef or cpdef with a body."""

    name: str
    number: int
    length: int  # lines from the def to the last line of the body
    nesting: int  # number of blocks around the deepest line


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module, or an imported name that may be a module."""

    module: str
    name: str  # the name imported from the module; "" for a plain import
    number: int
    indent: int  # 0: imported when the module is loaded


class Source:
    """One source file."""

    def __init__(self, path: Path, text: str | None = None) -> None:
        self.path = path
        self.text = path.read_text() if text is None else text

    @cached_property
    def line_count(self) -> int:
        """The number of physical lines."""
        return len(self.text.splitlines())

    @property
    def docstring(self) -> str:
        """The module docstring, "" if there is none."""
        found = DOCSTRING.match(self.text)
        return found.group(2).strip() if found else ""

    @cached_property
    def blanked(self) -> str:
        """The text with every string and comment replaced by blanks; line numbers stay the same."""
        return STRING_OR_COMMENT.sub(_blank, self.text)

    @cached_property
    def _blanked_lines(self) -> list[str]:
        return self.blanked.splitlines()

    @cached_property
    def lines(self) -> list[Line]:
        """The logical lines that contain code."""
        joined: list[Line] = []
        depth = 0
        continued = False
        for number, raw in enumerate(self._blanked_lines, 1):
            text = raw.strip()
            if depth or continued:
                last = joined[-1]
                joined[-1] = Line(last.number, last.indent, f"{last.text} {text}".rstrip("\\").strip())
            elif text:
                joined.append(Line(number, len(raw) - len(raw.lstrip()), text.rstrip("\\").strip()))
            depth += sum(map(text.count, "([{")) - sum(map(text.count, ")]}"))
            continued = text.endswith("\\")
        return joined

    @cached_property
    def functions(self) -> list[Function]:
        """Every function and method with a body, including nested ones."""
        return [self._function(at) for at, line in enumerate(self.lines) if _starts_function(line.text)]

    @cached_property
    def imports(self) -> list[Import]:
        """Every module named by an import or cimport anywhere in the file."""
        return [
            Import(module, name, line.number, line.indent)
            for line in self.lines
            for module, name in _imported(line.text)
        ]

    def _function(self, at: int) -> Function:
        start = self.lines[at]
        match = FUNCTION.match(start.text)
        assert match
        body = []
        for line in self.lines[at + 1 :]:
            if line.indent <= start.indent:
                break
            body.append(line)
        last = self._last_physical_line(at + 1 + len(body))
        return Function(match[1], start.number, last - start.number + 1, _nesting(body))

    def _last_physical_line(self, next_at: int) -> int:
        """Return the number of the last line with text before the logical line `next_at`."""
        end = self.lines[next_at].number - 1 if next_at < len(self.lines) else self.line_count
        while end > 0 and not self._blanked_lines[end - 1].strip():
            end -= 1
        return end


def _blank(match: re.Match[str]) -> str:
    token = match[0]
    quotes = '""' if token[0] != "#" else ""
    newlines = token.count("\n")
    return quotes + "\n" * newlines if newlines else quotes.ljust(len(token))


def _imported(text: str) -> Iterator[tuple[str, str]]:
    if match := IMPORT_FROM.match(text):
        names = (part.split(" as ")[0].strip(" ()") for part in match[2].split(","))
        yield from ((match[1], name) for name in names if name)
    elif match := IMPORT.match(text):
        yield from ((part.split(" as ")[0].strip(), "") for part in match[1].split(","))


def _starts_function(text: str) -> bool:
    return FUNCTION.match(text) is not None and NO_FUNCTION.match(text) is None


def _nesting(body: list[Line]) -> int:
    """Return the number of blocks around the deepest line; a nested function starts again at zero."""
    open_blocks: list[int] = []  # their indents
    deepest = 0
    skip_below: int | None = None
    for line in body:
        if skip_below is not None and line.indent > skip_below:
            continue
        skip_below = line.indent if _starts_function(line.text) else None
        while open_blocks and open_blocks[-1] >= line.indent:
            open_blocks.pop()
        if BLOCK.match(line.text) and not GIL_BLOCK.match(line.text):
            open_blocks.append(line.indent)
        deepest = max(deepest, len(open_blocks))
    return deepest
