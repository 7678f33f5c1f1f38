"""`pyjs-server import`: command line, import, report and exit code.

The exit code is 0 if everything was imported, and 1 if a stream, a consumer or messages could not be imported. It is
2 if nothing was imported, because a directory is missing, a server uses one of the two directories, or the
configuration is invalid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyjs.base.errors import PyjsError
from pyjs.base.gotext import printable
from pyjs.base.log import Log
from pyjs.core.auth.users import GLOBAL_ACCOUNT
from pyjs.fsck.progress import progress_on
from pyjs.importing.report import NOT_IMPORTED, TAKEN, ImportReport, StreamReport
from pyjs.importing.source import NotImported, Source
from pyjs.importing.stream_import import StreamImport
from pyjs.importing.target import Target

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

    from pyjs.base.clock import Clock
    from pyjs.base.disk import Disk
    from pyjs.base.rng import Rng
    from pyjs.config.options import Options
    from pyjs.fsck.progress import Progress
    from pyjs.store.crypt.keys import KeyRing

USAGE = """\
Usage: pyjs-server import [-c FILE] [-sd DIR] [--quiet] SOURCE_DIR

Copies the streams and consumers of a stopped nats-server into the store directory of this server, which must be
stopped too. SOURCE_DIR is what `store_dir` says in the configuration of nats-server, or the directory `jetstream` in
it; nothing in it is changed. A stream whose name or subjects are taken here is refused, and so is an encrypted one.

    -c, --config FILE      the configuration of this server: its store_dir, and its key for encrypted streams
    -sd, --store_dir DIR   the store directory of this server
    --quiet                print no progress

Exit codes: 0 everything was taken, 1 something could not be taken (the report names it), 2 nothing was imported."""
VALUES = {"c": "config", "config": "config", "sd": "store_dir", "store_dir": "store_dir"}
SWITCHES = {"quiet": "quiet", "help": "help", "h": "help"}


@dataclass(eq=False, repr=False, frozen=True, slots=True)
class Surroundings:
    """The environment in which the command runs."""

    disk: Disk
    clock: Clock
    rng: Rng
    out: TextIO
    err: TextIO
    # Returns the options for (configuration file, store directory); "" as an argument means that it was not given.
    load: Callable[[str, str], Options]
    holders: Callable[[str], list[int]]  # returns the ids of processes that have files below a directory open


class ErrorLog(Log):
    """A log that prints warnings and errors."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, level: str, text: str) -> None:
        """Print `text`, unless `level` is below warning."""
        if level not in ("INF", "DBG", "TRC"):
            self._out.write(f"{text.strip()}\n")


def run(words: list[str], world: Surroundings) -> int:
    """Run the command with the words after `import`; return its exit code."""
    given, places, problem = _parsed(words)
    if "help" in given:
        world.out.write(f"{USAGE}\n")
        return TAKEN
    if not problem and len(places) != 1:
        problem = "give the store directory of nats-server"
    if not problem and not given.get("config") and not given.get("store_dir"):
        problem = "give the store directory of this server: -sd DIR, or -c FILE"
    if problem:
        world.err.write(f"pyjs-server import: {problem}\n\n{USAGE}\n")
        return NOT_IMPORTED
    progress = progress_on(world.err, world.clock, "pyjs-server import", quiet="quiet" in given)
    try:
        options = world.load(given.get("config", ""), given.get("store_dir", ""))
        report = _Import(world, options, progress).run(places[0])
    except (PyjsError, OSError) as error:
        world.err.write(f"pyjs-server import: {error}\n")
        return NOT_IMPORTED
    # File names may have any characters: escape them, so that they cannot look like separate lines.
    world.out.writelines(f"{printable(line)}\n" for line in report.lines())
    return report.exit_code()


def _parsed(words: list[str]) -> tuple[dict[str, str], list[str], str]:
    """Return the flags, the other words, and the error message if one of these is wrong, otherwise ""."""
    given: dict[str, str] = {}
    places, left = [], iter(words)
    for word in left:
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-"):
            places.append(word)
        elif name in SWITCHES:
            given[SWITCHES[name]] = "yes"
        elif name in VALUES:
            given[VALUES[name]] = value if equals else next(left, "")
            if not given[VALUES[name]]:
                return given, places, f"flag needs an argument: -{name}"
        else:
            return given, places, f"there is no flag {word}"
    return given, places, ""


class _Import:
    """The import of one store directory of nats-server."""

    def __init__(self, world: Surroundings, options: Options, progress: Progress) -> None:
        self._world = world
        self._options = options
        self._progress = progress
        self._report = ImportReport()

    def run(self, directory: str) -> ImportReport:
        """Import every stream, and return the report.

        Raises:
            NotImported: `directory` is not a store of nats-server, or is in use, or is the target directory too.
            StoreLocked: a server uses the target directory.
            OSError: a directory cannot be read or written.
        """
        world, root = self._world, self._options.jetstream.store_dir
        source = Source(world.disk, directory)
        if pids := world.holders(source.root):
            found = ", ".join(str(pid) for pid in pids)
            raise NotImported(f"{source.root} is in use by process {found}: stop nats-server first")
        real = world.disk.real_path(source.root)
        if world.disk.real_path(root) in (real, real.rpartition("/")[0]):
            raise NotImported(f"{root} is the directory that is imported: give another store directory")
        self._report.others = list(source.others())
        target = Target(world.disk, root, world.clock, ErrorLog(world.err), self._key_ring())
        try:
            self._progress.begin(self._size(source))
            for account in source.accounts():
                self._account(source, account, target)
        finally:
            self._progress.end()
            target.close()
        return self._report

    def _account(self, source: Source, name: str, target: Target) -> None:
        """Import the streams of an account."""
        directories = source.streams(name)
        reports = [StreamReport(name, directory.rpartition("/")[2]) for directory in directories]
        self._report.streams += reports
        if not self._serves(name):
            self._report.unserved.append(name)
        try:
            account = target.account(name)
        except (
            PyjsError,
            OSError,
            UnicodeError,
        ) as error:  # still import the streams of other accounts
            for report in reports:
                report.refusal = str(error)
            return
        for directory, report in zip(directories, reports, strict=True):
            try:
                stream = source.open(directory)
            except OSError as error:
                report.refusal = str(error)
                continue
            StreamImport(stream, account, report, self._progress.advance).run()

    def _serves(self, account: str) -> bool:
        """Return whether the configuration of this server enables JetStream for an account.

        In operator mode, the result is always True.
        """
        options = self._options
        if options.operator_keys:
            return True
        configured = options.accounts.get(account)
        others = [name for name in options.accounts if name != options.system_account]
        return configured.jetstream is not None if configured else account == GLOBAL_ACCOUNT and not others

    def _key_ring(self) -> KeyRing | None:
        options = self._options.jetstream
        if not options.key:
            return None
        from pyjs.store.crypt.keys import ALGORITHMS, KeyRing

        return KeyRing(options.key, ALGORITHMS[options.cipher], self._world.rng.randbytes, options.prev_key)

    def _size(self, source: Source) -> int:
        """Return the total size, in bytes, of the blocks that can be read."""
        total = 0
        for account in source.accounts():
            for directory in source.streams(account):
                try:
                    total += source.open(directory).size()
                except OSError:
                    continue  # reading the stream will report it
        return total
