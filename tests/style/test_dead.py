"""src/pyjs has no unused definitions, and the check finds each kind of definition."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.style.dead import KNOWN, unused, unused_in_stubs
from tests.style.tree import ROOT


@pytest.fixture(scope="module")
def unused_here() -> list[str]:
    return unused(ROOT / "src")


def test_everything_is_used(unused_here: list[str]) -> None:
    assert [each for each in unused_here if each.partition(": ")[2] not in KNOWN] == []


def test_every_excuse_is_needed_and_says_why(unused_here: list[str]) -> None:
    dead = {each.partition(": ")[2] for each in unused_here}

    assert sorted(set(KNOWN) - dead) == []
    assert [name for name, reason in KNOWN.items() if len(reason) < 20] == []


def test_stubs_declare_only_what_checked_code_uses() -> None:
    assert unused_in_stubs(ROOT) == []


def test_a_declaration_that_no_checked_code_uses_is_seen(tmp_path: Path) -> None:
    (tmp_path / "src/pyjs").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.mypy]\nfiles = ["src/pyjs", "a.py"]\n')
    (tmp_path / "a.py").write_text("f(x.used)\n")
    (tmp_path / "src/pyjs/b.pyi").write_text(
        "class A:\n    used: int\n    lonely: int\n    def f(self) -> None: ...\n"
        "    def g(\n        self\n    ) -> None: ...\n"
    )

    assert unused_in_stubs(tmp_path) == ["src/pyjs/b.pyi: lonely", "src/pyjs/b.pyi: g"]


def dead(folder: Path, **files: str) -> list[str]:
    for name, text in files.items():
        path = folder / "pyjs" / name.replace("_", ".")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return [each.partition(": ")[2] for each in unused(folder)]


@pytest.mark.parametrize(
    "text",
    [
        "def lonely(x):\n    pass\n",
        "async def lonely(\n    x,\n):\n    pass\n",
        "class lonely:\n    pass\n",
        "lonely = 1\n",
        "lonely: int = 1\n",
        "if x:\n    def lonely():\n        pass\n",
        "class A:\n    def lonely(self):\n        pass\nA()\n",
        "class A:\n    def lonely(self):\n        pass\nA()\nlonely = f(lonely)\n",
        "class A:\n    lonely: int = 1\nA(lonely=2)\n",
        "class A:\n    def f(self):\n        self.lonely = 1\nA().f()\n",
        "class A:\n    def f(self):\n        self.lonely: int = 1\n        self.lonely += 1\nA().f()\n",
        "class A:\n    __slots__ = ('lonely',)\n    def f(self):\n        self.lonely = 1\nA().f()\n",
        "def lonely():\n    pass  # lonely\n__all__ = ['lonely']\n",
    ],
)
def test_a_definition_that_nothing_uses_is_seen(tmp_path: Path, text: str) -> None:
    assert dead(tmp_path, a_py=text) == ["lonely"]


@pytest.mark.parametrize(
    "text",
    [
        "cdef int lonely(int x) noexcept nogil:\n    return x\n",
        "cdef enum:\n    lonely = 3\n",
        "cdef struct S:\n    const char* lonely\ncdef S s\nf(s)\n",
        "cdef class A:\n    cdef readonly int lonely\nA()\n",
        "cdef class A:\n    cdef unsigned char[8] lonely\nA()\n",
        "cdef uint64_t lonely = 1\n",
    ],
)
def test_a_compiled_definition_that_nothing_uses_is_seen(tmp_path: Path, text: str) -> None:
    assert dead(tmp_path, a_pyx=text) == ["lonely"]


def test_a_declaration_and_an_import_are_no_use(tmp_path: Path) -> None:
    found = dead(
        tmp_path,
        a_pxd="cdef int lonely(int x) except -1\n",
        a_pyx="cdef int lonely(int x) except -1:\n    return x\n",
        b_pyx="from pyjs.a cimport lonely\n",
    )

    assert found == ["lonely", "lonely"]


@pytest.mark.parametrize(
    "use", ["f(shared)", "f(x.shared)", 'f"{shared}"', 'getattr(x, "shared")', "x.shared == 1"]
)
def test_a_use_anywhere_counts(tmp_path: Path, use: str) -> None:
    assert dead(tmp_path, a_py="def shared():\n    pass\n", b_pyx=f"{use}\n") == []


def test_what_programs_import_needs_no_use(tmp_path: Path) -> None:
    (tmp_path / "pyjs/aio").mkdir(parents=True)
    (tmp_path / "pyjs/aio/server.py").write_text(
        "class Server:\n    def start(self):\n        self._gone = 1\n"
    )

    assert dead(tmp_path) == ["_gone"]
