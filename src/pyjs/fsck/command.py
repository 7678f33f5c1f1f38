"""`pyjs-server fsck`: command line, check, report and exit code.

The exit code is 0 if there is no damage, 1 if damage was found or repaired, and 2 if the store was not checked (no
such directory, a server uses it, no permission, a newer format, a missing or wrong key).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.errors import PyjsError
from pyjs.fsck.check import NotChecked, StoreCheck
from pyjs.fsck.findings import CLEAN, NOT_CHECKED
from pyjs.fsck.progress import progress_on
from pyjs.fsck.text import json_of, lines_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO, TypeAlias

    from pyjs.base.clock import Clock
    from pyjs.base.disk import Disk
    from pyjs.store.crypt.keys import KeyRing

    RandBytes: TypeAlias = Callable[[int], bytes]

USAGE = """\
Usage: pyjs-server fsck [--repair] [--json] [--quiet] [--key-file FILE] [--prev-key-file FILE] STORE_DIR

Checks every file of a store directory: checksums, chains, index files, metadata, consumers. STORE_DIR is the
value of `store_dir` in the configuration, or the directory `jetstream` inside it. Stop the server that uses it first.
Without --repair, nothing is changed.

    --repair    repair damaged files; a damaged segment is kept as .damaged-...
    --json      print the report as JSON
    --quiet     print only damage, and no progress
    --key-file FILE
                for encrypted streams: the first line is the `key` of the configuration, a second line the `prev_key`
    --prev-key-file FILE
                the first line is the `prev_key` of the configuration

Exit codes: 0 clean, 1 damage found or repaired, 2 not checked (no such directory, in use, newer format, key missing
or wrong)."""
FLAGS = ("repair", "json", "quiet", "help", "h")
FILES = ("key-file", "prev-key-file")  # flags that take a file


def _file_flags(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the files given by flags (`--flag FILE` or `--flag=FILE`), and the remaining words."""
    files, others, left = {}, [], iter(words)
    for word in left:
        name, equals, value = word.lstrip("-").partition("=")
        if word.startswith("-") and name in FILES:
            files[name] = value if equals else next(left, "")
        else:
            others.append(word)
    return files, others


def _key_ring(disk: Disk, files: dict[str, str], randbytes: RandBytes) -> KeyRing | None:
    """Return the keys in `files` (flag -> path), or None if no file is given.

    Raises:
        NotChecked: --key-file has no key in its first line or is not given, or a file is not text.
        OSError: a file cannot be read.
    """
    if not files:
        return None
    keys = [
        line
        for name in FILES
        if name in files
        for line in _lines(disk, files[name])[: 1 + (name == FILES[0])]
    ]
    if FILES[0] not in files or not keys[0]:
        raise NotChecked("--key-file names no file with a key in its first line")
    from pyjs.store.crypt.keys import CHACHA, KeyRing

    return KeyRing(keys[0], CHACHA, randbytes, keys[-1] if len(keys) > 1 else "")


def _lines(disk: Disk, path: str) -> list[str]:
    try:
        return disk.read_file(path).decode().splitlines() or [""]
    except UnicodeDecodeError:
        raise NotChecked(f"{path} is no text") from None


def run(words: list[str], disk: Disk, out: TextIO, err: TextIO, randbytes: RandBytes, clock: Clock) -> int:
    """Run the command with the words after `fsck`; return its exit code.

    Repairs of encrypted files take their nonces from `randbytes`.
    """
    files, words = _file_flags(words)
    flags = {word.lstrip("-") for word in words if word.startswith("-")}
    places = [word for word in words if not word.startswith("-")]
    if flags & {"help", "h"}:
        out.write(f"{USAGE}\n")
        return CLEAN
    unknown = sorted(flags - set(FLAGS))
    if unknown or len(places) != 1:
        problem = f"there is no flag --{unknown[0]}" if unknown else "give one store directory"
        err.write(f"pyjs-server fsck: {problem}\n\n{USAGE}\n")
        return NOT_CHECKED
    progress = progress_on(err, clock, "pyjs-server fsck", quiet="quiet" in flags)
    try:
        key_ring = _key_ring(disk, files, randbytes)
        report = StoreCheck(disk, places[0], progress, repair="repair" in flags, key_ring=key_ring).run()
    except (PyjsError, OSError) as error:
        err.write(f"pyjs-server fsck: {error}\n")
        return NOT_CHECKED
    if "json" in flags:
        out.write(f"{json_of(report).decode()}\n")
    else:
        out.writelines(f"{line}\n" for line in lines_of(report, quiet="quiet" in flags))
    return report.exit_code()
