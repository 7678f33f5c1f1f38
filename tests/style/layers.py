"""Which room may import which: the table, and the check of a source tree against it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.style.source import Import, Source
from tests.style.tree import module_name, source_files

# From the ground up. A room imports from rows below its own; rooms that share a row do not know each other.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("base",),
    ("wire", "subjects"),
    ("store", "config"),
    ("core",),
    ("jetstream",),
    ("node", "fsck"),
    ("monitor",),
    ("server",),
    ("aio",),
    ("cli", "testing"),
    ("__main__", "pytest_plugin"),
)
# The same inside jetstream, module by module; here modules that share a row may import each other.
# fmt: off
JETSTREAM: tuple[tuple[str, ...], ...] = (
    ("errcodes", "json_strict", "names"),
    ("config", "models", "options", "stream_rules", "source_rules",
     "claims", "consumer_config", "consumer_models", "consumer_rules", "level"),
    ("stream_consumer", "message_ttl"),
    ("ack_replies", "ack_state", "ack_token", "advisories",
     "answers", "dedupe", "eviction", "expiry", "interest", "lifetimes", "pending",
     "pub_headers", "publish_errors", "usage", "waiting", "consumer_advisories", "consumer_log",
     "consumer_orders", "consumer_seat", "consumer_start", "consumer_status", "direct_answer", "pull_request",
     "consumer_subjects", "delivery_cursor", "delivery_writer", "flow_control", "outcome", "pacing", "pin",
     "pull_requests", "push_subject", "settled_queue", "wake_timer",
     "metadata", "removals", "republish", "skips", "store_probe", "state_change", "stream_changes",
     "tails"),
    ("consumer", "consumer_files", "consumer_info", "consumer_record", "state_keeper"),
    ("aging",),
    ("stream",),
    ("cursor", "relearn", "replay"),
    ("persist", "positions", "stored_purge"),
    ("engine", "consumers", "purging", "reservations", "sourcing", "streams"),
    ("stream_info", "api", "scrub", "mend"),
    ("service",),
)
# fmt: on
SHELL = (
    "server",
    "aio",
    "cli",
    "testing",
    "pytest_plugin",
    "__main__",
)  # rooms that may touch the outside world
SEAM = ("base.disk", "base.file_map")
# Who may import what comes from outside: a module named here is closed to every room that is not listed.
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
            "fcntl", "glob", "io", "mmap", "os", "pathlib", "shutil", "tempfile", "libc.stdio", "posix.fcntl",
            "posix.mman", "posix.stat", "posix.stdio", "posix.unistd",
        ),
        (*SEAM, *SHELL),
    ),
    **dict.fromkeys(("asyncio", "uvloop"), ("server", "aio")),
    "pydantic": (),
}  # fmt: skip


# Packages beside the server, which must work where it is not installed: (package, modules it must not import).
APART: tuple[tuple[str, tuple[str, ...]], ...] = (("pyjs_spark", ("pyjs", "asyncio", "threading")),)


def strayed(src: Path) -> list[str]:
    """Return which package of APART imports what it must do without, one sentence each."""
    return [
        f"{path.relative_to(src)}:{imported.number}: {package} imports {imported.module}"
        for package, closed in APART
        for path in source_files(src / package)
        for imported in Source(path).imports
        if imported.module.partition(".")[0] in closed
    ]


def violations(src: Path, package: str = "pyjs") -> list[str]:
    """Return what the tree below `src` does against the tables, one sentence each."""
    files = {path: module_name(path, src) for path in source_files(src / package)}
    modules = set(files.values())
    found: list[str] = []
    edges: dict[str, set[str]] = {name: set() for name in modules}
    for path, name in files.items():
        where = path.relative_to(src)
        room = name.removeprefix(package).lstrip(".")
        found.extend(f"{where}: {problem}" for problem in _unplaced(room))
        source = Source(path)
        for imported in source.imports:
            target = resolve(imported, name, modules)
            problems = _forbidden(room, target, package)
            found.extend(f"{where}:{imported.number}: {problem}" for problem in problems)
            if target in modules and target != name and not _is_for_types(source, imported):
                edges[name].add(target)
    return list(dict.fromkeys(found)) + [f"import cycle: {' -> '.join(cycle)}" for cycle in cycles(edges)]


def _is_for_types(source: Source, imported: Import) -> bool:
    """Return whether an import is for the type checker alone; one put off into a function is not."""
    above = [line for line in source.lines if line.number < imported.number and line.indent < imported.indent]
    return bool(above) and above[-1].text.startswith("if TYPE_CHECKING")


def resolve(imported: Import, importer: str, modules: set[str]) -> str:
    """Return the module that an import loads: the name itself where that is a module."""
    module = imported.module
    if module.startswith("."):
        dots = len(module) - len(module.lstrip("."))
        module = ".".join([*importer.split(".")[:-dots], *filter(None, [module.lstrip(".")])])
    longer = f"{module}.{imported.name}"
    outside = imported.name and any(longer == name or longer.startswith(f"{name}.") for name in OUTSIDE)
    return longer if longer in modules or outside else module


def cycles(edges: dict[str, set[str]]) -> Iterator[list[str]]:
    """Yield one cycle of each knot in the graph."""
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


def _unplaced(room: str) -> Iterator[str]:
    parts = room.split(".")
    if room and _row(LAYERS, parts[0]) is None:
        yield f"the room '{parts[0]}' is not in LAYERS of tests/style/layers.py"
    elif parts[0] == "jetstream" and len(parts) > 1 and _row(JETSTREAM, parts[1]) is None:
        yield f"the module '{parts[1]}' is not in JETSTREAM of tests/style/layers.py"


def _forbidden(room: str, target: str, package: str) -> Iterator[str]:
    if target == package or target.startswith(f"{package}."):
        yield from _upward(room, target.removeprefix(package).lstrip("."))
        return
    parts = target.split(".")
    for length in range(len(parts), 0, -1):
        allowed = OUTSIDE.get(".".join(parts[:length]))
        if allowed is not None:
            if not any(room == place or room.startswith(f"{place}.") for place in allowed):
                yield f"imports {target}, open only to {', '.join(allowed)}"
            return


def _upward(room: str, target: str) -> Iterator[str]:
    if not room:
        yield f"the package itself imports {target}; it holds the version and nothing else"
        return
    if not target:
        return
    ours, theirs = room.split("."), target.split(".")
    if ours[0] != theirs[0]:
        yield from _against(LAYERS, ours[0], theirs[0], same_row=False)
    elif ours[0] == "jetstream" and len(ours) > 1 and len(theirs) > 1 and ours[1] != theirs[1]:
        yield from _against(JETSTREAM, ours[1], theirs[1], same_row=True)


def _against(table: tuple[tuple[str, ...], ...], ours: str, theirs: str, *, same_row: bool) -> Iterator[str]:
    mine, other = _row(table, ours), _row(table, theirs)
    if mine is None or other is None:
        return  # told by _unplaced
    if other > mine:
        yield f"'{ours}' imports '{theirs}', which stands above it"
    elif other == mine and not same_row:
        yield f"'{ours}' imports '{theirs}', which stands beside it"
