"""The examples in docs/embedding.md work as printed, on each event loop and inside pytest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conformance.harness.process import free_port

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "embedding.md"
EXAMPLE = re.compile(r"```python\n(.*?)```\n(?:\n((?:    [^\n]+\n)+))?", re.DOTALL)


def examples() -> list[tuple[str, str]]:
    """Return each example with its expected output, which is printed below it."""
    return [
        (code, re.sub("^    ", "", output, flags=re.MULTILINE))
        for code, output in EXAMPLE.findall(DOCUMENT.read_text("utf-8"))
    ]


SCRIPTS = [(code, output) for code, output in examples() if output]
TESTS = [code for code, output in examples() if not output]


def run(directory: Path, *command: str) -> tuple[int, str, str]:
    """Run Python as a user does; return its exit code and output."""
    words = [sys.executable, "-W", "error::ResourceWarning", *command]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        words, cwd=directory, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_there_are_examples_of_each_kind() -> None:
    assert (len(SCRIPTS), len(TESTS)) == (6, 1)


@pytest.mark.parametrize("at", range(len(SCRIPTS)))
def test_an_example_prints_what_stands_below_it(tmp_path: Path, at: int) -> None:
    port = str(free_port())
    code, output = (text.replace("4233", port) for text in SCRIPTS[at])

    assert run(tmp_path, "-c", code) == (0, output, "")


def test_the_first_example_runs_on_uvloop(tmp_path: Path) -> None:
    code, output = SCRIPTS[0]

    assert run(tmp_path, "-c", code.replace("asyncio", "uvloop")) == (0, output, "")


def test_the_first_example_runs_inside_pytest(tmp_path: Path) -> None:
    code = SCRIPTS[0][0].replace("asyncio.run(main())", "")
    mark = "\nimport pytest\n\n@pytest.mark.asyncio\nasync def test_it():\n    await main()\n"
    (tmp_path / "test_it.py").write_text(code + mark)

    code_of_exit, said, _ = run(tmp_path, "-m", "pytest", "test_it.py")

    assert code_of_exit == 0, said
    assert "1 passed" in said


def test_the_tests_of_the_document_pass(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(TESTS[0])

    code_of_exit, said, _ = run(tmp_path, "-m", "pytest", "--strict-markers", "test_orders.py")

    assert code_of_exit == 0, said
    assert "3 passed" in said
