"""Aggregates without servers and Spark: what they are told, what they refuse, and the expressions that they make."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyjs_spark.cli.main import main
from pyjs_spark.errors import OptionError
from pyjs_spark.lake import aggregate, config
from pyjs_spark.lake.aggregate import Aggregate

HEAD = {"stream": "ORDERS", "target": "kv:RATES", "checkpoint": "/data/cp", "window": "1m"}
FILE = """
[pipeline]
kind = "aggregate"
stream = ["ORDERS", "BILLS_*"]
target = "kv:RATES"
checkpoint = "/data/cp"
window = "1h"
slide = "10m"
late = "30s"
by = "$1.$3"
create = true
[values]
orders = "count"
revenue = "sum(amount)"
[options]
subjects = "orders.>"
[sink]
maxInFlight = 10
"""


def make(values: dict[str, str] | None = None, **changes: str) -> Aggregate:
    return aggregate.make({**HEAD, **changes}, {"n": "count"} if values is None else values, {})


def test_a_file_says_everything_about_an_aggregate(tmp_path: Path) -> None:
    (tmp_path / "rates.toml").write_text(FILE)

    found = aggregate.from_tables(config.tables_of(str(tmp_path / "rates.toml")), {"maxRowsPerTrigger": "5"})

    assert (found.window_s, found.slide_s, found.late_s, found.by) == (3600, 600, 30, "$1.$3")
    assert (found.bucket, found.emit, found.create) == ("RATES", "updates", True)
    assert [(each.name, str(each)) for each in found.values] == [
        ("orders", "count"),
        ("revenue", "sum(amount)"),
    ]
    assert found.options.streams == ("ORDERS", "BILLS_*")
    assert (found.options.subjects, found.options.max_rows_per_trigger) == (("orders.>",), 5)
    assert found.sink == {"maxInFlight": "10"}


def test_a_subject_gets_final_results() -> None:
    found = make(target="subject:stats.orders")

    assert (found.emit, found.bucket) == ("final", "")


@pytest.mark.parametrize(
    ("values", "changes", "said"),
    [
        (None, {"checkpoint": ""}, "key checkpoint is missing or empty in an aggregate"),
        (None, {"target": "RATES"}, "target=RATES is not allowed; allowed: kv:BUCKET, or subject:SUBJECT"),
        (None, {"target": "kv:a.b"}, "target=kv:a.b is not allowed"),
        (None, {"target": "subject:a.>"}, "target=subject:a.> is not allowed"),
        (None, {"window": "soon"}, "window=soon is not allowed; allowed: a duration"),
        (None, {"window": "1500ms"}, "window=1500ms is not allowed; allowed: whole seconds"),
        (None, {"slide": "2m"}, "slide=2m is longer than window=1m"),
        (None, {"by": "$0"}, "by=$0 is not allowed; allowed: subject, all, or tokens"),
        (None, {"emit": "finl"}, "emit finl is unknown; did you mean final?"),
        (None, {"emit": "updates", "target": "subject:a"}, "emit=updates goes into a bucket"),
        (None, {"create": "true", "target": "subject:a"}, "create makes a bucket"),
        (None, {"time": "a b"}, "time=a b is no JSON field"),
        ({}, {}, "an aggregate needs a value at least"),
        ({"start": "count"}, {}, "value start is no name for a value: the result has it already"),
        ({"1st": "count"}, {}, "value 1st is no name for a value"),
        ({"x": "sum"}, {}, "value x=sum: name a JSON field of the messages, as sum(amount)"),
        ({"x": "summ(amount)"}, {}, "value x: function summ is unknown; did you mean sum?"),
        ({"x": "sum(a'b)"}, {}, "value x=a'b is no JSON field"),
    ],
)
def test_what_is_wrong_is_told(values: dict[str, str] | None, changes: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=re.escape(said)):
        make(values, **changes)


def test_a_stream_is_no_option_of_an_aggregate() -> None:
    with pytest.raises(
        OptionError, match="option Stream: the stream of a pipeline is named beside its target"
    ):
        aggregate.make(HEAD, {"n": "count"}, {"Stream": "OTHER"})


def test_the_sink_has_the_connection_of_the_source_however_it_is_written() -> None:
    given = {"SERVERS": "nats://far:4222", "credsfile": "/creds", "maxrowspertrigger": "5"}

    found = aggregate.make(HEAD, {"n": "count"}, given, {"retries": "1"})

    assert found.sink == {"SERVERS": "nats://far:4222", "credsfile": "/creds", "retries": "1"}


def test_the_sink_may_have_a_connection_of_its_own() -> None:
    found = aggregate.make(
        HEAD, {"n": "count"}, {"servers": "nats://a:1", "user": "u"}, {"Servers": "nats://b:1"}
    )

    assert found.sink == {"Servers": "nats://b:1"}


def test_a_value_that_is_named_twice_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["aggregate", "A", "kv:R", "--checkpoint", "c", "--window", "1m"]

    assert main([*argv, "--value", "n=count", "--value", "n=sum(x)"]) == 2
    assert "--value n=sum(x): there is a value n already" in capsys.readouterr().err


def test_a_stream_ends_not_so_neither_does_an_aggregate() -> None:
    with pytest.raises(OptionError, match="endingOffsets is not allowed in a streaming read"):
        aggregate.make(HEAD, {"n": "count"}, {"endingOffsets": '{"ORDERS": 5}'})


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        ({"stream": "X"}, "section sink: option stream: an aggregate sets it itself"),
        ({"maxInFlite": "3"}, "option maxInFlite is unknown; did you mean maxInFlight?"),
        ({"subjects": "a"}, "option subjects is for reading"),
    ],
)
def test_what_is_wrong_of_the_sink_is_told_before_it_is_needed(sink: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=re.escape(said)):
        aggregate.make(HEAD, {"n": "count"}, {}, sink)


def test_only_what_is_needed_is_read() -> None:
    assert aggregate.columns(make(by="all")) == ("ts",)
    assert aggregate.columns(make()) == ("ts", "subject")
    assert aggregate.columns(make({"x": "max(a.b)"}, by="all")) == ("ts", "data")
    assert aggregate.columns(make(by="all", time="at")) == ("ts", "data")


def test_the_definition_has_all_that_the_state_depends_on() -> None:
    same = make().definition()

    for changes in (
        {"window": "2m"},
        {"slide": "30s"},
        {"late": "1s"},
        {"by": "all"},
        {"time": "at"},
        {"emit": "final"},
    ):
        assert make(**changes).definition() != same
    assert make({"n": "count(x)"}).definition() != same
    assert make(checkpoint="/other").definition() == same


def test_the_command_line_makes_the_same_as_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    argv = ["aggregate", "ORDERS", "kv:RATES", "--checkpoint", str(tmp_path / "cp"), "--window", "1m"]

    assert main([*argv, "--value", "revenue"]) == 2
    assert "--value revenue: write it as name=function" in capsys.readouterr().err
    assert main([*argv, "--value", "n=count", "--continuous", "--every", "never"]) == 2
    assert "--every never is not allowed; allowed: a duration" in capsys.readouterr().err
    assert main([*argv, "--value", "n=count", "--every", "5s"]) == 2
    assert "--every says how often --continuous looks; give that too" in capsys.readouterr().err
    assert main([*argv, "--value", "n=count", "--once", "--continuous"]) == 2
    assert "not allowed with argument --once" in capsys.readouterr().err


def test_a_file_is_called_valid(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "rates.toml").write_text(FILE)

    assert main(["validate", "-c", str(tmp_path / "rates.toml")]) == 0
    assert capsys.readouterr().out == "valid: aggregate of ORDERS, BILLS_* to kv:RATES; no server was asked\n"
    (tmp_path / "rates.toml").write_text(FILE.replace("by =", "buy ="))
    assert main(["run", "-c", str(tmp_path / "rates.toml")]) == 2
    assert "rates.toml: key buy is unknown; did you mean by?" in capsys.readouterr().err


def test_a_server_that_is_not_there_ends_with_4(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    argv = ["aggregate", "ORDERS", "kv:RATES", "--checkpoint", str(tmp_path / "cp"), "--window", "1m"]

    assert main([*argv, "--value", "n=count", "-s", "nats://127.0.0.1:1", "--dry-run"]) == 4
    assert "Connection refused" in capsys.readouterr().err
