"""Code blocks of a page, and a shell that runs them in their order.

What happens to a block depends on its language:

    sh        each command must succeed
    console   each command after `$ ` must print the lines below it
    python    a program; it must succeed, and print what a `text` block right below it says; one that begins with a
              comment like `# shop.py` is saved under that name instead
    conf      must be a valid configuration, and is saved if it begins with a comment like `# server.conf`
    json      must be JSON
    text      is only shown

In the output of `console`, `...` alone stands for any number of lines, and `...words...` for a line with these words.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from textwrap import indent
from typing import NamedTuple, Self

from tests.conformance.harness.process import REPOSITORY, free_port, our_command

LANGUAGES = ("sh", "console", "python", "conf", "json", "text", "cython", "toml", "sql")
PORTS = (4222, 6222, 8222)
COMMAND_SECONDS = 60.0
POLL_SECONDS = 0.02
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$(?=(?:\n\n```text\n(.*?)^```$)?)", re.DOTALL | re.MULTILINE)
_NAME = re.compile(r"# ([\w.-]+\.(?:py|conf))\n")
_DONE = "<<the command has ended>>"


class Block(NamedTuple):
    """One code block: the number of its first line in the page, its language, its text, and the output below it."""

    line: int
    language: str
    text: str
    output: str | None

    @property
    def name(self) -> str:
        """Return the file name in its first line, or nothing."""
        found = _NAME.match(self.text)
        return found[1] if found else ""


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in their order."""
    text = page.read_text("utf-8")
    return [
        Block(text.count("\n", 0, found.start()) + 2, found[1], found[2], found[3])
        for found in _FENCE.finditer(text)
    ]


class Command(NamedTuple):
    """A command of a block, and the lines that it must print; None if any will do."""

    line: int
    text: str
    printed: list[str] | None


def commands(block: Block) -> list[Command]:
    """Return the commands of an `sh` or `console` block."""
    found: list[Command] = []
    continued = False
    for at, line in enumerate(block.text.splitlines(), block.line):
        if continued:
            last = found.pop()
            found.append(last._replace(text=f"{last.text}\n{line}"))
        elif block.language == "sh":
            if line and not line.lstrip().startswith("#"):
                found.append(Command(at, line, None))
        elif line.startswith("$ "):
            found.append(Command(at, line[2:], []))
        else:
            printed = found[-1].printed
            assert printed is not None
            printed.append(line)
            continue
        continued = line.endswith("\\")
    return found


def agrees(printed: list[str], wanted: list[str]) -> bool:
    """Report whether the lines are those of a page, where `...` stands for what it leaves out."""
    if not wanted:
        return not printed
    if wanted[0] == "...":
        return any(agrees(printed[skipped:], wanted[1:]) for skipped in range(len(printed) + 1))
    return bool(printed) and _line_agrees(printed[0], wanted[0]) and agrees(printed[1:], wanted[1:])


def _line_agrees(printed: str, wanted: str) -> bool:
    if len(wanted) > 6 and wanted.startswith("...") and wanted.endswith("..."):
        return wanted[3:-3] in printed
    return printed.rstrip() == wanted.rstrip()


class Reader:
    """A reader who types in what a page shows: a shell in an empty directory, with ports that are free."""

    def __init__(self, directory: Path, cli: str | None) -> None:
        self.directory = directory
        self.cli = cli
        self.ports = {port: free_port() for port in PORTS}
        self.shell = self._open_shell()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        """End the shell and what it left running."""
        with suppress(ProcessLookupError):
            os.killpg(self.shell.pid, 9)
        self.shell.wait()
        for pipe in (self.shell.stdin, self.shell.stdout):
            if pipe:
                pipe.close()

    def run(self, block: Block) -> None:
        """Do with a block what its language says; raise AssertionError if that does not work."""
        text = self.with_free_ports(block.text)
        if block.name:
            (self.where() / block.name).write_text(text)
        elif block.language == "python":
            if text.startswith("async with "):  # a part of a program
                head, body = "import asyncio, nats, pyjs.aio\nasync def main():", indent(text, "    ")
                text = f"{head}\n{body}\nasyncio.run(main())"
            printed = None if block.output is None else block.output.splitlines()
            self.run_command(Command(block.line, f"python - <<'END'\n{text}\nEND", printed))
        if block.language in ("sh", "console"):
            for command in commands(block):
                self.run_command(command)

    def can(self, command: str) -> bool:
        """Report whether the program of a command is here; only the nats command may be missing."""
        return bool(self.cli) or not command.startswith("nats ")

    def run_command(self, command: Command) -> None:
        """Type one command, and compare what it prints."""
        if not self.can(command.text):
            return
        status, printed = self._type(self.with_free_ports(command.text))
        if re.match(r"pyjs-server .*&", command.text):
            self.wait_until_served()
        place = f"line {command.line}: {command.text}"
        if command.printed is None:
            assert status == 0, f"{place}\nended with {status}:\n{printed}\n{self.log()}"
            return
        wanted = [self.with_free_ports(line) for line in command.printed]
        assert agrees(printed.splitlines(), wanted), f"{place}\nprinted:\n{printed}\n{self.log()}"

    def with_free_ports(self, text: str) -> str:
        """Return a text with the ports of this run instead of the usual ones."""
        for usual, free in self.ports.items():
            text = re.sub(rf"\b{usual}\b", str(free), text)
        return text

    def where(self) -> Path:
        """Return the directory that the shell is in."""
        return Path(self._type("pwd")[1].strip())

    def log(self) -> str:
        """Return what the server wrote into its log."""
        return "\n".join(path.read_text() for path in self.directory.rglob("*.log"))

    def serve(self) -> None:
        """Start a server with JetStream, for a page that needs one before its first block."""
        self.run(Block(0, "sh", "pyjs-server -js -sd data -m 8222 > server.log 2>&1 &", None))

    def wait_until_served(self) -> None:
        """Wait until the server is well; a page has no event to wait for."""
        url = f"http://127.0.0.1:{self.ports[8222]}/healthz"
        deadline = time.monotonic() + COMMAND_SECONDS
        while True:
            with suppress(urllib.error.URLError, ConnectionError), urllib.request.urlopen(url):
                return
            assert time.monotonic() < deadline, self.log()
            time.sleep(POLL_SECONDS)

    def _type(self, text: str) -> tuple[int, str]:
        stdin, stdout = self.shell.stdin, self.shell.stdout
        assert stdin
        assert stdout
        # The shell's own remarks, on jobs that were killed for instance, are not what the command printed.
        stdin.write(f'{{ {text}\n}} 2>&1\necho "\n{_DONE} $?"\n')
        stdin.flush()
        printed = ""
        while _DONE not in printed:
            line = stdout.readline()
            assert line, f"the shell has ended:\n{printed}"
            printed += line
        printed, status = printed.split(f"\n{_DONE} ")
        return int(status), printed

    def _open_shell(self) -> subprocess.Popen[str]:
        programs = self.directory / ".programs"
        programs.mkdir()
        server = " ".join(our_command())
        _script(programs / "pyjs-server", f'exec {server} -a 127.0.0.1 -p {self.ports[4222]} "$@"')
        _script(programs / "python", f'exec {sys.executable} "$@"')
        if self.cli:
            (programs / "nats").symlink_to(self.cli)
        environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(self.directory),
            "NATS_URL": f"nats://127.0.0.1:{self.ports[4222]}",
            "PYTHONPATH": str(REPOSITORY / "src"),
            "PYTHONUNBUFFERED": "1",
        }
        return subprocess.Popen(
            [shutil.which("bash") or "sh"],
            cwd=self.directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )


def _script(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
