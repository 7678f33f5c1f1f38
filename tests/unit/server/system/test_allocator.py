"""The allocator of Python's objects; each case needs its own process, since the setting cannot be undone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCATTERED = """
from pyjs.server.system.allocator import keep_buffers, objects_from_glibc, trim
from pyjs.server.system.process import memory_size
keep_buffers()
assert objects_from_glibc()
before = memory_size()
burst = [f"the object of number {number}" for number in range(400_000)]
kept = burst[::400]  # one in some 40 kB lives on
grown = memory_size() - before
del burst
trim()
print((memory_size() - before) / grown)
"""

MIXED = """
from pyjs.server.system.allocator import objects_from_glibc
old = [[number] * 3 for number in range(20_000)]
words = {f"word {number}": bytearray(b"x" * (number % 600)) for number in range(20_000)}
assert objects_from_glibc()
assert not objects_from_glibc()  # set already: a second time would wrap the wrapper
for number, one in enumerate(old):
    one.extend(range(number % 200))
for number, one in enumerate(words.values()):
    one.extend(b"y" * 40)
    del one[: number % 500]
new = [[*one, str(number)] for number, one in enumerate(old)]
assert all(one[-1] == str(number) and one[0] == number for number, one in enumerate(new))
assert all(one.endswith(b"y" * 40) or len(one) < 40 for one in words.values())
del old, words, new
print("sound")
"""

IN_A_THREAD = """
import threading
from pyjs.server.system.allocator import keep_buffers, trim
from pyjs.server.system.process import memory_size
keep_buffers()
go_on, done = threading.Event(), threading.Event()
def work():
    blocks = [bytes(b"x" * 100_000) for _ in range(150)]
    del blocks
    done.set()
    go_on.wait()
before = memory_size()
thread = threading.Thread(target=work)
thread.start()
done.wait()
trim()
print((memory_size() - before) / 15_000_000)
go_on.set()
"""

ASKED = "from pyjs.server.system.allocator import objects_from_glibc; print(objects_from_glibc())"


def _run(code: str, *options: str, **environment: str) -> str:
    cleared = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONMALLOC", "PYTHONDEVMODE")
    }
    command = [sys.executable, *options, "-c", code]
    ran = subprocess.run(
        command, env=cleared | environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


glibc = pytest.mark.skipif(
    _run(ASKED) != "True", reason="another libc, or a Python with an allocator of its own"
)


@glibc
def test_a_few_objects_that_live_on_do_not_hold_the_memory_of_a_burst() -> None:
    assert float(_run(SCATTERED)) < 0.3


@glibc
def test_what_a_thread_used_goes_back_while_it_waits() -> None:
    assert float(_run(IN_A_THREAD)) < 0.2


@glibc
def test_objects_made_before_and_after_grow_shrink_and_go_side_by_side() -> None:
    assert _run(MIXED) == "sound"


@pytest.mark.parametrize("chosen", ["debug", "malloc", "malloc_debug", "pymalloc"])
def test_an_allocator_that_someone_chose_stays(chosen: str) -> None:
    assert _run(ASKED, PYTHONMALLOC=chosen) == "False"


@pytest.mark.parametrize("options", [["-X", "dev"], ["-X", "tracemalloc"], ["-E", "-X", "dev"]])
def test_an_allocator_that_is_watched_stays(options: list[str]) -> None:
    assert _run(ASKED, *options) == "False"
