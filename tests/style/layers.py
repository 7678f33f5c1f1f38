"""The table of allowed imports between rooms, and the check of a source tree against it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.style.source import Import, Source
from tests.style.tree import module_name, source_files

# From the lowest layer up. A package imports only from rows below its own, and not from other packages of its row.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("base",),
    ("archive", "wire", "subjects"),
    ("claims",),
    ("store", "config"),
    ("core",),
    ("consensus",),
    ("jetstream", "cluster"),
    ("node", "fsck"),
    ("monitor", "importing"),
    ("system_account", "models"),
    ("declared",),
    ("server",),
    ("aio", "operating"),
    ("cli", "testing"),
    ("__main__", "pytest_plugin"),
)
# The same within a package, for its modules and sub-packages. Imports for type checking only may point upwards.
INSIDE: dict[str, tuple[tuple[str, ...], ...]] = {
    "core": (
        ("deadlines", "fair_queue", "faults", "intake", "job", "link", "outbuf", "pings", "reserved"),
        ("chore",),
        ("auth", "lane", "sink"),
        ("account", "closed", "host", "scheduler"),
        ("tracing",),
        ("session",),
        ("trust", "exchange"),
    ),
    "store": (
        ("clock_steps", "crypt", "index", "open_files", "sync_set"),
        ("format", "searches", "store"),
        ("memory", "segment", "state", "trimming"),
        ("file",),
    ),
    "jetstream": (
        ("advisories", "errcodes", "names"),
        ("admission", "config", "files"),
        ("cluster", "rules"),
        ("stream",),
        ("consumer", "mirror"),
        ("dead_letters",),
        ("manage",),
        ("replication",),
        ("transfer", "why"),
        ("api",),
        ("member",),
        ("spread",),
        ("server",),
    ),
    "jetstream.cluster": (
        ("fields",),
        ("servers",),
        ("assignments", "bootstrap", "membership"),
        ("entries",),
        ("account_streams",),
        ("changes",),
        ("state",),
        ("answers", "placement", "reports", "snapshot"),
        ("advisories", "moves"),
    ),
    "jetstream.replication": (
        ("agreement", "copy_batch", "consumer_snapshots", "settling"),
        ("copying",),
        ("departing", "repairing"),
        ("comparing", "healing", "restoring"),
        ("catch_up", "membership", "single"),
        ("stream_machine",),
        ("streams",),
    ),
    "jetstream.member": (
        ("announcing", "identity", "keeper", "meta_machine", "notes", "operators", "reporting", "waiters"),
        ("losses", "meta_group", "orders", "questions", "restores"),
        ("answering",),
        ("meta_requests",),
        ("member_node",),
    ),
    "jetstream.spread": (
        ("notes", "placing"),
        ("directory", "reports", "usage"),
        ("desk",),
        ("spread_node",),
    ),
    "jetstream.consumer": (
        ("acks", "advisories", "arguments", "resources", "start", "subjects", "wake_timer"),
        ("delivery",),
        ("record",),
        ("state_keeper",),
        ("consumer",),
        ("info", "letters", "replay", "reset"),
    ),
    "jetstream.dead_letters": (("letter", "questions", "queue"), ("replay", "sender"), ("targets",)),
    "consensus": (
        ("descriptor", "engine", "names"),
        ("log", "payloads", "seams"),
        ("batch",),
        ("member",),
        ("doubt", "faults", "outbox", "reads", "snapshots", "status"),
        ("compaction", "round"),
        ("consensus",),
    ),
    "declared": (("assets", "values"), ("comparing", "reading"), ("planning",), ("asking",), ("report",)),
    "models": (("base",), ("config", "server"), ("answers", "requests"), ("advisories",), ("monitoring",)),
    "server": (
        ("failures",),
        ("addresses", "announce", "lame_duck", "open_connections", "system", "threads", "trace"),
        ("connection", "endings", "jetstream_switch", "listener", "logging", "proxied", "reload", "tls"),
        ("driver",),
        ("cluster", "monitoring", "websocket"),
        ("declaring", "spin"),
        ("server",),
        ("command",),
        ("doctor", "workers"),
    ),
    "server.declaring": (("requester",), ("drift",), ("applier",), ("part",), ("rereading",)),
    "server.doctor": (
        ("findings", "secrets"),
        ("disk", "files", "machine", "network", "outputs"),
        ("command",),
    ),
    "operating": (("alias", "connection"), ("login",), ("plan", "trace")),
    "server.workers": (
        ("channel", "metrics", "pages", "sums"),
        ("process",),
        ("child", "router"),
        ("monitoring",),
        ("supervisor",),
    ),
}  # fmt: skip
# The same for the data source for Spark. The package's own __init__ may import any of its parts.
SPARK_LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "exits", "strict_json", "subjects", "times", "version"),
    ("fast",),
    ("decode",),
    ("nats", "store"),
    ("options",),
    ("read",),
    ("kv", "write"),
    ("datasource", "observe"),
    ("lake",),
    ("cli",),
)
SPARK_INSIDE: dict[str, tuple[tuple[str, ...], ...]] = {
    "datasource": (("readers", "sink"), ("tables",), ("source",), ("sessions",)),
    "kv": (("entries", "objects"),),
    "observe": (("progress",), ("prometheus", "lines", "listener"), ("bar",)),
}
SHELL = (
    "server",
    "aio",
    "operating",
    "cli",
    "testing",
    "pytest_plugin",
    "__main__",
)  # rooms that may access files, sockets and processes
SEAM = ("base.disk", "base.file_map")
# The packages that may import external modules: a module named here may be imported only by the listed ones.
OUTSIDE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            "concurrent", "httptools", "logging", "multiprocessing", "queue", "random", "secrets",
            "select", "selectors", "signal", "socket", "socketserver", "ssl", "subprocess", "threading", "time",
            "uuid", "cpython.time", "libc.time", "posix.signal", "posix.time",
        ),
        SHELL,
    ),
    **dict.fromkeys(
        (
            "fcntl", "glob", "io", "mmap", "os", "shutil", "tempfile", "libc.stdio", "posix.fcntl",
            "posix.mman", "posix.stat", "posix.stdio", "posix.unistd",
        ),
        (*SEAM, *SHELL),
    ),
    **dict.fromkeys(("asyncio", "uvloop"), ("server", "aio")),
    "pathlib": (*SEAM, *SHELL, "models"),
    "pydantic": ("models",),
}  # fmt: skip


# Packages that must work without the server installed: (their sources, modules they must not import).
APART: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("spark/src", ("pyjs", "asyncio", "threading")),
    ("spark/fast/src", ("pyjs", "asyncio", "threading")),
)


def strayed(root: Path) -> list[str]:
    """Return a sentence for each source of APART that imports a forbidden module."""
    return [
        f"{path.relative_to(root)}:{imported.number}: {sources} imports {imported.module}"
        for sources, closed in APART
        for path in source_files(root / sources)
        for imported in Source(path).imports
        if imported.module.partition(".")[0] in closed
    ]


@dataclass(frozen=True)
class Rules:
    """The tables of one package."""

    package: str
    layers: tuple[tuple[str, ...], ...]
    inside: dict[str, tuple[tuple[str, ...], ...]]
    outside: dict[str, tuple[str, ...]]
    is_root_a_door: bool = False  # whether the package itself imports its rooms


SERVER = Rules("pyjs", LAYERS, INSIDE, OUTSIDE)
SPARK = Rules("pyjs_spark", SPARK_LAYERS, SPARK_INSIDE, {}, is_root_a_door=True)


def violations(src: Path, rules: Rules = SERVER) -> list[str]:
    """Return a sentence for each violation of the tables in the tree below `src`."""
    package = rules.package
    files = {path: module_name(path, src) for path in source_files(src / package)}
    modules = set(files.values())
    found: list[str] = []
    edges: dict[str, set[str]] = {name: set() for name in modules}
    for path, name in files.items():
        where = path.relative_to(src)
        room = name.removeprefix(package).lstrip(".")
        found.extend(f"{where}: {problem}" for problem in _unplaced(room, rules))
        source = Source(path)
        for imported in source.imports:
            target = resolve(imported, name, modules)
            for_types = _is_for_types(source, imported)
            problems = _forbidden(room, target, rules, for_types=for_types)
            found.extend(f"{where}:{imported.number}: {problem}" for problem in problems)
            if target in modules and target != name and not for_types:
                edges[name].add(target)
    return list(dict.fromkeys(found)) + [f"import cycle: {' -> '.join(cycle)}" for cycle in cycles(edges)]


def _is_for_types(source: Source, imported: Import) -> bool:
    """Return whether an import is below `if TYPE_CHECKING`; an import inside a function is not."""
    above = [line for line in source.lines if line.number < imported.number and line.indent < imported.indent]
    return bool(above) and above[-1].text.startswith("if TYPE_CHECKING")


def resolve(imported: Import, importer: str, modules: set[str]) -> str:
    """Return the module that an import loads: the imported name itself if it is a module."""
    module = imported.module
    if module.startswith("."):
        dots = len(module) - len(module.lstrip("."))
        module = ".".join([*importer.split(".")[:-dots], *filter(None, [module.lstrip(".")])])
    longer = f"{module}.{imported.name}"
    outside = imported.name and any(longer == name or longer.startswith(f"{name}.") for name in OUTSIDE)
    return longer if longer in modules or outside else module


def cycles(edges: dict[str, set[str]]) -> Iterator[list[str]]:
    """Yield at least one cycle of each group of modules that import each other."""
    done: set[str] = set()
    for start in sorted(edges):
        path: list[str] = []
        yield from _walk(start, edges, path, done)


def _walk(name: str, edges: dict[str, set[str]], path: list[str], done: set[str]) -> Iterator[list[str]]:
    if name in path:
        yield [*path[path.index(name) :], name]
        return
    if name in done:
        return
    path.append(name)
    for target in sorted(edges[name]):
        yield from _walk(target, edges, path, done)
    path.pop()
    done.add(name)


def _row(table: tuple[tuple[str, ...], ...], name: str) -> int | None:
    for row, names in enumerate(table):
        if name in names:
            return row
    return None


def _unplaced(room: str, rules: Rules) -> Iterator[str]:
    parts = room.split(".")
    if room and _row(rules.layers, parts[0]) is None:
        yield f"the room '{parts[0]}' is not in LAYERS of tests/style/layers.py"
    for inside, rows in rules.inside.items():
        if room.startswith(f"{inside}.") and _row(rows, name := _within(inside, room)) is None:
            yield f"'{name}' is not among the rows of '{inside}' in INSIDE of tests/style/layers.py"


def _within(inside: str, room: str) -> str:
    """Return the module or sub-package of the package `inside` that contains the module `room`."""
    return room.removeprefix(f"{inside}.").partition(".")[0]


def _forbidden(room: str, target: str, rules: Rules, *, for_types: bool) -> Iterator[str]:
    package = rules.package
    if target == package or target.startswith(f"{package}."):
        yield from _upward(room, target.removeprefix(package).lstrip("."), rules, for_types=for_types)
        return
    parts = target.split(".")
    for length in range(len(parts), 0, -1):
        allowed = rules.outside.get(".".join(parts[:length]))
        if allowed is not None:
            if not any(room == place or room.startswith(f"{place}.") for place in allowed):
                yield f"imports {target}, open only to {', '.join(allowed)}"
            return


def _upward(room: str, target: str, rules: Rules, *, for_types: bool) -> Iterator[str]:
    if not room and rules.is_root_a_door:
        return
    if not room:
        yield f"the package itself imports {target}; it holds the version and nothing else"
        return
    if not target:
        return
    ours, theirs = room.partition(".")[0], target.partition(".")[0]
    if ours != theirs:
        yield from _against(rules.layers, ours, theirs)
    for inside, rows in rules.inside.items():
        if not for_types and all(name.startswith(f"{inside}.") for name in (room, target)):
            ours, theirs = _within(inside, room), _within(inside, target)
            if ours != theirs:
                yield from _against(rows, ours, theirs)


def _against(table: tuple[tuple[str, ...], ...], ours: str, theirs: str) -> Iterator[str]:
    mine, other = _row(table, ours), _row(table, theirs)
    if mine is None or other is None:
        return  # reported by _unplaced
    if other > mine:
        yield f"'{ours}' imports '{theirs}', which stands above it"
    elif other == mine:
        yield f"'{ours}' imports '{theirs}', which stands beside it"
