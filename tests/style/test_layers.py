"""The layers are respected, and the check finds violations."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.style.layers import OUTSIDE, SPARK, strayed, violations
from tests.style.tree import ROOT

Plant = Callable[[dict[str, str]], Path]


@pytest.fixture
def plant(tmp_path: Path) -> Plant:
    """Write a source tree and return its folder."""

    def write(files: dict[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / "pyjs" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def test_imports_of_this_tree_point_down() -> None:
    assert violations(ROOT / "src") == []


def test_imports_of_the_spark_package_point_down() -> None:
    assert violations(ROOT / "spark" / "src", SPARK) == []


@pytest.mark.parametrize(
    "line", ["from pyjs_spark.lake import a", "def f():\n    from pyjs_spark.lake import a"]
)
def test_an_upward_import_of_the_spark_package_is_seen(tmp_path: Path, line: str) -> None:
    files = {
        "read/b.py": line,
        "lake/a.py": "from pyjs_spark.read import c",
        "read/c.py": "",
        "__init__.py": line,
    }
    for name, text in files.items():
        path = tmp_path / "pyjs_spark" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    (found,) = violations(tmp_path, SPARK)

    assert found.startswith("pyjs_spark/read/b.py:")
    assert "'read' imports 'lake', which stands above it" in found


def test_a_class_of_the_spark_package_has_a_name_of_its_own() -> None:
    twins = {"Decoder"}  # in wire and in entries: the same part of two decoders
    named: dict[str, list[str]] = {}
    for path in sorted((ROOT / "spark" / "src").rglob("*.py")):
        for name in re.findall(r"^class ([A-Z]\w*)", path.read_text(), re.MULTILINE):
            named.setdefault(name, []).append(path.stem)

    assert {name: places for name, places in named.items() if len(places) > 1 and name not in twins} == {}


def test_the_spark_package_stands_apart_from_the_server() -> None:
    assert strayed(ROOT) == []


@pytest.mark.parametrize("line", ["import pyjs.base.units", "from pyjs import node", "    import asyncio"])
def test_an_import_of_the_server_by_the_spark_package_is_seen(tmp_path: Path, line: str) -> None:
    (tmp_path / "spark/src/pyjs_spark").mkdir(parents=True)
    (tmp_path / "spark/src/pyjs_spark/a.py").write_text(
        f"def f():\n    import re\n{line}\nimport pyjs_spark.b\n"
    )

    assert [problem.partition(": ")[0] for problem in strayed(tmp_path)] == ["spark/src/pyjs_spark/a.py:3"]


@pytest.mark.parametrize("imported", ["import pyjs.cli", "import pyjs.server.server", "import pyjs.node"])
def test_pydantic_is_not_loaded_before_the_server_is_ready(imported: str) -> None:
    script = f"import sys; {imported}; sys.exit('pydantic' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("wire/a.py", "from pyjs.core.session import ClientSession"),
        ("wire/a.py", "import pyjs.core.session"),
        ("wire/a.pyx", "from pyjs.core.session cimport ClientSession"),
        ("wire/a.pxd", "from pyjs.core cimport session"),
        ("wire/a.py", "def f():\n    from pyjs.core import session"),
        ("wire/a.py", "if TYPE_CHECKING:\n    from pyjs.core.session import ClientSession"),
        ("wire/a.pyx", "from pyjs.core.session cimport (\n    ClientSession,\n    other,\n)"),
        ("wire/a.pyx", "from pyjs.core.session \\\n    cimport ClientSession"),
        ("config/a.py", "from pyjs.jetstream.errcodes import ApiError"),
        ("node.py", "from pyjs import server"),
        ("base/a.py", "from .. import wire"),
    ],
)
def test_an_upward_import_is_seen(plant: Plant, file: str, line: str) -> None:
    src = plant(
        {
            file: line,
            "wire/__init__.py": "",
            "server/__init__.py": "",
            "core/__init__.py": "",
            "core/session.pyx": "",
            "jetstream/errcodes.py": "",
        }
    )

    assert len(found := violations(src)) == 1
    assert "stands above it" in found[0]


def test_rooms_of_one_row_do_not_import_each_other(plant: Plant) -> None:
    src = plant({"wire/a.py": "from pyjs.subjects.tokens import tokens", "subjects/tokens.py": ""})

    assert ["stands beside it" in problem for problem in violations(src)] == [True]


def test_the_order_inside_jetstream_holds(plant: Plant) -> None:
    src = plant(
        {
            "jetstream/stream/stream.pyx": "from pyjs.jetstream.consumer.consumer cimport Consumer",
            "jetstream/consumer/consumer.pxd": "",
            "jetstream/manage/engine.py": "from pyjs.jetstream.api.router import route",
            "jetstream/api/router.py": "from pyjs.jetstream.stream.stream import Stream",
        }
    )

    assert violations(src) == [
        "pyjs/jetstream/manage/engine.py:1: 'manage' imports 'api', which stands above it",
        "pyjs/jetstream/stream/stream.pyx:1: 'stream' imports 'consumer', which stands above it",
    ]


def test_a_room_without_a_place_is_seen(plant: Plant) -> None:
    src = plant({"attic/a.py": "", "jetstream/cellar.py": ""})

    assert [problem.split(": ")[1].split(" is not")[0] for problem in violations(src)] == [
        "the room 'attic'",
        "'cellar'",
    ]


def test_an_import_put_off_into_a_function_makes_a_cycle_like_any_other(plant: Plant) -> None:
    src = plant(
        {
            "config/a.py": "def f():\n    from pyjs.config import b",
            "config/b.pyx": "from pyjs.config.a import x",
        }
    )

    assert violations(src) == ["import cycle: pyjs.config.a -> pyjs.config.b -> pyjs.config.a"]


def test_an_import_for_types_alone_makes_no_cycle(plant: Plant) -> None:
    src = plant(
        {
            "config/a.py": "if TYPE_CHECKING:\n    from pyjs.config import b",
            "config/b.pyx": "from pyjs.config.a import x",
        }
    )

    assert violations(src) == []


def test_a_cycle_is_seen_even_inside_a_room(plant: Plant) -> None:
    src = plant({"config/a.py": "from pyjs.config import b", "config/b.pyx": "from pyjs.config.a import x"})

    assert violations(src) == ["import cycle: pyjs.config.a -> pyjs.config.b -> pyjs.config.a"]


@pytest.mark.parametrize("module", sorted(OUTSIDE))
def test_the_outside_world_is_closed_below_the_shell(plant: Plant, module: str) -> None:
    src = plant({"config/a.pyx": f"from {module} cimport x", "config/b.py": f"import {module}"})

    assert [f"imports {module}" in problem for problem in violations(src)] == [True, True]


def test_a_submodule_by_its_short_name_is_no_way_around(plant: Plant) -> None:
    src = plant({"config/a.pyx": "from libc cimport time\nfrom posix cimport unistd\nfrom os import path"})

    assert [problem.partition("imports ")[2].split(",")[0] for problem in violations(src)] == [
        "libc.time",
        "posix.unistd",
        "os.path",
    ]


def test_words_in_strings_and_comments_are_no_imports(plant: Plant) -> None:
    src = plant({"config/a.py": '"""Never\nimport asyncio\n"""\n# import socket\nTEXT = "import ssl"\n'})

    assert violations(src) == []
