"""`pyjs-server alias DIRECTORY` links the name `nats-server` to this server, for scripts and charts that use it.

No other command makes this link, and an existing file is never replaced, so that the link cannot hide a real
nats-server by accident.

The exit code is 0 if the link was made or exists already, 1 if it was not made, and 2 if the command line is invalid.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

NAME = "nats-server"
USAGE = f"""\
Usage: pyjs-server alias DIRECTORY

Makes a link DIRECTORY/{NAME} to this pyjs-server. To remove it, delete the link."""


def run(words: list[str], program: str, out: TextIO, err: TextIO) -> int:
    """Run the command with the words after `alias`, and return its exit code.

    `program` is the path of pyjs-server.
    """
    if words in (["-h"], ["--help"]):
        out.write(f"{USAGE}\n")
        return 0
    if len(words) != 1 or words[0].startswith("-"):
        err.write(f"pyjs-server alias: give one directory\n\n{USAGE}\n")
        return 2
    link = os.path.join(os.path.abspath(words[0]), NAME)
    problem = _problem(link, program)
    if problem:
        err.write(f"pyjs-server alias: {problem}\n")
        return 1
    try:
        if not os.path.lexists(link):
            os.symlink(program, link)
    except OSError as error:
        err.write(f"pyjs-server alias: {link}: {(error.strerror or str(error)).lower()}\n")
        return 1
    out.write(f"{link} is now {program}\n")
    other = shutil.which(NAME)
    if other is not None and not os.path.samefile(other, program):
        err.write(f"pyjs-server alias: the PATH finds {other} first, which is another program\n")
    return 0


def _problem(link: str, program: str) -> str:
    """Return the reason why the link cannot be made, or "" if it can."""
    if os.path.basename(program) != "pyjs-server" or not os.access(program, os.X_OK):
        return "this server was not started as the program pyjs-server: install the wheel, and run that"
    if os.path.lexists(link) and not (os.path.exists(link) and os.path.samefile(link, program)):
        return f"{link} exists and is another program; choose another directory, or move it"
    return ""
