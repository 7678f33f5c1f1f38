"""For all unit tests: descriptors of stores that a test left open are closed.

Stores close their files in `close`, not when they are freed, and many tests end with a store that is open
or crashed on purpose. Otherwise a run would need more than the usual 1,024 descriptors. Thousands of tests need a
garbage collection for that, so what earlier modules have left in memory is exempt from it.
"""

from __future__ import annotations

import gc
import os
import stat
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def exempt_older_objects() -> None:
    """Exempt the objects that exist before a module's tests from garbage collections; there are tens of thousands."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def close_files_left_open() -> Iterator[None]:
    """After a test, close the files and directories that it opened and that no Python object will close."""
    before = _stored()
    yield
    if _stored() - before:
        gc.collect()  # objects that close their files when they are freed do so now
        for descriptor in _stored() - before:
            os.close(descriptor)


def _stored() -> set[int]:
    """Return the descriptors of open files and directories."""
    return {int(name) for name in os.listdir("/dev/fd") if _is_stored(int(name))}


def _is_stored(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False  # it was the descriptor of the listing itself
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)
