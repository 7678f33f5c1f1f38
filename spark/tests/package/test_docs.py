"""docs/guide.md agrees with the code: options and their defaults, columns, commands, exit codes, examples."""

from __future__ import annotations

import dataclasses
import importlib
import re
import shlex
from pathlib import Path

import pytest
from spark.tests.conftest import arrow_or_skip
from spark.tests.support.documents import COMMAND, NOTEBOOKS, SPARK, examples, quoted, table

from pyjs_spark import exits
from pyjs_spark.cli import main as cli
from pyjs_spark.cli.config import from_file, tables_of
from pyjs_spark.decode.schema import COLUMNS, SPARK_TYPES
from pyjs_spark.nats.settings import ConnectSettings
from pyjs_spark.options.reading import TABLE, Options
from pyjs_spark.options.writing import SINK_TABLE, SinkOptions
from pyjs_spark.write.columns import TYPES

TEXT = SPARK.read_text()
DEFAULTS = {field.name: field.default for field in dataclasses.fields(Options)} | {
    f"connect.{field.name}": field.default for field in dataclasses.fields(ConnectSettings)
}


def test_every_option_is_in_the_table() -> None:
    assert sorted(quoted(line[0]) for line in table(TEXT, "option")) == sorted(each.name for each in TABLE)


def test_the_defaults_of_options_are_the_codes() -> None:
    said = {quoted(line[0]): quoted(line[1]) for line in table(TEXT, "option")}

    for option in TABLE:
        default = DEFAULTS[option.target]
        if said[option.name]:
            assert option.parse(said[option.name]) == default, option.name
        else:
            unset = (None, "", (), dataclasses.MISSING)
            assert default in unset or option.name == "jsDomain", option.name


def test_every_option_of_writing_is_in_its_table_with_its_default() -> None:
    own = [option for option in SINK_TABLE if not option.target.startswith("connect.")]
    said = {quoted(line[0]): quoted(line[1]) for line in table(TEXT, "option of writing")}
    defaults = {field.name: field.default for field in dataclasses.fields(SinkOptions)}

    assert sorted(said) == sorted(option.name for option in own)
    for option in own:
        default = defaults[option.target]
        if said[option.name]:
            assert option.parse(said[option.name]) == default, option.name
        else:
            assert default in ("", dataclasses.MISSING), option.name


def test_every_written_column_is_in_the_table_with_its_types() -> None:
    found = {
        quoted(line[0]): tuple(re.findall(r"`([^`]+)`", line[1])) for line in table(TEXT, "written column")
    }

    assert found == TYPES


def test_every_column_is_in_the_table_with_its_type() -> None:
    found = [(quoted(line[0]), quoted(line[1])) for line in table(TEXT, "column")]

    assert sorted(found) == sorted((name, SPARK_TYPES[name]) for name in COLUMNS)


@pytest.mark.parametrize(("head", "module"), [("bucket column", "entries"), ("object column", "objects")])
def test_every_column_of_a_table_is_in_its_table(head: str, module: str) -> None:
    arrow_or_skip()
    types = importlib.import_module(f"pyjs_spark.kv.{module}").TYPES

    assert {quoted(line[0]): quoted(line[1]) for line in table(TEXT, head)} == types


def test_every_command_is_in_the_table() -> None:
    assert [quoted(line[0]) for line in table(TEXT, "command")] == list(cli.COMMANDS)


def test_every_exit_code_is_in_the_table() -> None:
    codes = {0, exits.FAILED, exits.FOUND, exits.INTERRUPTED, exits.TERMINATED, *cli.CODES.values()}

    assert [int(line[0]) for line in table(TEXT, "exit code")] == sorted(codes)


def test_the_commands_are_understood(tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    (file,) = [text for language, text in examples(TEXT) if language == "toml"]
    (tmp_path / "pipeline.toml").write_text(file)

    for line in COMMAND.findall(TEXT):
        argv = [str(tmp_path / word) if word.endswith(".toml") else word for word in shlex.split(line)]
        said = cli._parser().parse_args(argv)
        assert cli.job_of(said).options.streams in (("ORDERS",), ("DEAD_LETTERS",))
    found = from_file(str(tmp_path / "pipeline.toml"), {})
    assert (found["target"], found.spark) == ("/data/lake", {"spark.driver.memory": "2g"})


def test_the_commands_and_files_of_pipelines_are_understood(tmp_path: Path) -> None:
    text = (NOTEBOOKS / "pipelines.md").read_text()
    for file in (text for language, text in examples(text) if language == "toml"):
        kind = tables_of(str(written(tmp_path / "any.toml", file)))["pipeline"]["kind"]  # type: ignore[index]
        written(tmp_path / f"{kind}.toml", file)

    found = []
    for line in COMMAND.findall(text):
        argv = [str(tmp_path / word) if word.endswith(".toml") else word for word in shlex.split(line)]
        said = cli._parser().parse_args(argv)
        found.append((said.command, cli.job_of(said).kind.name))

    assert found == [
        ("archive", "archive"), ("replay", "replay"), ("run", "replay"),
    ]  # fmt: skip


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_every_notebook_document_is_in_the_index() -> None:
    index = (NOTEBOOKS / "README.md").read_text()

    assert all(f"({path.name})" in index for path in NOTEBOOKS.glob("*.md") if path.name != "README.md")
