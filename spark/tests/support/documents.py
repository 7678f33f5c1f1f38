"""The parts of a document that tests run or compare with the code: examples, commands and tables.

Programs and SQL run in the shared Spark, in their order (jvm/docs/test_docs_run.py). So do commands
(jvm/docs/test_commands_run.py). Commands of `ONLY_CHECKED` and programs of `NEEDS_MORE` need what no test has; their
parts are checked (package/test_blocks.py), and docs/tested.md lists these commands and programs.
"""

from __future__ import annotations

import re

from tests.style.tree import ROOT

NOTEBOOKS = ROOT / "spark" / "docs"
SPARK = NOTEBOOKS / "guide.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^pyjs-pipeline (.+)$", re.MULTILINE)
PAGES = [
    NOTEBOOKS.parent / "README.md",
    *sorted(NOTEBOOKS.rglob("*.md")),
]
RUN = ("python", "sql", "toml")
# First words of commands that are not run.
ONLY_CHECKED = (".ci/spark", "cp", "docker build", "pip install", "pip wheel", "spark-submit", "venv-pack")
# First lines of programs that are not run: they need Spark Connect, and an S3 server with jars from Maven.
NEEDS_MORE = (
    'spark = SparkSession.builder.remote("local")',
    'spark = pyjs_spark.session(\n    **{\n        "spark.jars.packages"',
)


def examples(text: str) -> list[tuple[str, str]]:
    """Return the language and the text of each program and file, in their order."""
    return [
        (language, body)
        for language, body in BLOCK.findall(text)
        if language in RUN and not body.startswith(NEEDS_MORE)
    ]


def is_only_checked(command: str) -> bool:
    """Return whether tests do not run a command."""
    return command.startswith(tuple(f"{words} " for words in ONLY_CHECKED))


def table(text: str, head: str) -> list[list[str]]:
    """Return the cells of the table whose first line begins with `head`, without its head."""
    lines = text[text.index(f"\n| {head} |") + 1 :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def quoted(cell: str) -> str:
    """Return the text between the first two backticks of a cell, or "" if the cell does not begin with a backtick."""
    match = re.match(r"`([^`]+)`", cell)
    return match[1] if match else ""
