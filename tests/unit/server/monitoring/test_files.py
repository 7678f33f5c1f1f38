"""The files of the dashboard."""

from __future__ import annotations

import re

import pytest
from tests.style.tree import ROOT

from pyjs.monitor.dashboard.views import TYPES
from pyjs.server.monitoring.files import asset

FOLDER = ROOT / "src/pyjs/server/monitoring/assets"
NAMES = sorted(path.name for path in FOLDER.iterdir())
SIZE_MAX = 150_000  # bytes of all files


@pytest.mark.parametrize("name", NAMES)
def test_each_file_is_served_with_a_type(name: str) -> None:
    assert asset(name) == (FOLDER / name).read_bytes()
    assert name.rpartition(".")[2] in TYPES


@pytest.mark.parametrize("name", ["", "nope", "../files.py", "/etc/passwd", "assets/app.js"])
def test_no_other_file_is_served(name: str) -> None:
    assert asset(name) is None


def test_the_files_are_small() -> None:
    assert sum((FOLDER / name).stat().st_size for name in NAMES) <= SIZE_MAX


def test_the_page_asks_only_for_its_own_files() -> None:
    page = (FOLDER / "index.html").read_text()

    names = re.findall(r'(?:src|href)="dashboard/([^"]+)"', page)
    assert set(names) <= set(NAMES)
    modules = {name for name in NAMES if name.endswith(".js")}
    assert modules <= set(names), "a module that is not named in the page is fetched later than the others"
    assert "style=" not in page
    assert not re.search(r"<script>|\son\w+=", page)


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".js") and "min" not in name])
def test_no_script_makes_html_of_text(name: str) -> None:
    script = (FOLDER / name).read_text()

    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "DOMParser",
        "cssText",
    ):
        assert word not in script
    assert max(map(len, script.splitlines())) <= 118
    assert script.startswith("// ")
