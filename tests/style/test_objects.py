"""Objects and packages respect their size limits, and the check finds violations."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.style import objects
from tests.style.tree import ROOT

SRC = ROOT / "src" / "pyjs"


def planted(tmp_path: Path, **files: str) -> Path:
    """Return a tree with these files: store__a_pyx is store/a.pyx."""
    for name, text in files.items():
        stem, _, suffix = name.replace("__", "/").rpartition("_")
        path = tmp_path / f"{stem}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def declared(count: int, kind: str = "object") -> str:
    return "".join(f"    cdef readonly {kind} {kind}_{number}\n" for number in range(count))


def test_what_is_too_large_is_known_and_does_not_grow() -> None:
    known = {key: count for key, (count, _) in objects.OVER.items()}
    assert objects.over(SRC) == known, "a smaller count: lower it in OVER; a larger one: cut out a part"


@pytest.mark.parametrize("folder", ["spark/src", "spark/fast/src", "spark/tests"])
def test_folders_of_the_data_source_and_of_its_tests_have_few_modules(folder: str) -> None:
    sizes = {package: count for package, _, count, most in objects.packages(ROOT / folder) if count > most}
    assert sizes == {}


def test_the_state_of_modules_is_known() -> None:
    assert objects.module_state(SRC) == set(objects.STATE)


def test_attributes_are_counted_with_those_of_the_bases_wherever_they_are(tmp_path: Path) -> None:
    src = planted(
        tmp_path,
        core__base_pxd="cdef class Base:\n" + declared(30) + "    cdef int method(self)\n",
        core__upper_pxd="from pyjs.core.base cimport Base\ncdef class Upper(Base):\n" + declared(10, "list"),
        core__upper_pyx="cdef class Upper(Base):\n    cdef uint64_t[4] one, two\n",
    )
    assert objects.over(src) == {("Upper", "attributes"): 42}


def test_attributes_of_plain_classes_are_those_they_set_and_annotate(tmp_path: Path) -> None:
    sets = "".join(f"        self.a{number} = number\n" for number in range(39))
    src = planted(
        tmp_path, core__a_py=f"class A:\n    b: int = 1\n    c: int\n    def __init__(self):\n{sets}"
    )
    assert objects.over(src) == {("A", "attributes"): 41}


def test_the_rows_of_an_option_table_are_not_counted(tmp_path: Path) -> None:
    rows = "".join(f'    is_{n}: bool = option(BOOL, "Text.")\n' for n in range(50))
    src = planted(tmp_path, core__a_py=f"class A:\n{rows}")
    assert objects.over(src) == {}


def test_booleans_are_counted(tmp_path: Path) -> None:
    src = planted(
        tmp_path,
        core__a_pyx="cdef class A:\n" + declared(6, "bint"),
        core__b_py="class B:\n    def f(self):\n"
        + "".join(f"        self.is_{n} = False\n" for n in range(6)),
    )
    assert objects.over(src) == {("A", "booleans"): 6, ("B", "booleans"): 6}


def test_towers_of_classes_are_seen_and_a_sink_is_no_storey(tmp_path: Path) -> None:
    classes = (
        "class Sink:\n    pass\nclass A(Sink):\n    pass\nclass B(A):\n    pass\nclass C(B):\n    pass\n"
    )
    assert objects.over(planted(tmp_path, store__a_py=classes)) == {("C", "levels"): 3}


def test_a_package_of_many_modules_is_seen(tmp_path: Path) -> None:
    src = planted(tmp_path, **{f"core__m{number}_py": "" for number in range(17)})
    assert objects.over(src) == {("core", "modules"): 17}


@pytest.mark.parametrize(
    ("file", "text", "name"),
    [
        ("core__a_py", "_cache = {}\n", "_cache"),
        ("core__a_py", "known: dict[str, int] = {}\n", "known"),
        ("core__a_pyx", "cdef list spare = []\n", "spare"),
        ("core__a_pyx", "cdef int n = 0\ndef f():\n    global n\n    n += 1\n", "n"),
    ],
)
def test_state_of_a_module_is_seen(tmp_path: Path, file: str, text: str, name: str) -> None:
    assert {found for _, found in objects.module_state(planted(tmp_path, **{file: text}))} == {name}


def test_constants_are_no_state(tmp_path: Path) -> None:
    assert (
        objects.module_state(planted(tmp_path, core__a_py="TABLE = {}\nnumber = 1\n_values = f()\n")) == set()
    )
