"""Every command, program and configuration of the manual works as it stands there."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest
from tests.conformance.harness import cli
from tests.conformance.harness.process import REPOSITORY
from tests.docs.pages import LANGUAGES, Block, Reader, blocks, commands

from pyjs.config.flags import parse_flags
from pyjs.config.load import load_options
from pyjs.testing import jwt

PAGES = sorted(
    str(path.relative_to(REPOSITORY))
    for pattern in ("*.md", "docs/*.md", "raft/*.md", "benchmarks/*.md")
    for path in REPOSITORY.glob(pattern)
)
NATS = cli.program()  # without it, commands that begin with nats are not run
MISSING = [program for program in ("bash", "curl", "openssl") if not shutil.which(program)]
# Pages that are worked through from the first block to the last: the first ones start their server themselves.
LESSONS = ("docs/tutorial.md", "docs/from-nats-server.md", "docs/security.md", "docs/operations.md")
RECIPES = (
    "README.md",
    "docs/howto.md",
    "docs/from-rabbitmq.md",
    "docs/from-kafka.md",
    "docs/backup.md",
    "docs/dead-letters.md",
)
# Pages whose programs other tests run.
ELSEWHERE = {
    "docs/cluster.md": "tests/system/test_cluster_recipe.py",
    "docs/embedding.md": "tests/system/test_embedding.py",
    "docs/development.md": "tests/style",
    "raft/README.md": "raft/tests",
}
# What a reader has done before a command, though the page need not say it.
BEFORE = {
    "nats --user ops": [
        "export OPS_PASSWORD=one APP_PASSWORD=two",
        "pyjs-server -c ops.conf -m 8222 > ops.log 2>&1 &",
    ],
    "python -m pyjs.testing.jwt auth": ["pyjs-server -t -c tls.conf"],
    "nats --creds auth/alice.creds": [
        "pyjs-server -c auth/server.conf -m 8222 -P auth.pid > auth.log 2>&1 &"
    ],
    "nats --user shop --password shop reply": [
        "! [ -f auth.pid ] || { kill $(cat auth.pid) && wait; }",
        "pyjs-server -c shared.conf -m 8222 > shared.log 2>&1 &",
    ],
    'nats stream add ORDERS --subjects "orders.>" --storage': ["nats stream rm -f ORDERS"],
    "nats stream backup ORDERS": ["nats stream add ORDERS --subjects 'orders.>' --defaults"],
    "nats stream add ORDERS_DEAD": ["nats stream add ORDERS --subjects 'orders.>' --defaults"],
    "nats stream restore": ["nats stream rm -f ORDERS"],
    "nats account restore": ["nats stream rm -f ORDERS"],
}
# Programs that need Spark: spark/tests runs such ones.
OF_SPARK = ("letters = (\n    spark.",)
# Of a command like these only the words are checked: it is for other machines, or it tests or builds this tree.
_SERVES = re.compile(r"pyjs-server (?!-t\b|fsck\b|doctor\b|import\b)[^&]*$")
_FOR_THE_TREE = re.compile(
    r"([A-Z_]+=\S+ )?(make|pip|\.ci/|python benchmarks/|python -m benchmarks|pyjs-server import \S+ \S+ /var)"
)
_UNFENCED = re.compile(r"(?:^|\n\n) {4}(?:nats|pyjs-server|make|pip|curl|python|kill) .*")


def is_only_checked(command: str) -> bool:
    """Report whether a command is not run; `check` looks at it."""
    return bool(_FOR_THE_TREE.match(command) or _SERVES.match(command))


def check(command: str) -> str:
    """Return what is wrong with a command that is not run; nothing if it is well."""
    words = [word for word in shlex.split(command, comments=True) if not re.match(r"[A-Z_]+=", word)]
    if words[0] == "make":
        targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
        named = {word for word in words[1:] if not word.startswith("-")}
        return f"no such target: {named - targets}" if named - targets else ""
    if words[0] == "pyjs-server" and words[1] != "import":
        parse_flags(words[1:])  # raises what a user would see
    if words[0] == "pip":
        ours = {word for word in words if word.startswith("pyjs")}
        return (
            ""
            if ours <= {"pyjs-server", "pyjs-server[cluster]", "pyjs-spark"}
            else f"unknown package: {ours}"
        )
    paths = [word for word in words if word.startswith(("benchmarks/", ".ci/"))]
    return "".join(f"no such file: {path}" for path in paths if not (REPOSITORY / path).exists())


def play(reader: Reader, block: Block) -> None:
    """Run a block, with what must be done before its commands."""
    if block.language not in ("sh", "console"):
        if not block.text.startswith(OF_SPARK):
            reader.run(block)
        return
    for command in commands(block):
        if is_only_checked(command.text):
            continue
        for before in (
            line for start, lines in BEFORE.items() for line in lines if command.text.startswith(start)
        ):
            if reader.can(command.text):
                reader.run(Block(block.line, "sh", before, None))
        reader.run_command(command)


@pytest.mark.skipif(
    NATS is None and os.environ.get("PYJS_LATER") == "cli",
    reason="played with the nats command (make cli-walk)",
)
@pytest.mark.skipif(MISSING != [], reason=f"not here: {', '.join(MISSING)}")
@pytest.mark.parametrize("name", LESSONS + RECIPES)
def test_a_page_works_from_its_first_block_to_its_last(tmp_path: Path, name: str) -> None:
    with Reader(tmp_path, NATS) as reader:
        if name in RECIPES:
            reader.serve()
        for block in blocks(REPOSITORY / name):
            play(reader, block)


@pytest.mark.parametrize("name", PAGES)
def test_every_block_has_a_known_language_and_every_command_is_in_one(name: str) -> None:
    unknown = {block.language for block in blocks(REPOSITORY / name)} - {"", *LANGUAGES}

    assert unknown == set()
    assert _UNFENCED.findall((REPOSITORY / name).read_text("utf-8")) == []


@pytest.mark.parametrize("name", PAGES)
def test_what_no_reader_runs_here_is_right(name: str) -> None:
    wrong: list[str] = []
    for block in blocks(REPOSITORY / name):
        if block.language in ("sh", "console"):
            wrong += [f"line {each.line}: {check(each.text)}" for each in commands(block) if check(each.text)]
            left = [each for each in commands(block) if not is_only_checked(each.text)]
            assert not left or name in (*LESSONS, *RECIPES, *ELSEWHERE), left
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "python":
            assert name in (*LESSONS, *RECIPES, *ELSEWHERE), block
    assert wrong == []


def _configurations() -> list[tuple[str, Block]]:
    return [
        (name, block) for name in PAGES for block in blocks(REPOSITORY / name) if block.language == "conf"
    ]


@pytest.mark.parametrize(
    ("name", "block"), _configurations(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_configuration_is_valid(
    name: str, block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if "operator" in block.text:
        jwt.write_example(str(tmp_path / "auth"))

    def read(path: str) -> str:
        if path == "page.conf":
            return block.text
        included = REPOSITORY / "conf" / "cluster" / Path(path).name
        return (included if included.exists() else Path(path)).read_text()

    variables = dict.fromkeys(re.findall(r"\$([A-Z_]+)", block.text), "secret")
    load_options("page.conf", read, variables, {})


def test_pages_that_other_tests_run_name_them() -> None:
    assert [path for path in ELSEWHERE.values() if not (REPOSITORY / path).exists()] == []
