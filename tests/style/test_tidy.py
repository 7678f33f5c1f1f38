"""Files respect the rules for size, form and conventions, and the check finds violations."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.style import tidy
from tests.style.source import Source
from tests.style.tree import ROOT, project_files

HEADER = '"""A thing."""\n'


def problems(tmp_path: Path, name: str, text: str) -> list[str]:
    """Return the violations that the check finds in one file."""
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return tidy.violations(tmp_path, [path])


def nested(depth: int) -> str:
    lines = ["def f(x):"] + [" " * 4 * (at + 1) + "if x:" for at in range(depth)]
    return HEADER + "\n".join([*lines, " " * 4 * (depth + 1) + "return 1"])


def test_this_tree_is_tidy() -> None:
    assert tidy.violations(ROOT, project_files()) == []


def test_the_top_level_holds_what_it_should() -> None:
    assert tidy.strangers(ROOT, project_files()) == []


def test_a_stranger_at_the_top_level_is_seen(tmp_path: Path) -> None:
    assert tidy.strangers(tmp_path, [tmp_path / "setup.py", tmp_path / "src" / "a.py"]) == ["setup.py"]


def test_every_exception_is_needed_and_explained() -> None:
    assert tidy.idle_exceptions(ROOT) == []


def test_an_idle_exception_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "src" / "long.py"
    path.parent.mkdir()
    path.write_text(HEADER + "def f():\n" + "    x = 1\n" * 80)
    reason = "a table that is read from top to bottom"
    monkeypatch.setattr(tidy, "EXCEPTIONS", {("src/long.py", "f"): reason, ("src/long.py", "g"): reason})

    assert tidy.violations(tmp_path, [path]) == []
    assert tidy.idle_exceptions(tmp_path) == ["src/long.py: g"]


def test_a_long_file_is_seen(tmp_path: Path) -> None:
    assert problems(tmp_path, "src/a.pyx", HEADER + "\n" * 800)[0] == (
        "src/a.pyx: file of 801 lines, the fence is 800"
    )


def test_a_file_over_600_lines_says_why(tmp_path: Path) -> None:
    assert problems(tmp_path, "src/a.py", '"""A list.\n\nLong because it is one."""\n' + "\n" * 700) == []
    assert "does not say" in problems(tmp_path, "src/a.py", HEADER + "\n" * 700)[0]


@pytest.mark.parametrize(
    "kind", ["def f(x)", "cpdef int f(int x)", "cdef inline void f(A* x) noexcept nogil"]
)
def test_a_long_function_is_seen(tmp_path: Path, kind: str) -> None:
    text = HEADER + f"{kind}:\n" + "    x += 1\n\n" * 40

    assert problems(tmp_path, "src/a.pxd", text) == ["src/a.pxd: f (line 2) has 80 lines, the fence is 70"]


def test_a_method_over_several_lines_is_measured_from_its_def(tmp_path: Path) -> None:
    source = Source(
        tmp_path, "class A:\n    def f(\n        self,\n    ) -> int:\n        return 1\n\n\nx = 1\n"
    )

    assert [(f.name, f.number, f.length, f.nesting) for f in source.functions] == [("f", 2, 4, 0)]


def test_declarations_are_no_functions(tmp_path: Path) -> None:
    text = 'cdef class A(B):\n    cdef int x\ncdef struct S:\n    int y\ncdef extern from "a.h":\n    int g(int x)\n'

    assert Source(tmp_path, text).functions == []


def test_deep_nesting_is_seen(tmp_path: Path) -> None:
    assert problems(tmp_path, "src/a.py", nested(4)) == []
    assert problems(tmp_path, "src/a.py", nested(5)) == [
        "src/a.py: f (line 2) nests 5 deep, the fence is 4",
    ]


def test_a_gil_block_is_no_nesting(tmp_path: Path) -> None:
    text = "cdef int f():\n    with nogil:\n        for i in range(3):\n            g()\n"

    assert [f.nesting for f in Source(tmp_path, text).functions] == [1]


@pytest.mark.parametrize(
    "call",
    [
        "open(path)",
        "os.open(path, 0)",
        "time.monotonic_ns()",
        "random.random()",
        "print(x)",
        "datetime.now()",
    ],
)
@pytest.mark.parametrize("suffix", ["py", "pxd"])
def test_a_call_past_the_seams_is_seen(tmp_path: Path, call: str, suffix: str) -> None:
    text = HEADER + f"def f(x):\n    return {call}\n"

    assert len(problems(tmp_path, f"src/pyjs/store/a.{suffix}", text)) == 1
    assert problems(tmp_path, f"src/pyjs/server/a.{suffix}", text) == []


def test_methods_and_words_that_look_like_such_calls_are_fine(tmp_path: Path) -> None:
    text = (
        HEADER + "def open(x):\n    return disk.open(x), self.print(x), 'time.time()'  # open() is closed\n"
    )

    assert problems(tmp_path, "src/pyjs/store/a.py", text) == []


@pytest.mark.parametrize("line", ['cdef extern from "<unistd.h>" nogil:', "cdef extern from 'sys/mman.h':"])
def test_c_headers_are_no_way_around_the_seams(tmp_path: Path, line: str) -> None:
    text = HEADER + line.replace("'", '"') + "\n    int close(int fd)\n"

    assert "through the seams in C too" in problems(tmp_path, "src/pyjs/store/a.pxd", text)[0]
    assert len(problems(tmp_path, "src/pyjs/base/a.h", "#include <time.h>\n")) == 1


def test_a_missing_header_is_seen(tmp_path: Path) -> None:
    assert "no header" in problems(tmp_path, "src/a.py", "x = 1\n")[0]
    assert problems(tmp_path, "src/a.py", "") == []
    assert problems(tmp_path, "src/a.py", '#!/usr/bin/env python3\n"""A thing."""\n') == []


@pytest.mark.parametrize("word", ["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"])
def test_unfinished_work_is_seen(tmp_path: Path, word: str) -> None:
    assert word in problems(tmp_path, "docs/a.md", f"A note.\n{word}: later\n")[0]


@pytest.mark.parametrize(
    "place", ["/ro" + "ot/x", "/ho" + "me/ann/x", "(/wo" + "rk/main)", "/tmp/ba" + "sh_jobs.0"]
)
def test_places_of_one_machine_are_seen(tmp_path: Path, place: str) -> None:
    assert "one machine" in problems(tmp_path, "docs/a.md", f"see {place}\n")[0]


def test_a_link_to_nowhere_is_seen(tmp_path: Path) -> None:
    text = "[a](a.md#top), [b](b.md), [web](https://nats.io/b.md), [c](#c)\n"

    assert problems(tmp_path, "docs/a.md", text) == ["docs/a.md: links to b.md, which is not there"]


def test_what_a_merge_left_behind_is_seen(tmp_path: Path) -> None:
    assert "left of a merge" in problems(tmp_path, "docs/a.md", "<" * 7 + " HEAD\nA line.\n")[0]


def test_numbers_of_tickets_are_seen(tmp_path: Path) -> None:
    assert "speaks of" in problems(tmp_path, "docs/a.md", "as iss" + "ue 12 says\n")[0]


def test_a_stub_of_a_method_is_seen(tmp_path: Path) -> None:
    text = HEADER + "def f():\n    raise NotImplemented" + "Error\n"

    assert len(problems(tmp_path, "src/pyjs/core/a.py", text)) == 1
    assert problems(tmp_path, "src/pyjs/base/rng.py", text) == []


def test_what_a_compiled_module_owes_is_seen(tmp_path: Path) -> None:
    assert len(problems(tmp_path, "src/pyjs/core/a.pyx", HEADER)) == 2

    (tmp_path / "src/pyjs/core/a.pyi").write_text("")
    text = '"""A thing. Compiled for every message (benchmarks/, core publish)."""\n'
    assert problems(tmp_path, "src/pyjs/core/a.pyx", text) == []


def test_any_in_a_stub_is_seen(tmp_path: Path) -> None:
    assert problems(tmp_path, "src/pyjs/core/a.pyi", "def f(x: Any) -> int: ...\n") == [
        "src/pyjs/core/a.pyi: a stub says Any",
    ]
