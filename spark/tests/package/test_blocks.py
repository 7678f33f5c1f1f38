"""Every block of the documents has a language, and what no test runs is right as far as it can be checked."""

from __future__ import annotations

import ast
import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from spark.tests.support.documents import NEEDS_MORE, NOTEBOOKS, ONLY_CHECKED, PAGES, is_only_checked
from tests.docs.pages import Block, blocks, commands
from tests.style.tree import ROOT

from pyjs_spark.cli import main as cli
from pyjs_spark.cli import submit
from pyjs_spark.options.reading import TABLE
from pyjs_spark.options.writing import SINK_TABLE
from pyjs_spark.version import VERSION

LANGUAGES = {"sh", "python", "sql", "toml", "json", "text"}
RUNS = {"nats", "pyjs-pipeline"}  # programs of commands that jvm/docs/test_commands_run.py runs
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
UNFENCED = re.compile(r"(?:^|\n\n) {4}\S.*")
OPTION = re.compile(r"\.option\(\s*\"([^\"]+)\"")
# Options of Spark itself, and of its sources and sinks for files.
SPARKS = {"checkpointLocation", "truncate"}
SUBMIT_OPTIONS = {"--master", "--deploy-mode", "--py-files", "--conf", "--archives", "--files"}
MASTERS = re.compile(r"spark://[\w.]+:\d+|yarn")
PROJECT = tomllib.loads((ROOT / "spark/pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
KNOWN = {re.split(r"[^\w-]", each)[0] for names in EXTRAS.values() for each in names} | {"confluent-kafka"}


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT / "spark"))


def commands_in(page: Path) -> list[str]:
    """Return the commands of a page, each on one line."""
    found = [each.text for block in blocks(page) if block.language == "sh" for each in commands(block)]
    return [each.replace("\\\n", " ") for each in found]


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_block_has_a_known_language(page: Path) -> None:
    assert {block.language for block in blocks(page)} <= LANGUAGES
    assert UNFENCED.findall(FENCED.sub("", page.read_text())) == []


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_command_is_run_or_checked(page: Path) -> None:
    found = [(line, problem_of(line)) for line in commands_in(page) if is_only_checked(line)]
    others = [line for line in commands_in(page) if not is_only_checked(line)]

    assert [(line, problem) for line, problem in found if problem] == []
    assert {line.split()[0] for line in others} <= RUNS


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_programs_and_files_can_be_read_and_their_options_exist(page: Path) -> None:
    known = {option.name for option in (*TABLE, *SINK_TABLE)} | SPARKS
    for block in blocks(page):
        if block.language == "json":
            json.loads(block.text)
        elif block.language == "toml":
            tomllib.loads(block.text)
        elif block.language == "python":
            ast.parse(block.text)
            assert set(OPTION.findall(block.text)) - known == set(), f"{page.name}:{block.line}"


def test_the_list_of_commands_that_are_only_checked_is_in_the_documents() -> None:
    text = (NOTEBOOKS / "tested.md").read_text()
    rows = text[text.index("| only checked |") :].split("\n\n")[0].splitlines()[2:]
    listed = {name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])}
    every = [line for page in PAGES for line in commands_in(page)]
    programs = [block.text for page in PAGES for block in blocks(page) if block.language == "python"]

    assert listed == set(ONLY_CHECKED)
    assert [each for each in ONLY_CHECKED if not any(line.startswith(f"{each} ") for line in every)] == []
    assert [each for each in NEEDS_MORE if sum(text.startswith(each) for text in programs) != 1] == []


def problem_of(command: str) -> str:
    """Return what is wrong with a command that is not run, or ""."""
    words = shlex.split(re.sub(r"\s+#.*", "", command))
    if words[0] == ".ci/spark":
        named = [word for word in words if word.startswith((".ci/", "benchmarks/"))]
        return problem_of(" ".join(words[4:])) or missing(ROOT, named)
    if "pip" in words and "install" in words:
        return unknown_packages(words[words.index("install") + 1 :])
    if words[0] == "docker":
        return missing(ROOT / "spark", [words[-1], f"{words[-1]}/Dockerfile"])
    if words[0] == "spark-submit":
        return problem_of_submit(words[1:])
    if words[0] == "cp":
        return "" if Path(words[1]).stem.startswith(f"pyjs_spark-{VERSION}-") else "another version"
    return ""


def missing(folder: Path, names: list[str]) -> str:
    return "".join(f"no such file: {name}" for name in names if not (folder / name).exists())


def unknown_packages(names: list[str]) -> str:
    for name in names:
        match = re.fullmatch(r"([\w-]+)(?:\[([\w,]+)\])?", name)
        if match is None:
            return f"not a package: {name}"
        own = match[1] == PROJECT["name"]
        if not own and match[1] not in KNOWN:
            return f"unknown package: {name}"
        if own and set((match[2] or "").split(",")) - {"", *EXTRAS}:
            return f"unknown extra: {name}"
    return ""


def problem_of_submit(words: list[str]) -> str:
    """Return what is wrong with the arguments of spark-submit."""
    at = 0
    while words[at].startswith("--"):
        option, value = words[at], words[at + 1]
        if option not in SUBMIT_OPTIONS:
            return f"unknown option: {option}"
        if option == "--master" and not MASTERS.fullmatch(value):
            return f"unknown master: {value}"
        if option == "--conf" and not value.startswith("spark.pyspark.python="):
            return f"unknown setting: {value}"
        if option == "--py-files" and Path(value).name != submit.ZIP:
            return f"another file than the commands make: {value}"
        at += 2
    application, *arguments = words[at:]
    if not (ROOT / "spark/deploy" / application).exists() and Path(application).name != submit.APPLICATION:
        return f"no such application: {application}"
    cli._parser().parse_args(arguments)  # ends the test with the error that a user would see
    return ""


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("pip install 'pyjs-spark[lakes]'", "unknown extra: pyjs-spark[lakes]"),
        ("pip install pyjs-sprak", "unknown package: pyjs-sprak"),
        ("docker build -t x deploi", "no such file: deploi"),
        ("spark-submit --pyfiles a.zip pipeline.py run -c x.toml", "unknown option: --pyfiles"),
        ("spark-submit --master yarn other.py run -c x.toml", "no such application: other.py"),
        (".ci/spark --pyspark 4.2 run benchmarks/no.py", "no such file: benchmarks/no.py"),
        ("cp pyjs_spark-9.9.9-py3-none-any.whl pyjs_spark.zip", "another version"),
    ],
)
def test_a_wrong_command_is_found(command: str, problem: str) -> None:
    assert problem_of(command).startswith(problem)


def test_a_block_without_a_language_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Run\n\n    pyjs-pipeline x\n\n```\ny\n```\n")

    assert blocks(page) == [Block(6, "", "y\n", None)]
    assert UNFENCED.findall(FENCED.sub("", page.read_text())) == ["\n\n    pyjs-pipeline x"]
