"""For all tests: a check that compiled code is current, a fixed hash seed, and seconds of each group at the end."""

from __future__ import annotations

import importlib.util
import signal
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from tests.support import again, groups, heap, scratch

if TYPE_CHECKING:
    from tests.support.schedule import FileScheduling
    from xdist.remote import Producer

ROOT = Path(__file__).resolve().parent.parent


def load_build(src: Path) -> ModuleType:
    """Return pyjs_build as a module; it is not installed."""
    spec = importlib.util.spec_from_file_location("pyjs_build", src / "pyjs_build.py")
    assert spec
    assert spec.loader
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    return build


def stale_modules(src: Path, build: ModuleType) -> list[str]:
    """Return the modules below `src` that were not compiled from their present source."""
    stale = []
    for pyx in build.pyx_files(src):
        digest = build.source_hash(pyx, src).encode()
        for built in pyx.parent.glob(f"{pyx.stem}.*.so"):
            if digest not in built.read_bytes():
                stale.append(build.module_name(pyx, src))
    return stale


def hear_interrupts() -> None:
    """Restore the default action of SIGINT if a shell has started this process in the background.

    Such a process and all its children ignore SIGINT, so a program that a test interrupts would not end.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Refuse to run with compiled code that does not match the sources."""
    if not hasattr(session.config, "workerinput"):
        refuse_stale_modules()
    fix_hash_seed()


def refuse_stale_modules() -> None:
    """End the test run if a module of the server or of the data source is not compiled from its present source."""
    build = load_build(ROOT / "src")
    stale = [name for src in (build.SRC, build.FAST) for name in stale_modules(ROOT / src, build)]
    if stale:
        pytest.exit(f"changed since they were compiled: {', '.join(stale)}; run `make build`", returncode=4)


def fix_hash_seed() -> None:
    """Give servers in this process a fixed hash seed, so that simulations are repeatable."""
    try:
        from pyjs.base.table import HASH_SEED_SIZE, set_hash_seed
    except ImportError:
        return  # the environment has no server: it runs only the tests of clients
    set_hash_seed(b"s" * HASH_SEED_SIZE)


def pytest_configure(config: pytest.Config) -> None:
    """Measure the seconds of each group, count repeated scenarios, keep temporary files in memory; hear SIGINT."""
    groups.register(config)
    scratch.use_memory()
    hear_interrupts()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FileScheduling:
    """Distribute files, not tests, to the workers."""
    # Imported lazily: an environment without pytest-xdist can run the tests too.
    from tests.support.schedule import FileScheduling

    return FileScheduling(config, log)


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Repeat tests with processes that fail; run other tests as usual."""
    if not again.has_second_run(item.nodeid):
        return None
    again.run(item, nextitem)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Exempt the collected tests from garbage collections."""
    with heap.exempted():
        yield
