"""A scenario file as a list of steps.

This module parses the line language (../README.md) without using sockets or servers: a step has the words of its
line, and the player executes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

JETSTREAM_BLOCK = 'jetstream: {store_dir: "<<store>>"}'

SCENARIOS = Path(__file__).resolve().parents[1] / "scenarios"

_SEND = re.compile(r"^([a-z][a-z0-9]*)(>>|\|>|>)(?: (.*))?$")
_FILL = re.compile(r"<<(.+?)\*(\d+)>>", re.DOTALL)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|[rnt0\\])")
_SIMPLE = {"r": b"\r", "n": b"\n", "t": b"\t", "0": b"\0", "\\": b"\\"}
SERVER_VERBS = frozenset({"http", "restart", "kill", "signal"})
CONN_VERBS = frozenset({"open", "connect", "close", "closed", "keep", "stall", "pub", "req", "js", "pull"})
CONN_VERBS |= {"ack", "acksync", "acknext", "answer", "sync", "wait", "until"}


class ScriptError(Exception):
    """A line that is not in the script language. The text names the file, the line and the cause."""


@dataclass(frozen=True, slots=True)
class Step:
    """One statement."""

    line: int
    verb: str  # a verb of the language, or "send", "send-exact", "send-bytewise"
    conn: str  # the connection's name; "" for steps of the whole server
    text: str  # the rest of the line


@dataclass(frozen=True, slots=True)
class Script:
    """A parsed scenario."""

    name: str  # "area/file", as docs/compatibility.md names it
    title: str
    config: str  # server configuration; "<<store>>" stands for the store directory
    steps: tuple[Step, ...]
    text: str  # the whole file: values that occur in it are not masked

    @property
    def uses_http(self) -> bool:
        """Return whether the server needs its monitoring port."""
        return any(step.verb == "http" for step in self.steps)


def load_all(root: Path = SCENARIOS) -> list[Script]:
    """Read every scenario below `root`, in the order of their names."""
    return [load(path, root) for path in sorted(root.rglob("*.txt"))]


def load(path: Path, root: Path) -> Script:
    """Read the scenario at `path`, named relative to `root`."""
    return parse(path.read_text("utf-8"), path.relative_to(root).with_suffix("").as_posix())


def parse(text: str, name: str) -> Script:
    """Parse the text of a scenario into steps.

    Raises:
        ScriptError: a statement is unknown or malformed.
    """
    config: list[str] = []
    steps: list[Step] = []
    title: list[str] = []
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        stripped = line.strip()
        if stripped.startswith("#"):
            if not steps and not config:
                title.append(stripped.lstrip("# "))
        elif re.match(r"server\b", line):
            config += _config(line, lines)
        elif stripped:
            steps += _steps(name, number, line.rstrip("\n"))
    if not title:
        raise ScriptError(f"{name}: the first line must be a comment that says what the scenario shows")
    return Script(name, " ".join(title), "\n".join(config), tuple(steps), text)


def unescape(text: str) -> bytes:
    r"""Return the bytes that `text` stands for: `\r \n \t \0 \\ \xNN` and `<<text*count>>`."""
    filled = _FILL.sub(lambda match: match[1] * int(match[2]), text)
    out = bytearray()
    position = 0
    for match in _ESCAPE.finditer(filled):
        out += filled[position : match.start()].encode()
        code = match[1]
        out += bytes([int(code[1:], 16)]) if code[0] == "x" else _SIMPLE[code]
        position = match.end()
    return bytes(out + filled[position:].encode())


def _config(line: str, lines: object) -> list[str]:
    words = line.split()
    config = [JETSTREAM_BLOCK] if "jetstream" in words else []
    if words[-1] == "{":
        for _, inner in lines:  # type: ignore[attr-defined]
            if inner.rstrip() == "}":
                return config
            config.append(inner)
        raise ScriptError(f"server block is not closed by a line with only '}}': {line}")
    return config


def _steps(name: str, number: int, line: str) -> list[Step]:
    sent = _SEND.match(line)
    if sent:
        verb = {">": "send", ">>": "send-exact", "|>": "send-bytewise"}[sent[2]]
        return [Step(number, verb, sent[1], sent[3] or "")]
    verb, _, rest = line.partition(" ")
    if verb == "repeat":
        count, _, statement = rest.partition(" ")
        each = (_steps(name, number, statement.replace("%d", str(i))) for i in range(1, int(count) + 1))
        return [step for steps in each for step in steps]
    if verb not in CONN_VERBS | SERVER_VERBS:
        raise ScriptError(f"{name}:{number}: unknown statement {line!r}; see tests/conformance/README.md")
    if verb in SERVER_VERBS:
        return [Step(number, verb, "", rest)]
    conn, _, rest = rest.partition(" ")
    if not conn:
        raise ScriptError(f"{name}:{number}: {verb} needs the name of a connection")
    return [Step(number, verb, conn, rest)]
